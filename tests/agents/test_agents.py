"""Every coding agent with the file that it documents, for the table of clients; CI has test_connected_agents.py."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from front import Front
from node_tools import node_environment, npm_program
from programs import PROGRAMS, QUIET, Program
from scripted_model import DONE, ScriptedModel, Step, serving_model
from seen_clients import era_of_newest, note

LIMIT_S = 150
OWN_TOOLS = ("retrieve_tools", "describe_tool", "call_tool_read", "call_tool_write", "call_tool_destructive")
SCRIPT = (
    Step("retrieve_tools", {"query": "count slowly up to a number"}, until="work:count"),
    Step("call_tool_read", {"name": "work:count", "args": {"to": 3}}, until="counted to 3"),
)
SENDS_TOKENS = {"claude-code", "opencode"}
"""Agents that ask for progress with every call."""


def run(program: Program, home: Path, front: Front, model: ScriptedModel) -> str:
    """What the agent printed; the whole process group is ended if it does not end by itself."""
    executable = npm_program(program.package, program.executable)
    arguments, variables = program.prepare(home, model.url, front.target)
    path = f"{node_environment()['PATH']}"
    environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **QUIET, **variables}
    with subprocess.Popen(
        [executable, *arguments],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            pytest.fail(f"{program} did not end within {LIMIT_S} s: {printed[-2_000:]}")
    assert process.returncode == 0, printed[-3_000:]
    return printed


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_an_agent_searches_calls_and_finishes(
    program: Program, front: Front, tmp_path: Path, record_property: Any
) -> None:
    """Its model is offered our tools from the first turn, and gets the answers of both calls."""
    transport = "stdio" if front.target.url is None else "http"
    note(record_property, program.name, program.package.rpartition("@")[2], transport)
    home = tmp_path / "home"
    home.mkdir()
    with serving_model(SCRIPT) as model:
        printed = run(program, home, front, model)
    record_property("era", era_of_newest(front.env))
    first, last = model.turns[0], model.turns[-1]
    for tool in OWN_TOOLS:
        assert any(name.endswith(tool) for name in first.tools), (tool, first.tools)
    assert "counted to 3" in last.results[-1], (last, printed[-2_000:])
    assert DONE in printed
    sent = [json.loads(line) for line in front.notes.read_text("utf-8").splitlines()]
    assert [call["to"] for call in sent] == [3]
    if program.name in SENDS_TOKENS:
        assert sent[0]["has_token"]
