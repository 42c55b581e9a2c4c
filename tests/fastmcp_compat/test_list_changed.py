"""Announcing that the list changed: who hears it, and who cannot hold it up."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp.server.connection import Connection

from smart_mcp_proxy.fastmcp_compat import list_changed
from smart_mcp_proxy.fastmcp_compat.list_changed import tell

pytestmark = pytest.mark.anyio


class Outbound:
    """A client's channel: keeps what it is sent, or never takes it."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.methods: list[str] = []
        self._is_stuck = is_stuck

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        if self._is_stuck:
            await asyncio.Event().wait()
        self.methods.append(method)


def connected(outbound: Outbound, *, is_initialized: bool = True) -> Connection:
    """A handshake-era client."""
    channel: Any = outbound
    connection = Connection.for_loop(channel)
    if is_initialized:
        connection.initialized.set()
    return connection


@pytest.mark.parametrize(("is_initialized", "heard"), [(True, ["notifications/tools/list_changed"]), (False, [])])
async def test_a_client_that_is_ready_hears_it(is_initialized: bool, heard: list[str]) -> None:
    """One that has not finished its greeting will ask for the list anyway."""
    outbound = Outbound()
    await tell(connected(outbound, is_initialized=is_initialized))
    assert outbound.methods == heard


async def test_a_client_that_does_not_read_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It misses the announcement; nobody waits for it."""
    monkeypatch.setattr(list_changed, "SEND_S", 0.01)
    outbound = Outbound(is_stuck=True)
    with anyio.fail_after(20):
        await tell(connected(outbound))
    assert outbound.methods == []
