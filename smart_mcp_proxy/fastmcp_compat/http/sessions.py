"""Sessions of the handshake era: their way to answer, and their places.

A newcomer takes an idle one's place, or one of whoever has most of them, or is refused for a time.

Private names used: `StreamableHTTPSessionManager._admit_session`, `._server_instances`, `._session_owners`.
"""

import asyncio
import contextvars
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from operator import itemgetter
from typing import Any, Final, cast

import anyio
import msgspec
from anyio import CancelScope, move_on_after
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import RateLimitedError
from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient
from smart_mcp_proxy.fastmcp_compat.paths import (
    BoundVariables,
    bind_principal,
    bind_request_path,
    get_request_path,
    principal,
)
from smart_mcp_proxy.models import Principal

_INITIALIZED = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
_replies_json: contextvars.ContextVar[bool] = contextvars.ContextVar("replies_json", default=False)
LET_GO_S = 1.0
"""Seconds for a stream to end when asked: it does so at once, unless its client does not read."""
MAX_SESSIONS: Final = 1_000
"""Open at a time where nobody says otherwise. A session takes 50 KB."""
IDLE_S: Final = 60.0
"""Without a request under way or an open stream, after which a session gives way: hardly a client says that it goes
(DELETE). One that comes back after all is told that its session is not found, and begins anew."""
COUNTED_S: Final = 1.0
"""For so long it is not counted anew who has how many: a flood of newcomers costs no search each."""
_is_opening: contextvars.ContextVar[bool] = contextvars.ContextVar("is_opening", default=False)


def set_json_replies(choice: bool) -> AbstractContextManager[None]:
    """While open, answer handshake-era requests of this context with JSON, or with a stream."""
    return BoundVariables((_replies_json, choice))


class HttpSession(StreamableHTTPServerTransport):
    """Handshake-era session that decides per request whether the reply is one JSON body or a stream.

    The SDK decides once per server. A stream costs a millisecond and is needed only where something may come before
    the answer, that is, where the request carries a progress token.
    """

    path: str
    """Path where it was opened, see `get_request_path`."""
    principal: Principal
    """On whose behalf; nobody else is let in."""
    client: CheckedClient | None
    """Client at the other end, once the SDK has let it call a tool."""
    stream: "EventStream"
    """Stream of messages that the client has not asked for."""
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

    def adopt(self) -> None:
        """Set the fields of this class on a session that the SDK has made for the present request."""
        self.path = get_request_path()
        self.principal = principal()
        self.client = None
        self.stream = EventStream()
        self._ids_in_use = set()

    def can_serve_request(self, path: str, who: Principal) -> bool:
        """Whether requests that come in there on that behalf belong to this session."""
        return self.path == path and self.principal == who

    @property
    def person(self) -> str:
        """Whose it is: a token's that a person made is the person's."""
        return self.principal.made_by or self.principal.id

    @property
    def is_answering(self) -> bool:
        """Whether a request is being served; an open stream of events is none."""
        return bool(self._ids_in_use)

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


class _Open(msgspec.Struct, frozen=True, eq=False):
    """Open GET request that is being answered with the stream."""

    scope: CancelScope = msgspec.field(default_factory=CancelScope)
    is_over: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


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


def allow_session_eviction() -> AbstractContextManager[None]:
    """While open, a request of this context may take an idle session's place."""
    return BoundVariables((_is_opening, True))


class SessionRoom:
    """The places of a session manager.

    Args:
        manager: The SDK's, of all sessions.
        most: Sessions open at a time.
        name: The id of a session, from the random one that the SDK gives it.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, most: int, name: Callable[[str], str]) -> None:
        self._manager = manager
        self._most = most
        self._name = name
        self._admit = manager._admit_session
        self._full_until_s = -math.inf
        self._counted_s = -math.inf
        self._held: Counter[str] = Counter()
        """Sessions by person, as of then."""

    def __repr__(self) -> str:
        return f"<SessionRoom {len(self._manager._server_instances)} of {self._most} places>"

    def take_over(self) -> None:
        """Decide for the manager from now on: the SDK's own limit refuses without a reason."""
        self._manager.max_sessions = None
        setattr(self._manager, "_admit_session", self.admit)  # noqa: B010

    def admit(self, requestor: Any) -> StreamableHTTPServerTransport:
        """Open a session of ours, in the place of the longest idle one if there are too many.

        The SDK also opens one for each request without a session that it then refuses. Those are over at once, and
        nobody loses a place to them.

        Args:
            requestor: On whose behalf, as the SDK has it.

        Raises:
            RateLimitedError: All of as many as are accepted are in use.
        """
        if len(self._manager._server_instances) >= self._most and _is_opening.get():
            self._make_room(asyncio.get_running_loop().time())
        session = self._admit(requestor)
        assert session is not None  # without a limit of its own
        session.__class__ = HttpSession  # the SDK names its own class where it makes one
        cast(HttpSession, session).adopt()
        self._rename(session)
        return session

    def _make_room(self, now_s: float) -> None:
        """End the session that has been idle for longest, if for long enough, else one of whoever has most."""
        if now_s >= self._full_until_s:  # else nobody's time is over yet: a flood of newcomers costs no search each
            since_s, session_id = self._idlest()
            if now_s - since_s >= IDLE_S:
                self.end(session_id)
                return
            self._full_until_s = min(since_s, now_s) + IDLE_S
        who = principal()
        if (crowding := self._find_crowding(who.made_by or who.id, now_s)) is not None:
            self.end(crowding)
            return
        raise no_room(self._most, self._full_until_s - now_s)

    def _idlest(self) -> tuple[float, str]:
        """Since when the longest idle session is idle, and its id; infinity if all are in use."""
        waiting = (
            (session.idle_scope.deadline - session._idle_timeout, session_id)
            for session_id, session in self._manager._server_instances.items()
            if session.idle_scope is not None and session._idle_timeout is not None
        )
        return min(waiting, key=itemgetter(0), default=(math.inf, ""))

    def _find_crowding(self, newcomer: str, now_s: float) -> str | None:
        """Return the session to end for somebody with fewer than the person who has most; None for none.

        A session that is answering a request stays; of the others the one without a stream goes first.
        """
        sessions = cast("dict[str, HttpSession]", self._manager._server_instances)
        if now_s - self._counted_s >= COUNTED_S:
            self._held, self._counted_s = Counter(session.person for session in sessions.values()), now_s
        crowding, most = max(self._held.items(), key=itemgetter(1), default=("", 0))
        if most <= self._held[newcomer] + 1:
            return None
        theirs = (
            (session.idle_scope.deadline, session_id)
            for session_id, session in sessions.items()
            if session.person == crowding and session.idle_scope is not None and not session.is_answering
        )
        found = min(theirs, key=itemgetter(0), default=None)
        if found is None:
            return None
        self._held[crowding] -= 1
        self._held[newcomer] += 1
        return found[1]

    def end(self, session_id: str) -> None:
        """Give the place of a session back, which nobody uses or whose hello was refused."""
        session = self._manager._server_instances.pop(session_id, None)
        self._manager._session_owners.pop(session_id, None)
        if session is not None and session.idle_scope is not None:
            session.idle_scope.cancel()

    def _rename(self, session: StreamableHTTPServerTransport) -> None:
        """Give a session that nobody knows yet its id."""
        sessions, owners = self._manager._server_instances, self._manager._session_owners
        given = session.mcp_session_id or ""
        named = session.mcp_session_id = self._name(given)
        sessions[named] = sessions.pop(given)
        if (owner := owners.pop(given, None)) is not None:
            owners[named] = owner


class StreamRoom:
    """Places for streams of the older transport; a session there lasts as long as its stream, never idle.

    Args:
        app: Answers.
        most: Streams open at a time.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        if self._open >= self._most:
            await refuse_newcomer(no_room(self._most, IDLE_S))(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1


def no_room(most: int, wait_s: float) -> RateLimitedError:
    """The error for a client for which there is no place.

    Args:
        most: Sessions open at a time.
        wait_s: After which there may be one.
    """
    after_s = max(1, math.ceil(wait_s))
    return RateLimitedError(
        f"All {most:,} sessions that this gateway keeps open are in use.",
        hint=f"Try again in {after_s} s, end sessions that are over (DELETE), or have MCPPROXY_MAX_SESSIONS raised.",
        code="too_many_sessions",
        retry_after_s=after_s,
    )


def refuse_newcomer(error: RateLimitedError, request_id: int | str | None = None) -> Response:
    """The answer to a client for which there is no place; the SDK's has neither reason nor time."""
    failure = {"code": error.jsonrpc_code, "message": str(error), "data": error.to_dict()}
    headers = {"retry-after": f"{error.retry_after_s:.0f}"}
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": failure}, status_code=503, headers=headers)
