"""Real coding agents at the same time, each of which starts the gateway as `connect` has written it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from front import fronted
from own_command import mcpproxy_in, stop_gateways
from programs import IN_CI, PROGRAMS, Program
from scripted_model import serving_model
from test_agents import SCRIPT, run
from test_growing_agents import sessions

NAMES = {
    "codex": "codex-mcp-client",
    "gemini-cli": "gemini-cli-mcp-client",
    "qwen-code": "qwen-cli-mcp-client-mcpproxy",
    "continue": "continue-cli-client",
}
"""As each calls itself, where that is another name."""


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param([each for each in PROGRAMS if each.name in IN_CI], marks=pytest.mark.clients, id="ci"),
        pytest.param(list(PROGRAMS), marks=pytest.mark.soak, id="all"),
    ],
)
def test_agents_at_the_same_time_share_one_gateway(programs: list[Program], tmp_path: Path) -> None:
    """Each finishes its call; there is one gateway, which has started the server once, and knows each by its name."""
    with fronted("stdio", tmp_path, KEEP_ALIVE="60") as front:

        def work(program: Program) -> str:
            home = tmp_path / program.name
            home.mkdir()
            with serving_model(SCRIPT) as model:
                printed = run(program, home, front, model)
                return "".join(model.turns[-1].results) + printed

        try:
            with ThreadPoolExecutor(len(programs)) as pool:
                results = list(pool.map(work, programs))
            (status,) = mcpproxy_in(tmp_path, tmp_path, front.env, "status")["gateways"]
            seen = {session["subject"] for session in sessions(front)}
        finally:
            stopped = stop_gateways(front.env)
    for result in results:
        assert "counted to 3" in result, result[-3_000:]
    assert stopped == [status["pid"]]
    assert [server["restarts"] for server in status["servers"]] == [0]
    assert {NAMES.get(each.name, each.name) for each in programs} <= seen
    assert len(json.loads(f"[{','.join(front.notes.read_text().splitlines())}]")) == len(programs)
