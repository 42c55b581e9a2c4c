"""Telling clients that the tool list is another one: the one place that announces, for both eras.

A modern client hears it on a `subscriptions/listen` stream it has opened, a client of the handshake era on its pipe,
or on the stream that it keeps open with a GET.
"""

from collections.abc import Callable
from typing import Any

import anyio
import mcp_types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from smart_mcp_proxy.fastmcp_compat.paths import principal, served_path

__all__ = ["ListChangedHub", "tell"]

SEND_S = 5.0
"""A client that does not read for this long misses the announcement; it holds up nobody else."""


class ListChangedHub:
    """The modern clients of one gateway that want to know when the list at their path changes.

    Args:
        is_announcing: Whether a list can change at all; clients are told so. `subscriptions/listen` is answered
            either way.
        on_listen: Told of a path, and of the principal of the first who listens there.
        on_leave: Told of a path where nobody listens any more.
    """

    def __init__(
        self, *, is_announcing: bool, on_listen: Callable[[str, str], None], on_leave: Callable[[str], None]
    ) -> None:
        self.is_announcing = is_announcing
        self._on_listen = on_listen
        self._on_leave = on_leave
        self._listeners: dict[str, _Listeners] = {}

    def serve(self, server: Server[Any]) -> None:
        """Makes `server` answer `subscriptions/listen`."""
        server.add_request_handler("subscriptions/listen", mcp_types.SubscriptionsListenRequestParams, self._listen)

    async def announce(self, path: str) -> None:
        """Tells every client that listens at `path` once."""
        if (listeners := self._listeners.get(path)) is not None:
            await listeners.bus.publish(ToolsListChanged())

    def close(self) -> None:
        """Ends all subscriptions in good order."""
        for listeners in self._listeners.values():
            listeners.handler.close()

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        path = served_path()
        listeners = self._listeners.get(path)
        if listeners is None:
            self._on_listen(path, principal())
            listeners = self._listeners[path] = _Listeners()
        listeners.count += 1
        try:
            return await listeners.handler(ctx, params)
        finally:
            listeners.count -= 1
            if not listeners.count:
                del self._listeners[path]
                self._on_leave(path)


class _Listeners:
    """Those at one path."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.count = 0


async def tell(connection: Connection) -> None:
    """Tells one client of the handshake era that its list is another one."""
    if connection.initialized.is_set():
        with anyio.move_on_after(SEND_S):
            await connection.send_tool_list_changed()
