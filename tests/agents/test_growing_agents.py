"""Real coding agents under DYNAMIC routing: who offers its model what a search registers, as `SEEN_CLIENTS` says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import Front
from programs import IN_CI, PROGRAMS, Program
from scripted_model import ScriptedModel, Step, serving_model
from test_agents import run

from smart_mcp_proxy.greeting.seen_clients import find_client

LISTED = "work__count"
LOOK = Step("describe_tool", {"names": ["work:count"]}, until="Count slowly")
"""An agent asks for its list beside its model's turns: it is given some."""
SCRIPT = (
    Step("retrieve_tools", {"query": "count slowly up to a number"}, until="work:count"),
    *([LOOK] * 4),
    Step(LISTED, {"to": 3}, until="counted to 3"),
)
MODERN_OVER_HTTP = {"claude-code"}


def sessions(front: Front) -> list[dict[str, Any]]:
    """The clients of the activity log, the newest first."""
    command = [sys.executable, "-m", "smart_mcp_proxy", "activity", "list", "--kind", "session", "--json"]
    done = subprocess.run(command, env=front.env, capture_output=True, text=True, timeout=60, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def is_offered(model: ScriptedModel) -> bool:
    """Whether the model was offered the tool under its listed name."""
    return any(name.endswith(LISTED) for turn in model.turns for name in turn.tools)


@pytest.mark.parametrize(
    "program",
    [pytest.param(each, marks=pytest.mark.clients if each.name in IN_CI else pytest.mark.soak) for each in PROGRAMS],
    ids=repr,
)
def test_an_agent_takes_up_what_a_search_registered(program: Program, growing: Front, tmp_path: Path) -> None:
    """Over stdio each holds a session; one that heeds changes calls the tool by its listed name, others go on."""
    for turn in ("first", "second"):  # at the second start the first answers are there at once
        home = tmp_path / turn
        home.mkdir()
        with serving_model(SCRIPT) as model:
            printed = run(program, home, growing, model)
    newest = sessions(growing)[0]
    seen = find_client(newest["subject"])
    assert seen is not None, newest
    assert seen.version == program.package.rpartition("@")[2]
    is_modern = growing.target.url is not None and program.name in MODERN_OVER_HTTP
    assert ("route" in newest["detail"]) is not is_modern  # a client without a session has none
    assert is_offered(model) is (seen.heeds_changes and not is_modern), printed[-2_000:]
    if is_offered(model):
        assert "counted to 3" in model.turns[-1].results[-1]
    else:
        answer = model.turns[1].results[0]
        assert ("The toolset lists these tools at its url." in answer) is is_modern
