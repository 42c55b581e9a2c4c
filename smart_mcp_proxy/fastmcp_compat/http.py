"""FastMCP's HTTP apps, with the two things they do not offer: a reply form per request, and a look at a session."""

import contextvars
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
from fastmcp import FastMCP
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.fastmcp_compat.server import checked_clients

__all__ = ["HttpApp", "HttpSession", "replying_with_json"]

_replies_json: contextvars.ContextVar[bool] = contextvars.ContextVar("replies_json", default=False)


@contextmanager
def replying_with_json(choice: bool) -> Iterator[None]:
    """While open, handshake-era requests of this context are answered with one JSON body, or with a stream."""
    token = _replies_json.set(choice)
    try:
        yield
    finally:
        _replies_json.reset(token)


class HttpSession(StreamableHTTPServerTransport):
    """Handshake-era session that decides per request whether the reply is one JSON body or a stream.

    The SDK decides once per server. A stream costs a millisecond and is needed only where something may come before
    the answer, that is, where the request carries a progress token.
    """

    @property
    def is_json_response_enabled(self) -> bool:
        """Whether the request being served is answered with a JSON body."""
        return _replies_json.get()

    @is_json_response_enabled.setter
    def is_json_response_enabled(self, value: bool) -> None:
        """The SDK's per-server choice; not used."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """The session's streams; its router must not inherit the choice made for the opening request."""
        _replies_json.set(False)
        async with super().connect() as streams:
            yield streams

    @property
    def is_open(self) -> bool:
        """Whether the session still takes requests."""
        return not self._terminated and not (self.idle_scope is not None and self.idle_scope.cancel_called)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps the session from idling out while a request is served past the SDK; as `handle_request` does."""
        if self.idle_scope is None or self._idle_timeout is None:
            yield
            return
        self._requests_in_flight += 1
        self.idle_scope.deadline = math.inf
        try:
            yield
        finally:
            self._requests_in_flight -= 1
            if not self._requests_in_flight:
                self.idle_scope.deadline = anyio.current_time() + self._idle_timeout


class HttpApp:
    """The ASGI app that serves a FastMCP server at one path, Host and Origin checked.

    Args:
        server: Serves.
        path: Where.
        is_sse: The older transport with two endpoints instead of streamable HTTP.
        allowed_hosts: Host names besides the loopback ones.
    """

    def __init__(self, server: FastMCP, path: str, *, is_sse: bool = False, allowed_hosts: Sequence[str] = ()) -> None:
        self._is_sse = is_sse
        self._checked = checked_clients(server)
        self._manager: StreamableHTTPSessionManager | None = None
        self._app = server.http_app(
            path=path,
            transport="sse" if is_sse else "streamable-http",
            host_origin_protection=True,
            allowed_hosts=list(allowed_hosts) or None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves while open."""
        async with self._app.lifespan(self._app):
            if not self._is_sse:
                self._manager = self._find_manager()
                # FastMCP builds its manager itself, and the manager its sessions.
                setattr(self._manager, "_admit_session", partial(_admit, self._manager._admit_session))  # noqa: B010
            yield

    def session(self, session_id: str) -> HttpSession | None:
        """The open session of that id, if the SDK has let it call a tool before."""
        if self._manager is None or session_id not in self._checked:
            return None
        session = self._manager._server_instances.get(session_id)
        return session if isinstance(session, HttpSession) and session.is_open else None

    def _find_manager(self) -> StreamableHTTPSessionManager:
        for route in self._app.routes:
            endpoint: Any = getattr(route, "endpoint", None)
            # Behind a token the endpoint is wrapped once more.
            for candidate in (endpoint, getattr(endpoint, "app", None)):
                manager = getattr(candidate, "session_manager", None)
                if isinstance(manager, StreamableHTTPSessionManager):
                    return manager
        raise AssertionError("FastMCP's HTTP app has no session manager")


def _admit(admit: Any, requestor: Any) -> StreamableHTTPServerTransport | None:
    session: StreamableHTTPServerTransport | None = admit(requestor)
    if session is not None:
        session.__class__ = HttpSession
    return session
