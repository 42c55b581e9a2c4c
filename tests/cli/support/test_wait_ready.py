"""Waiting for servers: those who wait are told for which one, and how long."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from smart_mcp_proxy.cli.support import wait_ready
from smart_mcp_proxy.cli.support.wait_ready import longest_start_s, settle
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerConfig, ServerLimits

pytestmark = pytest.mark.anyio


class FakeGateway:
    """One server that starts, and is listed after so many looks."""

    def __init__(self, looks: int) -> None:
        self.base = SimpleNamespace(changes=SimpleNamespace(wait=self._never))
        self._looks = looks

    async def _never(self) -> Any:
        await asyncio.Event().wait()

    def is_settled(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def status(self) -> Any:
        error = "It has not answered yet, 6 s after its start (at most 300 s). It last wrote: fetching"
        return SimpleNamespace(servers=[ServerStatus("slow", "stdio", ServerState.CONNECTING, error)])


@pytest.mark.parametrize("has_lines", [True, False])
async def test_off_a_terminal_a_line_says_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_lines: bool
) -> None:
    """Not where a gateway serves meanwhile: its log is no place for it."""
    monkeypatch.setattr(wait_ready, "_SAY_S", 0.001)
    gateway: Any = FakeGateway(looks=3)
    assert await settle(gateway, 330, lambda gateway: False, has_lines=has_lines)
    line = (
        "Waiting for slow (at most 330 s). slow: It has not answered yet, 6 s after its start (at most 300 s). "
        "It last wrote: fetching\n"
    )
    told = capsys.readouterr()
    assert told.out == ""
    assert (line in told.err) == has_lines
    assert bool(told.err) == has_lines


async def test_a_check_waits_until_each_server_has_answered_or_failed() -> None:
    """Those that are off are not waited for."""

    def server(init_s: float, **changes: Any) -> ServerConfig:
        return ServerConfig(name="s", transport="stdio", limits=ServerLimits(init_s=init_s), **changes)

    assert longest_start_s([server(300), server(20), server(900, disabled=True)]) == 330
    assert longest_start_s([]) == wait_ready.SETTLE_S
