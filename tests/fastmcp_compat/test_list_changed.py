"""Announcing that the list changed: who hears it, and who cannot hold it up."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp.server.connection import Connection

from smart_mcp_proxy.fastmcp_compat import list_changed
from smart_mcp_proxy.fastmcp_compat.list_changed import ListChangedHub

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


async def test_every_client_that_is_ready_hears_it_once() -> None:
    """One that has not finished its greeting will ask for the list anyway; one that left is not looked for."""
    hub = ListChangedHub(is_announcing=True)
    ready, early, gone = Outbound(), Outbound(), Outbound()
    leaving = connected(gone)
    for connection in (connected(ready), connected(early, is_initialized=False), leaving):
        hub.add(connection)
    await leaving.exit_stack.aclose()
    await hub.announce()
    assert (ready.methods, early.methods, gone.methods) == (["notifications/tools/list_changed"], [], [])


async def test_a_client_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It misses the announcement; the others have it."""
    monkeypatch.setattr(list_changed, "SEND_S", 0.01)
    hub = ListChangedHub(is_announcing=True)
    stuck, ready = Outbound(is_stuck=True), Outbound()
    hub.add(connected(stuck))
    hub.add(connected(ready))
    with anyio.fail_after(5):
        await hub.announce()
    assert (stuck.methods, ready.methods) == ([], ["notifications/tools/list_changed"])
