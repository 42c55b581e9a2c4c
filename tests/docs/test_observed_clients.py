"""What runs of real clients have shown: every fact of each, told from what a server has noted."""

import json
import sys
from typing import Any

from documents import ROOT

from smart_mcp_proxy.client_files import KNOWN_CLIENTS

sys.path.insert(0, str(ROOT / "scripts"))
from pages.client_pages import OBSERVED
from pages.observations import COLUMNS, summarize


def test_each_observed_client_is_known_and_has_every_fact() -> None:
    """With the version and the day of the run."""
    observed = json.loads(OBSERVED.read_text("utf-8"))
    assert observed.keys() <= {client.name for client in KNOWN_CLIENTS}
    for row in observed.values():
        assert row.keys() == COLUMNS.keys() | {"version", "seen"}


def said(*messages: dict[str, Any], **start: Any) -> list[dict[str, Any]]:
    started = {"at": 0, "kind": "start", "cwd": "/home", "variables": [], **start}
    return [started, *({"at": at, "kind": "message", "message": each} for at, each in enumerate(messages))]


def call(tool: str, **meta: Any) -> dict[str, Any]:
    return {"id": 1, "method": "tools/call", "params": {"name": tool, "_meta": meta}}


OPENED = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "one"}}
OPEN = {"id": 0, "method": "initialize", "params": OPENED}
LIST = {"id": 1, "method": "tools/list"}


def test_a_client_that_does_everything_is_told_so() -> None:
    """Pages, a changed list, progress, names, restarts, its end."""
    second = {**LIST, "params": {"cursor": "2"}}
    roots = {"id": "roots", "result": {"roots": [{"uri": "file:///home"}]}}
    count, stop = call("count", progressToken=1), call("stop", progressToken=2)
    first = said(
        OPEN, LIST, roots, second, count, call("grow", progressToken=3), LIST, stop, variables=["PROBE_API_KEY"]
    )
    deleted = {"at": 9, "kind": "http", "method": "DELETE"}
    way = {
        "notes": [*first, *said(OPEN, count)],
        "turns": [["gw_count", "gw_dotted_name"], ["gw_grown"]],
        "home": "/home",
    }
    facts = summarize({"stdio": way, "http": {**way, "notes": [*way["notes"], deleted]}}, 150)
    assert facts == {
        "protocol": "2025-11-25",
        "capabilities": "`roots`",
        "name": "`one`",
        "pages": "reads all",
        "list_changed": "lists again, its model gets the new tool",
        "progress": "asks for it",
        "names": "`count` is `gw_count`; `dotted.name` is `dotted_name`; one of 64 letters is left out; "
        "one of 128 letters is left out",
        "timeout": "not seen",
        "folder": "the one it was started in; names it as its root",
        "variables": "all of its own",
        "restart_stdio": "starts it again with the next call",
        "restart_http": "opens a new session with the next call",
        "end": "ends its session (`DELETE`)",
    }


def test_a_client_that_does_little_is_told_so_too() -> None:
    """It reads one page, hears no change, and gives up."""
    notes = said(OPEN, LIST, call("count"), call("grow"), call("stop"), cwd="/elsewhere")
    slow = said(OPEN, call("slow"))
    slow.append({"at": 61, "kind": "end"})
    way = {"notes": notes, "turns": [], "home": "/home"}
    facts = summarize({"stdio": way, "http": way, "slow": {"notes": slow, "turns": [], "home": "/home"}}, 150)
    assert facts["pages"] == "reads the first alone"
    assert facts["list_changed"] == "does not list again"
    assert facts["progress"] == "does not ask"
    assert facts["names"] == "not seen"
    assert facts["timeout"] == "given up after 60 s"
    assert facts["folder"] == "that of its own file; no root"
    assert facts["variables"].startswith("a short list")
    assert facts["restart_stdio"] == facts["restart_http"] == "calls fail until a new session"
