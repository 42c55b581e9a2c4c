"""A client that leaves before its answer: noticed while a request is under way."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from smart_mcp_proxy.telemetry import spawn

WATCH_AFTER_S = 0.05
"""A call that is quicker than this has no time to be abandoned."""


class Abandonment:
    """While open, cancels the request when the client closes the connection.

    Args:
        receive: Whose body has been read: what else can come is that the client leaves.
        cancel: Called once when it has.

    Closing the response stream is the cancellation of the request.

    Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
    """

    def __init__(self, receive: Receive, cancel: Callable[[], object]) -> None:
        self._receive = receive
        self._cancel = cancel
        self._watch: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _start(self) -> None:
        self._watch = spawn(self._wait(), "wire disconnect")

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()
