"""Telling clients that the tool list is another one: the one place that announces, for both eras.

A modern client hears it on a `subscriptions/listen` stream it has opened, a client of the
handshake era on its pipe, or on the stream that it keeps open with a GET.
"""

from typing import Any

import anyio
import mcp_types
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

__all__ = ["ListChangedHub"]

SEND_S = 5.0
"""A client that does not read for this long misses the announcement; it holds up nobody else."""


class ListChangedHub:
    """The clients of one gateway that want to know when the list changes.

    Args:
        is_announcing: Whether the list can change at all; clients are told so. `subscriptions/listen` is answered
            either way.
    """

    def __init__(self, *, is_announcing: bool) -> None:
        self.is_announcing = is_announcing
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._connections: set[Connection] = set()

    def serve(self, server: Server[Any]) -> None:
        """Makes `server` answer `subscriptions/listen`."""
        server.add_request_handler("subscriptions/listen", mcp_types.SubscriptionsListenRequestParams, self._listen)

    def add(self, connection: Connection) -> None:
        """Announces to this client of the handshake era for as long as it is connected."""
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def announce(self) -> None:
        """Tells every client once."""
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as group:
            for connection in self._connections:
                if connection.initialized.is_set():
                    group.start_soon(_tell, connection)

    def close(self) -> None:
        """Ends all subscriptions in good order."""
        self._listen.close()


async def _tell(connection: Connection) -> None:
    with anyio.move_on_after(SEND_S):
        await connection.send_tool_list_changed()
