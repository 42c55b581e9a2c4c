"""Links to misbehaving servers, closed at the end of each test."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.upstream import Connector
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.session import SessionEvent
from smart_mcp_proxy.upstream.stdio.stdio import StdioSession, open_stdio

OpenFake = Callable[..., Awaitable[StdioSession]]


@pytest.fixture
def events() -> list[SessionEvent]:
    """What the session reported."""
    return []


@pytest.fixture
async def dialer() -> AsyncIterator[Connector]:
    """Opens sessions; its watchdog ends with the test."""
    async with Connector() as opened:
        yield opened


@pytest.fixture
async def open_fake(events: list[SessionEvent]) -> AsyncIterator[OpenFake]:
    """Opens links to the raw server, closed at the end of the test."""
    links: list[StdioSession] = []

    async def open_one(
        mode: str = "handshake", *, limit: int = 16 << 20, era: Any = None, **changes: Any
    ) -> StdioSession:
        config, environ = fake_config(mode, **changes), dict(os.environ)
        session = await open_stdio(SessionOptions(config, events.append, era, environ=environ, max_message_bytes=limit))
        links.append(session)
        return session

    yield open_one
    for session in links:
        await session.close()
