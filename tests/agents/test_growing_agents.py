"""Real coding agents by routing: who offers its model what a search registers, as `SEEN_CLIENTS` says."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from front import Front, fronted
from programs import IN_CI, PROGRAMS, Program
from scripted_model import ScriptedModel, Step, serving_model
from test_agents import run
from test_hinted_search import searching

from smart_mcp_proxy.greeting.seen_clients import find_client

LISTED = "work__count"
LOOK = Step("describe_tool", {"names": ["work:count"]}, until="Count slowly")
SCRIPT = (
    Step("retrieve_tools", {"query": "count slowly up to a number"}, until="work:count"),
    Step(LISTED, {"to": 3}, until="counted to 3", meanwhile=LOOK),
)
MODERN = {"claude-code"}
"""Those that speak 2026-07-28 where they are offered it."""


def sessions(front: Front) -> list[dict[str, Any]]:
    """The clients of the activity log, the newest first."""
    command = [sys.executable, "-m", "smart_mcp_proxy", "activity", "list", "--kind", "session", "--json"]
    done = subprocess.run(command, env=front.env, capture_output=True, text=True, timeout=60, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def is_offered(model: ScriptedModel) -> bool:
    """Whether the model was offered the tool under its listed name."""
    return any(name.endswith(LISTED) for turn in model.turns for name in turn.tools)


def marks(program: Program, routing: str) -> Any:
    return pytest.mark.clients if program.name in IN_CI and routing == "DYNAMIC" else pytest.mark.soak


@pytest.mark.parametrize(
    ("program", "routing"),
    [
        pytest.param(program, routing, marks=marks(program, routing), id=f"{program}-{routing}")
        for program in PROGRAMS
        if program.name != "qwen-code"  # its guard against loops ends a script that looks again and again
        for routing in ("DYNAMIC", "AUTO", "CALL_TOOL")
    ],
)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_agent_takes_up_what_a_search_registered(
    program: Program, routing: str, transport: str, tmp_path: Path
) -> None:
    """Over stdio each holds a session; one that heeds changes calls the tool by its listed name, others go on.

    Claude Code does so with its own search switched on, which hides other servers' tools from its model.
    """
    if program.name == "claude-code":
        program = replace(program, prepare=searching)
    home = tmp_path / "home"
    home.mkdir()
    with fronted(transport, tmp_path, ROUTING_TYPE=routing) as front:
        with serving_model(SCRIPT) as model:
            printed = run(program, home, front, model)
        newest = sessions(front)[0]
    seen = find_client(newest["subject"])
    assert seen is not None, newest
    assert seen.version == program.package.rpartition("@")[2]
    is_modern = program.name in MODERN and (transport == "http" or routing == "CALL_TOOL")
    is_growing = routing == "DYNAMIC" or (routing == "AUTO" and seen.heeds_changes)
    assert ("route" in newest["detail"]) is not is_modern  # a client without a session has none
    if not is_modern:
        assert newest["detail"]["route"] == ("DYNAMIC" if is_growing else "CALL_TOOL")
    print(f"{routing:<9} {transport:<5} {program!s:<11} {'session' if not is_modern else '2026-07-28'}", end=" ")
    print("registered and called" if is_offered(model) else "not listed")
    assert is_offered(model) is (is_growing and seen.heeds_changes and not is_modern), printed[-2_000:]
    if is_offered(model):
        assert "counted to 3" in model.turns[-1].results[-1]
    else:
        answer = model.turns[1].results[0]
        assert ("The toolset lists these tools at its url." in answer) is (is_modern and routing != "CALL_TOOL")
