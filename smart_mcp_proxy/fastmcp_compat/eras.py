"""Serving one client of a pipe, in the era that its first real request chooses.

The SDK takes a connection's first request for the choice, whatever it is. Clients that do not know the server's era
send `server/discover` to find out and may then, having waited for too long, begin with `initialize` all the same.

Private names used: the SDK's `_serve_legacy_stream` and `_serve_modern_stream`, which its `Server.run` calls behind a
task and a stream that hold what decides the era.
"""

import contextvars
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import anyio
import mcp_types
from anyio.abc import AsyncResource
from mcp.server.runner import _serve_legacy_stream, _serve_modern_stream
from mcp.shared.message import SessionMessage

from smart_mcp_proxy.fastmcp_compat.server import NAME_CHARS, AgentServer
from smart_mcp_proxy.greeting.eras import EVERY_ERA, StdioEras, client_name
from smart_mcp_proxy.telemetry import get_logger

log = get_logger("stdio")


async def serve_streams(server: AgentServer, source: Any, sink: Any, eras: StdioEras = EVERY_ERA) -> None:
    """Serve one client of a pipe until its stream ends.

    Args:
        server: Serves any number at a time.
        source: The client's messages.
        sink: Takes the answers.
        eras: Which of them it is offered.
    """
    stream = _Undecided(server, source, sink, eras)
    try:
        if (is_modern := await stream.decide()) is not None:
            handshake = partial(_serve_legacy_stream, session_id=None, init_options=None)
            serve: Any = _serve_modern_stream if is_modern else handshake
            await serve(server, stream, sink, lifespan_state=None, raise_exceptions=False)
    finally:
        await source.aclose()
        await sink.aclose()


class _Undecided(AsyncResource):
    """Stream of a client's messages, read up to the one that decides the era, which stays to be read.

    Requests before it that decide nothing are answered aside.

    Args:
        server: Answers.
        source: The client's messages.
        sink: Takes the answers.
        eras: Which clients are offered the modern era.
    """

    def __init__(self, server: AgentServer, source: Any, sink: Any, eras: StdioEras) -> None:
        self._server: Any = server
        self._source = source
        self._sink = sink
        self._eras = eras
        self._first: SessionMessage | None = None

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context in which the last message was sent, if it has one; the SDK handles it in that one."""
        return getattr(self._source, "last_context", None)

    async def decide(self) -> bool | None:
        """Whether the first request that is not answered aside is one of the modern era; None if none comes.

        It stays to be read; what comes before it says nothing.
        """
        async for item in self._source:
            request = item.message if isinstance(item, SessionMessage) else None
            if isinstance(request, mcp_types.JSONRPCRequest) and not await self._answer_aside(item, request):
                self._first = item
                return request.method != "initialize" and _is_enveloped(request)
        return None

    async def _answer_aside(self, item: SessionMessage, request: mcp_types.JSONRPCRequest) -> bool:
        """Whether the request decides nothing, and was answered."""
        is_enveloped, reply = _is_enveloped(request), cast(Any, None)
        if (is_enveloped or request.method == "server/discover") and not self._is_offered(request):
            error = mcp_types.ErrorData(**self._eras.refuse(request.method, request.params))
            reply = mcp_types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        elif request.method == "ping" and not is_enveloped:
            reply = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
        elif request.method != "server/discover" or not is_enveloped:
            return False
        if reply is not None:
            await self._sink.send(SessionMessage(reply))
        else:  # by a connection of its own: in the modern era nothing is kept from one request to the next
            probe: Any = _Probe(item, self.last_context, self._sink)
            await _serve_modern_stream(self._server, probe, probe, lifespan_state=None, raise_exceptions=False)
        return True

    def _is_offered(self, request: mcp_types.JSONRPCRequest) -> bool:
        name = client_name(request.params)
        if self._eras.offers_modern(name):
            return True
        words = "%s came in 2026-07-28 from %r, which is not offered on stdio under %s"
        level = logging.DEBUG if request.method == "server/discover" else logging.WARNING  # a probe goes on otherwise
        log.log(level, words, request.method[:NAME_CHARS], name[:NAME_CHARS], self._eras.cause)
        return False

    def __aiter__(self) -> "_Undecided":
        return self

    async def __anext__(self) -> Any:
        first, self._first = self._first, None
        return await anext(self._source) if first is None else first

    async def aclose(self) -> None:
        """Ends with the client's own streams."""


class _Probe(AsyncResource):
    """Both streams of a connection for one request, which ends with its answer.

    Args:
        item: The request.
        last_context: See `_Undecided`.
        sink: Takes the answer.
    """

    def __init__(self, item: SessionMessage, last_context: contextvars.Context | None, sink: Any) -> None:
        self._items = [item]
        self.last_context = last_context
        self._sink = sink
        self._answered = anyio.Event()

    async def send(self, message: SessionMessage) -> None:
        """Send the answer: to one request nothing else is sent."""
        await self._sink.send(message)
        self._answered.set()

    def __aiter__(self) -> "_Probe":
        return self

    async def __anext__(self) -> SessionMessage:
        if not self._items:
            await self._answered.wait()
            raise StopAsyncIteration
        return self._items.pop()

    async def aclose(self) -> None:
        """The client's own streams stay open."""


def _is_enveloped(request: mcp_types.JSONRPCRequest) -> bool:
    meta = (request.params or {}).get("_meta")
    return isinstance(meta, Mapping) and mcp_types.PROTOCOL_VERSION_META_KEY in meta
