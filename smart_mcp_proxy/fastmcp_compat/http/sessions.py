"""Sessions of the handshake era: their way to answer."""

import asyncio
import contextvars
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio import CancelScope, move_on_after
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from starlette.types import Scope

from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient
from smart_mcp_proxy.fastmcp_compat.paths import bind_principal, bind_request_path, get_request_path, principal
from smart_mcp_proxy.models import Principal

_INITIALIZED = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
_replies_json: contextvars.ContextVar[bool] = contextvars.ContextVar("replies_json", default=False)
LET_GO_S = 1.0
"""A stream that is told to end does so at once, unless its client does not read."""


@contextmanager
def set_json_replies(choice: bool) -> Iterator[None]:
    """While open, answer handshake-era requests of this context with JSON, or with a stream."""
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

    path: str
    """Where it was opened, see `get_request_path`."""
    principal: Principal
    """On whose behalf; nobody else is let in."""
    client: CheckedClient | None
    """Who is at the other end, once the SDK has let it call a tool."""
    stream: "EventStream"
    """Of what the client is told without having asked."""
    _ids_in_use: set[int | str]

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

    async def listen(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Answer a request for the stream of unsolicited messages."""
        await self.stream.serve(answer, end=partial(self._clean_up_memory_streams, GET_STREAM_KEY))

    @property
    def is_open(self) -> bool:
        """Whether the session still takes requests."""
        return not self._terminated and not (self.idle_scope is not None and self.idle_scope.cancel_called)

    def begin(self) -> None:
        """Takes over what the SDK made for the present request, which does not know of these."""
        self.path = get_request_path()
        self.principal = principal()
        self.client = None
        self.stream = EventStream()
        self._ids_in_use = set()

    def can_serve_request(self, path: str, who: Principal) -> bool:
        """Whether requests that come in there on that behalf belong to this session."""
        return self.path == path and self.principal == who

    def is_serving(self, request_id: int | str) -> bool:
        """Whether a request with this id has not been answered yet; the SDK takes 7 and "7" for one."""
        return coerce_request_id(request_id) in self._ids_in_use

    @contextmanager
    def hold_request_id(self, request_id: int | str) -> Iterator[None]:
        """Keeps the id in use while open."""
        self.begin_request(request_id, is_past_sdk=False)
        try:
            yield
        finally:
            self.end_request(request_id, is_past_sdk=False)

    def begin_request(self, request_id: int | str, *, is_past_sdk: bool) -> None:
        """Mark a request as served; past the SDK that keeps the session from idling out."""
        self._ids_in_use.add(coerce_request_id(request_id))
        if is_past_sdk and self.idle_scope is not None and self._idle_timeout is not None:
            self._requests_in_flight += 1
            if self._requests_in_flight == 1:
                self.idle_scope.deadline = math.inf

    def tell_initialized(self) -> bool:
        """Give the SDK the client's `notifications/initialized`, past its app; whether it takes it at once."""
        writer = self._read_stream_writer
        if writer is None or not self.is_open:
            return False
        context = contextvars.Context()  # the present one may be that of another request
        context.run(bind_request_path(self.path).__enter__)
        context.run(bind_principal(self.principal).__enter__)
        try:
            writer._inner.send_nowait((context, SessionMessage(_INITIALIZED)))
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        self._idle_anew()
        return True

    def end_request(self, request_id: int | str, *, is_past_sdk: bool) -> None:
        """Mark a request as answered; past the SDK the idle time then begins anew."""
        self._ids_in_use.discard(coerce_request_id(request_id))
        if is_past_sdk and self.idle_scope is not None and self._idle_timeout is not None:
            self._requests_in_flight -= 1
            self._idle_anew()

    def _idle_anew(self) -> None:
        """If nothing is being served, the time that the session may be without a request begins now."""
        if self.idle_scope is not None and self._idle_timeout is not None and not self._requests_in_flight:
            # Not anyio's clock, which is the same one: it answers to tasks only, and this may be a callback.
            self.idle_scope.deadline = asyncio.get_running_loop().time() + self._idle_timeout


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """Open GET request that is being answered with the stream."""

    scope: CancelScope = field(default_factory=CancelScope)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class EventStream:
    """Ends the former stream before it opens one.

    The SDK refuses a second one with 409 for as long as it has not noticed that the first is gone. Where the network
    was lost that takes minutes, where the client closed it some milliseconds; and clients on the SDKs give up for good
    after two tries, and hear nothing any more.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._open: _Open | None = None

    async def serve(self, answer: Callable[[], Awaitable[None]], *, end: Callable[[], Awaitable[None]]) -> None:
        """Answers a request for the stream; returns when the stream is over.

        Args:
            answer: Serves the request.
            end: Has the present stream end, as the SDK ends one.
        """
        async with self._turn:
            if (former := self._open) is not None:
                await end()
                with move_on_after(LET_GO_S):
                    await former.is_over.wait()
                former.scope.cancel()
                await former.is_over.wait()
            own = self._open = _Open()
        try:
            with own.scope:
                await answer()
        finally:
            own.is_over.set()
            if self._open is own:
                self._open = None


def drop_last_event_id(scope: Scope) -> Scope:
    """Drop `Last-Event-ID`: we keep no event history, and the SDK rejects a resume."""
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != b"last-event-id"]}
