"""Claude Code's own search of deferred tools, with and without the gateway's hints, driven by a scripted model.

The hint itself is sent to no model: Claude Code ranks by it, and the tool that it finds is then in the next request.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from front import Front
from installed import GATEWAY, Installation, serving
from programs import PROGRAMS, Program, Target
from scripted_model import DONE, Step, serving_model
from seen_clients import note
from test_agents import run

pytestmark = pytest.mark.clients

UPSTREAM = Path(__file__).parent / "counting_upstream.py"
WORD = "lighthouse"
"""The name of a parameter of the tool, which stands in its hint and neither in its name nor in its description."""
SEARCH, TOOL = "ToolSearch", "work__count"
SCRIPT = (Step(SEARCH, {"query": WORD, "max_results": 3}, until=TOOL), Step(TOOL, {"to": 3}, until="counted to 3"))
CLAUDE_CODE = next(program for program in PROGRAMS if program.name == "claude-code")


def searching(home: Path, model: str, target: Target) -> tuple[list[str], dict[str, str]]:
    """Claude Code with its search switched on, which it is not by itself where its model is served by others."""
    arguments, variables = CLAUDE_CODE.prepare(home, model, target)
    return arguments, {**variables, "ENABLE_TOOL_SEARCH": "true"}


@pytest.mark.parametrize("is_hinting", [True, False], ids=["hints", "no hints"])
def test_claude_code_finds_a_deferred_tool_by_its_hint_alone(
    is_hinting: bool, tmp_path: Path, record_property: Any
) -> None:
    """The tool is deferred at first, then found by a word of its hint, offered to the model and called."""
    note(record_property, CLAUDE_CODE.name, CLAUDE_CODE.package.rpartition("@")[2], "http")
    notes, config, home = tmp_path / "notes", tmp_path / "mcp_config.json", tmp_path / "home"
    home.mkdir()
    notes.touch()  # a path that is there is open to the server that it is named to
    server = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(notes), WORD], "pin": ["count"]}
    config.write_text(json.dumps({"mcpServers": {"work": server}}), "utf-8")
    variables = {"MCPPROXY_CONFIG_PATH": str(config), "MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    variables |= {"MCPPROXY_SEARCH_HINTS": "true"} if is_hinting else {}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", **variables}
    program = Program(CLAUDE_CODE.name, CLAUDE_CODE.package, CLAUDE_CODE.executable, searching)
    script = SCRIPT if is_hinting else (SCRIPT[0]._replace(until=""),)
    with serving(Installation(GATEWAY, environment), tmp_path) as url, serving_model(script) as model:
        printed = run(program, home, Front(Target(url=url), notes, environment), model)
    first, last = model.turns[0], model.turns[-1]
    assert any(name == SEARCH for name in first.tools), first.tools
    assert not any(name.endswith(TOOL) for name in first.tools)
    if is_hinting:
        assert TOOL in last.results[0] and any(name.endswith(TOOL) for name in last.tools), last
        assert "counted to 3" in last.results[-1] and DONE in printed
    else:
        assert TOOL not in json.dumps(last.results) and notes.read_text() == ""
