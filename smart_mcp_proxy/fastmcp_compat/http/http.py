"""FastMCP's HTTP apps, with a reply form per request and a look at a session."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from http import HTTPStatus

import mcp_types
from fastmcp import FastMCP
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.authentication import AuthCredentials
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import RateLimitedError
from smart_mcp_proxy.fastmcp_compat.fastmcp_server import find_raw_methods
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession
from smart_mcp_proxy.fastmcp_compat.http.sessions import (
    MAX_SESSIONS,
    HttpSession,
    SessionRoom,
    StreamRoom,
    allow_session_eviction,
    drop_last_event_id,
    refuse_newcomer,
)
from smart_mcp_proxy.fastmcp_compat.message_guard import is_hello, read_request_id, refuse, refuse_used_id
from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.models import LOCAL, Principal

KNOWN_VALUES = 256
"""Values of a header that are remembered; clients differ in it and send the same with every request."""


@lru_cache(KNOWN_VALUES)
def parse_accept_header(accept: bytes) -> tuple[bool, bool]:
    """Whether a client with this Accept header takes a JSON body, and whether it takes a stream."""
    return check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))


def add_session_owner(scope: Scope, who: Principal) -> Scope:
    """The scope with the user by whom the SDK tells session owners apart."""
    if who == LOCAL:
        return scope
    reach = who.reach
    servers = None if reach.servers is None else sorted(reach.servers)
    # Of one who comes back with another reach the session is another one's.
    token = AccessToken(
        token="", client_id=who.id, scopes=[], subject=repr((servers, reach.access, reach.profile, who.role))
    )
    return {**scope, "user": AuthenticatedUser(token), "auth": AuthCredentials()}


@dataclass(eq=False, repr=False)
class HttpApp:
    """The ASGI app that serves a FastMCP server at one path, Host and Origin checked.

    Attributes:
        server: Serves.
        path: Where.
        is_sse: The older transport with two endpoints instead of streamable HTTP.
        allowed_hosts: Host names besides the loopback ones.
        middleware: Stands behind the check of Host and Origin and in front of the endpoints.
        refuse_place: The answer to a request whose sender, known by then, is served nothing at its path; None for
            all others.
        max_sessions: Open at a time; for one more an idle one ends, else it is refused.
        name_session: The id of a session, from the random one that the SDK gives it.
    """

    server: FastMCP
    path: str
    _: KW_ONLY
    is_sse: bool = False
    allowed_hosts: Sequence[str] = ()
    middleware: Sequence[Middleware] = ()
    refuse_place: Callable[[], Response | None] = lambda: None
    max_sessions: int = MAX_SESSIONS
    name_session: Callable[[str], str] = str

    def __post_init__(self) -> None:
        methods = find_raw_methods(self.server)
        self._checked: Mapping[str | None, CheckedClient] = methods.checked
        self._askable = methods.askable
        self._manager: StreamableHTTPSessionManager | None = None
        self._app = self.server.http_app(
            path=self.path,
            transport="sse" if self.is_sse else "streamable-http",
            middleware=[*self.middleware, *([Middleware(StreamRoom, most=self.max_sessions)] if self.is_sse else ())],
            host_origin_protection=True,
            allowed_hosts=list(self.allowed_hosts) or None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def run_lifespan(self) -> AsyncIterator[None]:
        """Serves while open."""
        async with self._app.lifespan(self._app):
            if not self.is_sse:
                self._manager = self._find_manager()
                # FastMCP builds its manager itself, and the manager its sessions.
                room = SessionRoom(self._manager, self.max_sessions, self.name_session)
                room.take_over()
                self._manager.asgi_app.app = _Screened(self._manager, room, self.refuse_place, self._checked)
            yield

    def session(self, session_id: str, who: Principal, path: str) -> HttpSession | None:
        """The open session of that id, if it is this principal's, at this path, and has called a tool before."""
        client = self._checked.get(session_id)
        session = self._open_session(session_id, who, path) if client is not None else None
        if session is not None:
            session.client = client
        return session

    def tell_initialized(self, session_id: str, who: Principal, path: str) -> bool:
        """Tell the SDK that the client of a session is initialized; returns whether it could.

        Args:
            session_id: Of the session.
            who: The principal to whom it has to belong.
            path: Where it has to have been opened.
        """
        session = self._open_session(session_id, who, path)
        return session is not None and session.tell_initialized()

    def _open_session(self, session_id: str, who: Principal, path: str) -> HttpSession | None:
        session = None if self._manager is None else self._manager._server_instances.get(session_id)
        if not isinstance(session, HttpSession) or not session.is_open or not session.can_serve_request(path, who):
            return None
        return session

    def is_askable(self, session_id: str) -> bool:
        """Whether the client of the session declared that it can be asked for something."""
        return session_id in self._askable

    def _find_manager(self) -> StreamableHTTPSessionManager:
        for route in self._app.routes:
            manager = getattr(getattr(route, "endpoint", None), "session_manager", None)
            if isinstance(manager, StreamableHTTPSessionManager):
                return manager
        raise AssertionError("FastMCP's HTTP app has no session manager")


class _Screened:
    """The session manager's app behind our checks: refused requests reach no session.

    Args:
        manager: Has the sessions; its app is called for messages that can be served.
        room: Its places.
        refuse_place: See `HttpApp`.
        checked: See `RawMethods`.
    """

    def __init__(
        self,
        manager: StreamableHTTPSessionManager,
        room: SessionRoom,
        refuse_place: Callable[[], Response | None],
        checked: Mapping[str | None, CheckedClient],
    ) -> None:
        self._refuse_place = refuse_place
        self._checked = checked
        self._app: ASGIApp = manager.asgi_app.app
        self._sessions = manager._server_instances
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if (refusal := self._refuse_place()) is not None:
            await refusal(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session_id = headers.get("mcp-session-id")
        is_handshake = headers.get("mcp-protocol-version", DEFAULT_NEGOTIATED_VERSION) in HANDSHAKE_PROTOCOL_VERSIONS
        session = self._sessions.get(session_id or "") if is_handshake else None
        if isinstance(session, HttpSession) and not session.can_serve_request(get_request_path(), principal()):
            await _build_refusal(404, "Session not found")(scope, receive, send)
            return
        has_lost_session = is_handshake and session_id is not None and session is None
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and content_type != "application/json":
            # The SDK's own answer to a body of another type is a bare 400.
            words = "Send the message with Content-Type: application/json."
            await _build_refusal(415, words)(scope, receive, send)
            return
        if scope["method"] == "GET":
            await self._listen(session, headers, scope, receive, send)
            return
        if scope["method"] != "POST" or has_lost_session:
            await self._app(scope, receive, send)  # it says what is wrong
            return
        messages = [await receive()]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._serve(messages[0], session if isinstance(session, HttpSession) else None, scope, replay, send)

    async def _listen(self, session: object, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._checked.get(headers.get("mcp-session-id"))
        if client is not None and client.session is not None:
            send = _notify_stream_open(client.session, send)
        takes_stream = parse_accept_header(headers.get("accept", "").encode("latin-1"))[1]
        if isinstance(session, HttpSession) and takes_stream:
            await session.listen(partial(self._app, drop_last_event_id(scope), receive, send))
        else:
            await self._app(scope, receive, send)  # it says what is wrong

    async def _serve(
        self, body: Message, session: HttpSession | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        is_whole = body["type"] == "http.request" and not body.get("more_body")  # else the client has left
        refusal = refuse(body["body"]) if is_whole else None
        request_id = read_request_id(body["body"]) if is_whole and refusal is None else None
        holding = ExitStack()
        if session is not None and request_id is not None:
            if session.is_serving(request_id):
                refusal = refuse_used_id(request_id)
            else:
                holding.enter_context(session.hold_request_id(request_id))
        if refusal is not None:
            await Response(refusal.reply, 400, media_type="application/json")(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                holding.close()  # who has read the whole answer may use the id again
            await send(message)

        is_opening = session is None and (is_hello(body["body"]) if is_whole else body["type"] == "http.request")
        if not is_opening:
            with holding:
                await self._app(scope, receive, answer)
            return
        hello = _Hello(answer)
        try:
            with allow_session_eviction():
                await self._app(scope, receive, hello)
        except RateLimitedError as exc:
            await refuse_newcomer(exc, request_id)(scope, receive, send)
        if hello.is_refused:
            self._room.end(hello.session_id)


class _Hello:
    """Answer to the request that opens a session, looked at as it passes.

    Args:
        send: Takes it.

    Attributes:
        session_id: Of the session; empty as long as there is none.
        is_refused: Whether it is an error: nobody will use the session.
    """

    def __init__(self, send: Send) -> None:
        self.session_id = ""
        self.is_refused = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Passes on a part of it."""
        if message["type"] == "http.response.start":
            self.session_id = Headers(raw=message["headers"]).get("mcp-session-id", "")
        elif b'"error":' in (body := message.get("body", b"")) and b'"result":' not in body:
            self.is_refused = True
        await self._send(message)


def _notify_stream_open(session: ClientSession, send: Send) -> Send:
    """Sends, and tells the session when the stream is open: what came while there was none went nowhere."""

    async def send_and_notify(message: Message) -> None:
        await send(message)
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            session.listens()

    return send_and_notify


def _build_refusal(status: int, message: str) -> Response:
    error = {"code": mcp_types.INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=status)
