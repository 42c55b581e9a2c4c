"""Links to misbehaving servers, closed at the end of each test."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.upstream.opening import Opening
from smart_mcp_proxy.upstream.protocol.session import LinkEvent
from smart_mcp_proxy.upstream.stdio.stdio import StdioLink, open_stdio

OpenFake = Callable[..., Awaitable[StdioLink]]


@pytest.fixture
def events() -> list[LinkEvent]:
    """What the link reported."""
    return []


@pytest.fixture
async def open_fake(events: list[LinkEvent]) -> AsyncIterator[OpenFake]:
    """Opens links to the raw server, closed at the end of the test."""
    links: list[StdioLink] = []

    async def open_one(mode: str = "handshake", *, limit: int = 16 << 20, era: Any = None, **changes: Any) -> StdioLink:
        config, environ = fake_config(mode, **changes), dict(os.environ)
        link = await open_stdio(Opening(config, events.append, era, environ=environ, max_message_bytes=limit))
        links.append(link)
        return link

    yield open_one
    for link in links:
        await link.close()
