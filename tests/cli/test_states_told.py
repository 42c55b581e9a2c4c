"""States on the command line: what cannot be used is said with its cause, and `serve --check` fails."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Run

UPSTREAM = Path(__file__).parents[1] / "interaction" / "scripted_upstream.py"
GOOD = {"name": "good", "description": "Measure a wall", "inputSchema": {"type": "object"}}
LISTS: dict[str, tuple[Any, str, str, str]] = {
    "left out": (
        {"tools": [GOOD, {"name": "odd"}, {"name": "no", "inputSchema": None}]},
        *("ready", "warning", "2 of 3 tools left out: odd (it has no inputSchema), no (its inputSchema is null"),
    ),
    "failed": ({"error": {"code": -32603, "message": "backend is down"}}, "error", "fail", "-32603: backend is down."),
    "no list": ({"tools": "none"}, "error", "fail", "sent a tool list without an array 'tools'."),
}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("fault", LISTS)
def test_a_list_that_cannot_be_used_is_said_in_every_table(home: Path, run: Run, fault: str) -> None:
    """Row of `server list`, finding of `doctor`, exit status of `serve --check`."""
    answer, state, outcome, cause = LISTS[fault]
    (script := home / "script.json").write_text(json.dumps({"lists": [answer], "results": {}}))
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(script)]}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"desk": entry}}))
    (row,) = run("server", "list", "--json").json
    assert (row["state"], cause in row["error"], bool(row["hint"])) == (state, True, True)
    checks = run("doctor", "--json").json["checks"]
    (finding,) = (each for each in checks if each["check"] == "desk")
    assert (finding["outcome"], cause in finding["message"]) == (outcome, True)
    done = run("serve", "--check", "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    assert cause in done.json["servers"][0]["error"]
