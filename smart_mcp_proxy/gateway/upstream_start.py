"""Start of the upstream servers, once the first client has its answer."""

import asyncio
from collections.abc import Awaitable, Callable

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import get_logger

START_DELAY_S = 0.3
"""Upstreams start when the first client has been answered, or after this time.

Source: docs/design/processes.md#starting"""
ANSWER_S = 0.05
"""Time that the first answer gets to leave: its handler reports it before it is written."""

log = get_logger("gateway")


class UpstreamStart:
    """Decides when the upstreams start; whoever wants them earlier says so."""

    def __init__(self) -> None:
        self._may_start = asyncio.Event()

    def __repr__(self) -> str:
        return f"<UpstreamStart {'due' if self._may_start.is_set() else 'waiting'}>"

    def now(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self._may_start.set()

    def soon(self) -> None:
        """Lets them start once the answer that is being made has left."""
        asyncio.get_running_loop().call_later(ANSWER_S, self.now)

    async def run(self, start: Callable[[], Awaitable[None]], forget_unused: Callable[[], Awaitable[None]]) -> None:
        """Wait for a first client, for a moment, then start."""
        try:
            await asyncio.wait_for(self._may_start.wait(), START_DELAY_S)
        except TimeoutError:
            log.debug("no client within %.1f s; starting upstreams", START_DELAY_S)
        await start()
        try:
            await forget_unused()
        except CatalogError as exc:
            log.warning("tools of servers that are no longer configured stay in the catalog: %s", exc)
