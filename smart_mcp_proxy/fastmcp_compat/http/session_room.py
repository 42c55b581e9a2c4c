"""Places for sessions of the handshake era: a newcomer takes an idle one's, or is refused for a time.

Private names used: `StreamableHTTPSessionManager._admit_session`, `._server_instances`, `._session_owners`.
"""

import asyncio
import contextvars
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, cast

from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import RateLimitedError
from smart_mcp_proxy.fastmcp_compat.http.sessions import HttpSession

MAX_SESSIONS: Final = 1_000
"""Open at a time where nobody says otherwise. A session takes 50 KB."""
IDLE_S: Final = 60.0
"""Without a request under way or an open stream, after which a session gives way: hardly a client says that it goes
(DELETE). One that comes back after all is told that its session is not found, and begins anew."""
_is_opening: contextvars.ContextVar[bool] = contextvars.ContextVar("is_opening", default=False)


@contextmanager
def allow_session_eviction() -> Iterator[None]:
    """While open, a request of this context may take an idle session's place."""
    token = _is_opening.set(True)
    try:
        yield
    finally:
        _is_opening.reset(token)


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
        session.__class__ = HttpSession
        cast(HttpSession, session).begin()
        self._rename(session)
        return session

    def _make_room(self, now_s: float) -> None:
        """End the session that has been idle for longest, if for long enough."""
        if now_s >= self._full_until_s:  # else nobody's time is over yet: a flood of newcomers costs no search each
            since_s, session_id = self._idlest()
            if now_s - since_s >= IDLE_S:
                self.end(session_id)
                return
            self._full_until_s = min(since_s, now_s) + IDLE_S
        raise no_room(self._most, self._full_until_s - now_s)

    def _idlest(self) -> tuple[float, str]:
        """Since when the longest idle session is idle, and its id; infinity if all are in use."""
        waiting = (
            (session.idle_scope.deadline - session._idle_timeout, session_id)
            for session_id, session in self._manager._server_instances.items()
            if session.idle_scope is not None and session._idle_timeout is not None
        )
        return min(waiting, key=itemgetter(0), default=(math.inf, ""))

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
