"""Real coding agents that `mcpproxy connect` has pointed at the gateway, and `disconnect` takes it away from again.

Each has a scripted model: it searches, calls a tool that reports progress, and finishes.
"""

import json
import subprocess
from pathlib import Path

import pytest
from front import Front
from node_tools import node_environment, npm_program
from own_command import mcpproxy_in, stop_gateways
from programs import IN_CI, PROGRAMS, QUIET, Program
from scripted_model import DONE, Step, serving_model

LIMIT_S = 150
SCRIPT = (
    Step("retrieve_tools", {"query": "count slowly up to a number"}, until="work:count"),
    Step("call_tool_read", {"name": "work:count", "args": {"to": 3}}, until="counted to 3"),
)
OWN_TOOLS = ("retrieve_tools", "describe_tool", "call_tool_read", "call_tool_write", "call_tool_destructive")
SENDS_TOKENS = {"claude-code", "opencode"}
"""Agents that ask for progress with every call."""
NAMES = {"gemini-cli": "gemini", "qwen-code": "qwen"}
"""On our command line, where it is another one."""
FILES = {
    "claude-code": ".claude.json",
    "codex": ".codex/config.toml",
    "gemini-cli": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "qwen-code": ".qwen/settings.json",
    "continue": ".continue/config.yaml",
}


def forget_servers(program: Program, home: Path) -> Path:
    """Leaves the agent's file with its other settings alone; returns its path."""
    file = home / FILES[program.name]
    if program.name == "claude-code":
        (home / "mcp.json").unlink()
        file.write_text('{\n  "hasCompletedOnboarding": true\n}\n')
    elif program.name == "codex":
        file.write_text(file.read_text().partition("[mcp_servers.gw]")[0])
    elif program.name == "continue":
        file.write_text("# mine\n" + file.read_text().partition("mcpServers:")[0])
    else:
        settings = json.loads(file.read_text())
        del settings["mcp" if program.name == "opencode" else "mcpServers"]
        file.write_text("// mine\n" + json.dumps(settings, indent=2) + "\n")
    return file


def without_servers(arguments: list[str]) -> list[str]:
    """Claude Code's words without the file that names them."""
    kept = [word for word in arguments if word != "--strict-mcp-config"]
    if "--mcp-config" in kept:
        at = kept.index("--mcp-config")
        del kept[at : at + 2]
    return ["mcp__mcpproxy" if word == "mcp__gw" else word for word in kept]


def mcpproxy(home: Path, front: Front, *words: str) -> list[dict[str, object]]:
    return mcpproxy_in(home, home, front.env, *words)


@pytest.mark.parametrize(
    "program",
    [pytest.param(each, marks=pytest.mark.clients if each.name in IN_CI else pytest.mark.soak) for each in PROGRAMS],
    ids=repr,
)
def test_a_connected_agent_finishes_a_call_and_gets_its_file_back(
    program: Program, front: Front, tmp_path: Path
) -> None:
    """Its model is offered our tools from the first turn, and gets the answers of both calls.

    The file has every byte it had, unless the agent itself wrote there meanwhile: then all but our entry.
    """
    home = tmp_path / "home"
    home.mkdir()
    name = NAMES.get(program.name, program.name)
    where = ("--url", front.target.url) if front.target.url else ("--stdio",)
    with serving_model(SCRIPT) as model:
        arguments, variables = program.prepare(home, model.url, front.target)
        file = forget_servers(program, home)
        before = file.read_bytes()
        (connected,) = mcpproxy(home, front, "connect", name, *where, "--write")
        assert (connected["status"], connected["path"]) == ("changed", str(file))
        written = file.read_bytes()
        environment = {"PATH": node_environment()["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
        done = subprocess.run(
            [npm_program(program.package, program.executable), *without_servers(arguments)],
            cwd=home,
            env={**environment, **QUIET, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    stop_gateways(front.env)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3_000:]
    assert DONE in done.stdout and "counted to 3" in model.turns[-1].results[-1]
    for tool in OWN_TOOLS:
        assert any(name.endswith(tool) for name in model.turns[0].tools), (tool, model.turns[0].tools)
    sent = [json.loads(line) for line in front.notes.read_text("utf-8").splitlines()]
    assert [call["to"] for call in sent] == [3]
    if program.name in SENDS_TOKENS:
        assert sent[0]["has_token"]
    is_as_written = file.read_bytes() == written
    (gone,) = mcpproxy(home, front, "disconnect", name)
    if is_as_written:
        assert gone["status"] == "restored" and file.read_bytes() == before
    else:
        assert gone["status"] == "removed" and "mcpproxy serve" not in file.read_text()
        assert '"mcpproxy": {' not in file.read_text()
