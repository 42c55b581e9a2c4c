"""A server that ends again and again costs little, in the log too."""

import asyncio
import logging
import os
import random
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era, ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, Upstream, supervisor
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession

pytestmark = pytest.mark.anyio

TRIES = 20


class Hasty(random.Random):
    """Spreads pauses over next to nothing."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0005


@asynccontextmanager
async def kept(config: ServerConfig, open_session: Any) -> AsyncIterator[asyncio.Event]:
    """A supervisor in a hurry, and an event that is set once the server was tried often enough."""
    failures, often = 0, asyncio.Event()

    def changed(status: ServerStatus) -> None:
        nonlocal failures
        failures += status.state is ServerState.ERROR
        if failures >= TRIES:
            often.set()

    upstream = Upstream(
        config,
        environ=dict(os.environ),
        on_change=changed,
        on_tools_changed=lambda _: None,
        open_session=open_session,
        start_gate=asyncio.Semaphore(1),
        rng=Hasty(),
    )
    await upstream.start()
    try:
        yield often
    finally:
        await upstream.stop()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the gateway wrote into a log of the usual level."""
    ours = (record for record in caplog.records if record.name.startswith("mcpproxy"))
    return [record.getMessage() for record in ours if record.levelno >= logging.INFO]


@pytest.mark.long  # starts programs, a second of it
async def test_a_program_that_ends_at_once_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """F12: however often it is started."""
    config = ServerConfig("ends", "stdio", command=sys.executable, args=("-S", "-c", "raise SystemExit(0)"))
    with caplog.at_level(logging.INFO):
        async with Connector() as dialer, kept(config, dialer) as often:
            with anyio.fail_after(20):
                await often.wait()
    assert len(lines(caplog)) <= 2, lines(caplog)


class Brief:
    """A session that ends as soon as it is there."""

    era: Era = "modern"
    protocol_version = "2026-07-28"
    capabilities: Mapping[str, Any] = {}
    server_info = run = ""

    async def wait_closed(self) -> UpstreamError:
        return UpstreamError("Server 'brief' ended.")

    async def close(self) -> None:
        pass


async def test_a_server_that_connects_and_ends_is_a_line_for_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """F12: it was there, so its end is news; the pauses between grow to a minute."""

    async def open_brief(config: ServerConfig, **options: Any) -> UpstreamSession:
        brief: Any = Brief()
        return brief  # type: ignore[no-any-return]  # as much of a session as is needed

    with caplog.at_level(logging.INFO):
        async with kept(ServerConfig("brief", "http", url="http://127.0.0.1:9/mcp"), open_brief) as often:
            with anyio.fail_after(20):
                await often.wait()
    assert len(lines(caplog)) <= TRIES + 1, lines(caplog)


async def test_a_loss_and_the_failed_try_right_after_it_are_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server that goes and comes back would be asked after ever longer pauses, however well it worked."""
    pauses_after: list[int] = []
    now_s, is_there, lost = 0.0, True, asyncio.Event()

    def note_pause(failures: int, rng: random.Random) -> float:
        pauses_after.append(failures)
        return 1.0

    class Breakable(Brief):
        async def wait_closed(self) -> UpstreamError:
            await lost.wait()
            lost.clear()
            return UpstreamError("Server 'brief' broke the connection.")

    async def open_breakable(config: ServerConfig, **options: Any) -> UpstreamSession:
        if not is_there:
            raise UpstreamError("Server 'brief' cannot be reached.")
        session: Any = Breakable()
        return session  # type: ignore[no-any-return]  # as much of a session as is needed

    monkeypatch.setattr(supervisor, "backoff_s", note_pause)
    upstream = Upstream(
        ServerConfig("brief", "sse", url="http://127.0.0.1:9/sse"),
        environ={},
        on_change=lambda _: None,
        on_tools_changed=lambda _: None,
        open_session=open_breakable,
        start_gate=asyncio.Semaphore(1),
        clock=lambda: now_s,
    )
    await upstream.start()
    for _ in range(3):
        assert await upstream.ready(5)
        now_s += 5
        is_there = False
        lost.set()
        with anyio.fail_after(5):
            while upstream.status.state is ServerState.READY:
                await asyncio.sleep(0)
        assert not await upstream.ready(5), "it was tried at once, in vain"
        is_there = True
        upstream.retry()
        with anyio.fail_after(5):
            while upstream.status.state is not ServerState.READY:
                await asyncio.sleep(0)
    await upstream.stop()
    assert pauses_after == [1] * 6
