"""Serving one client of a pipe, in the era that its first real request chooses.

The SDK takes a connection's first request for the choice, whatever it is. Clients that do not know the server's era
send `server/discover` to find out and may then, having waited for too long, begin with `initialize` all the same.
"""

import contextvars
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types
from anyio.abc import TaskGroup
from fastmcp import FastMCP
from mcp.server.lowlevel.server import Server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

__all__ = ["serve_streams"]


async def serve_streams(server: FastMCP, read_stream: Any, write_stream: Any) -> None:
    """Serves one client, of either era, over a pair of message streams until the read side ends."""
    low = server._mcp_server
    async with server._lifespan_manager(), anyio.create_task_group() as group:
        undecided: Any = _Undecided(low, read_stream, write_stream, group)
        await low.run(undecided, write_stream, low.create_initialization_options())
        group.cancel_scope.cancel()


class _Undecided:
    """Buffers a client's messages until one decides the era; others are answered aside.

    Args:
        low: Answers.
        source: The client's messages.
        sink: Takes the answers.
        group: Serves as long as the client is there.
    """

    def __init__(self, low: Server[Any], source: Any, sink: Any, group: TaskGroup) -> None:
        self._low = low
        self._source = source
        self._sink = sink
        self._group = group
        self._aside: Any = None
        self._is_decided = False

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context in which the last message was sent; the SDK handles it in that one."""
        context: contextvars.Context | None = self._source.last_context
        return context

    async def receive(self) -> Any:
        """The next message that is not answered aside."""
        while True:
            item = await self._source.receive()
            if self._is_decided:
                return item
            request = item.message if isinstance(item, SessionMessage) else None
            if not isinstance(request, mcp_types.JSONRPCRequest):
                return item
            meta = (request.params or {}).get("_meta")
            is_enveloped = isinstance(meta, Mapping) and mcp_types.PROTOCOL_VERSION_META_KEY in meta
            if request.method == "server/discover" and is_enveloped:
                await self._probe(item)
            elif request.method == "ping" and not is_enveloped:
                pong = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
                await self._sink.send(SessionMessage(pong))
            else:
                self._is_decided = True
                return item

    async def _probe(self, item: SessionMessage) -> None:
        """Has a connection of its own answer: in the modern era nothing is kept from one request to the next."""
        if self._aside is None:
            self._aside, reads = create_context_streams[SessionMessage | Exception](0)
            options = self._low.create_initialization_options()
            self._group.start_soon(self._low.run, reads, self._sink.clone(), options)
        await self._aside.send(item)

    def __aiter__(self) -> "_Undecided":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """No more is read."""
        await self._source.aclose()
        if self._aside is not None:
            await self._aside.aclose()
