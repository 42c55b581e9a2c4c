"""Serving one client of a pipe, in the era that its first real request chooses.

The SDK takes a connection's first request for the choice, whatever it is. Clients that do not know the server's era
send `server/discover` to find out and may then, having waited for too long, begin with `initialize` all the same.
"""

import contextvars
import logging
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types
from anyio.abc import TaskGroup
from fastmcp import FastMCP
from mcp.server.lowlevel.server import Server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

from smart_mcp_proxy.fastmcp_compat.endings import free_ended_connections
from smart_mcp_proxy.greeting.eras import EVERY_ERA, StdioEras, client_name
from smart_mcp_proxy.telemetry import get_logger

NAME_CHARS = 100
"""Of what a client calls itself."""
log = get_logger("stdio")


async def serve_streams(server: FastMCP, read_stream: Any, write_stream: Any, eras: StdioEras = EVERY_ERA) -> None:
    """Serve one client over a pair of message streams until the read side ends.

    Args:
        server: Answers.
        read_stream: The client's messages.
        write_stream: Takes the answers.
        eras: Which clients are offered the modern era.
    """
    free_ended_connections()
    low = server._mcp_server
    async with server._lifespan_manager(), anyio.create_task_group() as group:
        undecided: Any = _Undecided(low, read_stream, write_stream, group, eras)
        await low.run(undecided, write_stream, low.create_initialization_options())
        group.cancel_scope.cancel()


class _Undecided:
    """Buffers a client's messages until one decides the era; others are answered aside.

    Args:
        low: Answers.
        source: The client's messages.
        sink: Takes the answers.
        group: Serves as long as the client is there.
        eras: Which clients are offered the modern era.
    """

    def __init__(self, low: Server[Any], source: Any, sink: Any, group: TaskGroup, eras: StdioEras) -> None:
        self._low = low
        self._source = source
        self._sink = sink
        self._group = group
        self._eras = eras
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
            if (is_enveloped or request.method == "server/discover") and not self._is_offered(request):
                error = mcp_types.ErrorData(**self._eras.refuse(request.method, request.params))
                reply = mcp_types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
                await self._sink.send(SessionMessage(reply))
            elif request.method == "server/discover" and is_enveloped:
                await self._probe(item)
            elif request.method == "ping" and not is_enveloped:
                pong = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
                await self._sink.send(SessionMessage(pong))
            else:
                self._is_decided = True
                return item

    def _is_offered(self, request: mcp_types.JSONRPCRequest) -> bool:
        name = client_name(request.params)
        if self._eras.offers_modern(name):
            return True
        words = "%s came in 2026-07-28 from %r, which is not offered on stdio under %s"
        level = logging.DEBUG if request.method == "server/discover" else logging.WARNING  # a probe goes on otherwise
        log.log(level, words, request.method[:NAME_CHARS], name[:NAME_CHARS], self._eras.cause)
        return False

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
