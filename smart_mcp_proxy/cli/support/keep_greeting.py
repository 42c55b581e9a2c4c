"""Keeps the answers to a connecting client for the next start with the same settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread

from smart_mcp_proxy.cli.support.wait_ready import SETTLE_S
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.rehearsal import Rehearsal
from smart_mcp_proxy.greeting.record import GreetingRecord
from smart_mcp_proxy.telemetry import spawn


@asynccontextmanager
async def save_greeting(
    gateway: Gateway, record: GreetingRecord | None, passthrough: str | None, profile: str | None
) -> AsyncIterator[None]:
    """Keeps it while open: once the stored catalog is there, once the servers are, and at the end.

    Args:
        gateway: Open.
        record: Where it is kept; None where it is not.
        passthrough: The one server whose tools the client sees, instead of the gateway's.
        profile: The one profile that it sees.
    """
    if record is None:
        yield
        return
    rehearsal = Rehearsal(gateway, is_whole=passthrough is None and profile is None)

    keeping = asyncio.Lock()

    async def keep() -> None:
        async with keeping:
            await to_thread.run_sync(record.save, await rehearsal.answers(), rehearsal.name, gateway.stdio_eras)

    async def follow() -> None:
        await gateway.lists.index_sync.loaded.wait()
        await keep()
        await gateway.wait_settled(SETTLE_S)
        await keep()

    following = spawn(follow(), "greeting")
    try:
        yield
    finally:
        async with keeping:  # a rehearsal that is cut short would be an error in the log
            following.cancel()
        await asyncio.wait([following])
        await keep()
