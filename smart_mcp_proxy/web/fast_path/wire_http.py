"""Fast path of streamable HTTP, and an ASGI app that gives the MCP app all the rest."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.fastmcp_compat.http.http import HttpApp, parse_accept_header
from smart_mcp_proxy.fastmcp_compat.http.sessions import HttpSession, set_json_replies
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.models import Era, Principal
from smart_mcp_proxy.trace_context import TRACE_PARENT, TRACE_STATE, with_context
from smart_mcp_proxy.web.auth.auth import Keys
from smart_mcp_proxy.web.common.messages import BODY_LIMIT_BYTES, JSON_TYPE
from smart_mcp_proxy.web.fast_path.messages import (
    CallsInFlight,
    Pieces,
    Tell,
    WireCall,
    WireCancel,
    WireInitialized,
    error_reply,
    parse_wire,
)

KNOWN_ORIGINS = 256
REQUEST_CANCELLED = -32000
BLANKS = b" \t"
"""Around a header's value they mean nothing; the HTTP parser leaves those at its end. Source: RFC 9110, section 5.5."""

_HEADERS_READ = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-type",
        b"host",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"origin",
        b"traceparent",
        b"tracestate",
    }
)

_TRACE_FIELDS: Final = ((TRACE_PARENT, TRACE_PARENT.encode()), (TRACE_STATE, TRACE_STATE.encode()))
_NO_TRACE: Final[Mapping[str, str]] = {}

Fields = Sequence[tuple[bytes, bytes]]
_ASKING = tuple(method.encode() for method in INPUT_REQUIRED_METHODS)
"""Methods that a server may answer with a question."""
_RESPONSE: Final = re.compile(
    rb'event: message\r\ndata: (?=\{"jsonrpc":"2\.0","id":(?:-?[0-9]+|"(?:[^"\\]|\\.)*+"|null),"(?:result|error)":)'
)
"""The beginning of an event that the SDK writes for a response: what it asks or tells names a method instead, and an
event that is to be found again, or a ping, begins otherwise. Only the head of a long result is looked at."""
_EVENT_END: Final = b"\r\n\r\n"
_OF_STREAMS: Final = frozenset((b"content-type", b"cache-control", b"connection", b"x-accel-buffering"))


class Headers(NamedTuple):
    """Request headers that the fast path needs.

    Attributes:
        host: As it stands there; empty where it does not, as all the others.
        origin: The same.
        authorization: None where it is not there.
        session_id: Of the handshake era.
        version: Of the protocol.
        method: Of the message, in the modern era.
        name: Of the tool, in the modern era.
        is_json: Whether the body is JSON, and the client takes JSON.
        takes_stream: Whether the client takes a stream.
        trace: The trace context that the request came with; empty without one.
    """

    host: bytes
    origin: bytes
    authorization: bytes | None
    session_id: str
    version: str
    method: bytes
    name: bytes
    is_json: bool
    takes_stream: bool
    trace: Mapping[str, str] = _NO_TRACE


class TakenCall(NamedTuple):
    """A call that is answered without the SDK.

    Attributes:
        call: The message.
        who: On whose behalf.
        calls: Answers, and can cancel.
        session: The client's; None in the modern era.
        era: Of the message.
    """

    call: WireCall
    who: Principal
    calls: CallsInFlight
    session: HttpSession | None
    era: Era

    def begin(self) -> None:
        """From now on the id is in use. To be called in the turn in which the call was taken."""
        if self.session is not None:
            self.session.begin_request(self.call.id, is_past_sdk=True)

    def end(self) -> None:
        """The call is answered, or never will be."""
        if self.session is not None:
            self.session.end_request(self.call.id, is_past_sdk=True)

    def leave(self) -> None:
        """The client has closed the connection: in the modern era that cancels the call."""
        if self.session is None:
            self.calls.cancel(self.call.id)

    async def answer(self, tell: Tell | None) -> tuple[int, Pieces]:
        """HTTP status and JSON of the reply, in pieces.

        Args:
            tell: Takes what the client is told before; None where it asks for nothing.
        """
        call, status = self.call, 200
        reply: Pieces | None
        try:
            reply = await self.calls.answer(call, self.era, self.who, tell)
        except MCPError as failure:
            reply = (error_reply(call, failure),)
            status = ERROR_CODE_HTTP_STATUS.get(failure.error.code, 200) if self.era == "modern" else 200
        if reply is None:
            error = b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"Request cancelled"}}'
            reply = (error % (msgspec.json.encode(call.id), REQUEST_CANCELLED),)
        return status, reply


class WireHttp:
    """Entry to the fast path: answers the calls it can, and hands all else, untouched, to the MCP app.

    Args:
        app: Everything else: the MCP app, health.
        mcp: Has the sessions of the handshake era.
        path: Where MCP is served.
        agent: Answers calls.
        keys: Says who callers are.
    """

    def __init__(self, app: ASGIApp, mcp: HttpApp, path: str, agent: Agent, keys: Keys) -> None:
        self._app = app
        self._mcp = mcp
        self._path = path
        self._agent = agent
        self._keys = keys
        self._session_calls: WeakKeyDictionary[HttpSession, CallsInFlight] = WeakKeyDictionary()
        self._origins: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        body, messages = await _read(receive)
        if messages[-1]["type"] == "http.disconnect":  # before its request was whole: nobody waits for an answer
            return
        await self._hand_on(scope, parse_wire_headers(scope["headers"]), body, messages, receive, send)

    def take(
        self, headers: Headers, body: bytes, path: str, *, may_call: bool = True
    ) -> TakenCall | WireCancel | WireInitialized | None:
        """A call to answer, a notification that was heeded; None for whatever is the SDK's to judge.

        Args:
            headers: Of a POST to the fast path.
            body: Whole.
            path: Where it came in, see `get_request_path`.
            may_call: Whether calls are taken from this connection. Notifications are in any case: the SDK does not know
                of the calls that are answered here, and whoever sends one has the session's id.
        """
        if (who := self._authenticate_request(headers)) is None:
            return None
        match parse_wire(body):
            case WireCall() as call if may_call and (way := self._way(headers, call, who, path)) is not None:
                if headers.trace:
                    call = call._replace(meta=call.meta._replace(rest=with_context(call.meta.rest, headers.trace)))
                return TakenCall(call, who, *way)
            case WireCancel() as cancel if self._cancel_call(headers, cancel, who, path):
                return cancel
            case WireInitialized() as told if self._mark_initialized(headers, who, path):
                return told
        return None

    def _authenticate_request(self, headers: Headers) -> Principal | None:
        """Return the principal if Host, Origin and token are good by all that is known here."""
        if (headers.host, headers.origin) not in self._origins:
            return None
        return self._keys.look_up_principal(headers.authorization)

    def _way(
        self, headers: Headers, call: WireCall, who: Principal, path: str
    ) -> tuple[CallsInFlight, HttpSession | None, Era] | None:
        """Decide how the fast path answers this call; None if the SDK has to."""
        if not headers.is_json or (call.token is not None and not headers.takes_stream):
            return None
        if headers.version == LATEST_MODERN_VERSION:
            tools = self._agent.routing.find_tools(path, who)
            if tools is None:
                return None
            # Without a session nobody cancels by id, and equal ids of different clients must not meet.
            modern = CallsInFlight(self._agent, tools)
            is_right = (
                call.meta.is_modern
                and headers.method == b"tools/call"
                and headers.name == call.name.encode()
                and not modern.tool_list.demands_headers(call.name)
                and headers.takes_stream
            )
            return (modern, None, "modern") if is_right and modern.takes(call) else None
        if call.meta.version is not None or not _is_handshake(headers):
            return None
        session = self._mcp.session(headers.session_id, who, path)
        if session is None or session.client is None or session.is_serving(call.id):
            return None
        if path and self._agent.routing.find_tools(path, who) is None:
            return None  # the place is gone, which the session has not noticed
        calls = self._session_calls.get(session)
        if calls is None:
            tools = self._agent.choose_tools(session.client.session, session.path, who)
            is_askable, extensions = session.client.is_askable, session.client.extensions
            calls = CallsInFlight(
                self._agent, tools, session.mcp_session_id, is_askable=is_askable, extensions=extensions
            )
            self._session_calls[session] = calls
        return (calls, session, "handshake") if calls.takes(call) else None

    def _cancel_call(self, headers: Headers, cancel: WireCancel, who: Principal, path: str) -> bool:
        session = self._mcp.session(headers.session_id, who, path)
        calls = self._session_calls.get(session) if session is not None else None
        return calls is not None and calls.cancel(cancel.params.requestId)

    def _mark_initialized(self, headers: Headers, who: Principal, path: str) -> bool:
        is_right = headers.is_json and _is_handshake(headers) and self._agent.routing.find_tools(path, who) is not None
        return is_right and self._mcp.tell_initialized(headers.session_id, who, path)

    async def _hand_on(
        self,
        scope: Scope,
        headers: Headers | None,
        body: bytes | None,
        messages: list[Message],
        receive: Receive,
        send: Send,
    ) -> None:
        """The SDK's turn; what it lets in here is let in at once the next time."""
        pending = iter(messages)
        scope = {**scope, "headers": [(name, value.strip(BLANKS)) for name, value in scope["headers"]]}

        async def replay() -> Message:
            return next(pending, None) or await receive()

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300 and headers is not None:
                self._origins[headers.host, headers.origin] = None
                if len(self._origins) > KNOWN_ORIGINS:
                    self._origins.popitem(last=False)
            await send(message)

        # The word may also stand in an argument; then the SDK opens a stream where a body would have done.
        is_told_more = body is None or b'"progressToken"' in body or self._may_be_asked(body, headers)
        with set_json_replies(not is_told_more):
            if is_told_more and headers is not None and headers.is_json:
                reply = FormAtFirstMessage(watch)
                await self._app(scope, replay, reply.send)
                await reply.finish()
            else:
                await self._app(scope, replay, watch)

    def _may_be_asked(self, body: bytes, headers: Headers | None) -> bool:
        """Whether a server may have something to ask or tell the session's client before it answers."""
        may_ask, may_need_line = self._agent.questions.is_on, self._agent.may_need_line()
        if headers is None or not (may_ask or may_need_line) or not any(name in body for name in _ASKING):
            return False
        is_known = bool(headers.session_id) if may_need_line else self._mcp.is_askable(headers.session_id)
        return is_known and headers.takes_stream


async def _read(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """The body, None if it is cut off or so long that the SDK refuses it, and the messages it came in."""
    messages = [await receive()]
    size_bytes = len(messages[0].get("body", b""))
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body") and size_bytes <= BODY_LIMIT_BYTES:
        messages.append(await receive())
        size_bytes += len(messages[-1].get("body", b""))
    is_whole = messages[-1]["type"] == "http.request" and not messages[-1].get("more_body")
    if not is_whole or size_bytes > BODY_LIMIT_BYTES:
        return None, messages
    body = messages[0]["body"] if len(messages) == 1 else b"".join(message.get("body", b"") for message in messages)
    return body, messages


def _is_handshake(headers: Headers) -> bool:
    return not headers.version or headers.version in HANDSHAKE_PROTOCOL_VERSIONS


def parse_wire_headers(fields: Fields) -> Headers | None:
    """The headers that the fast path reads; None if one comes twice, or only the SDK can judge it.

    Args:
        fields: Of the head, names in lower case.
    """
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in _HEADERS_READ:
            if name in found:
                return None
            found[name] = value.strip(BLANKS)
        elif name.startswith(b"mcp-param-"):
            return None
    takes_json, takes_stream = parse_accept_header(found.get(b"accept", b""))
    return Headers(
        host=found.get(b"host", b""),
        origin=found.get(b"origin", b""),
        authorization=found.get(b"authorization"),
        session_id=found.get(b"mcp-session-id", b"").decode("latin-1"),
        version=found.get(b"mcp-protocol-version", b"").decode("latin-1"),
        method=found.get(b"mcp-method", b""),
        name=found.get(b"mcp-name", b""),
        is_json=takes_json and found.get(b"content-type", b"").partition(b";")[0].strip() == b"application/json",
        takes_stream=takes_stream,
        trace={name: found[key].decode("latin-1") for name, key in _TRACE_FIELDS if key in found}
        if b"traceparent" in found
        else _NO_TRACE,
    )


class FormAtFirstMessage:
    """Holds back the head of an event stream until its first write; passes everything else.

    A response that comes first is sent as one JSON body; anything else, a ping included, opens the stream. Never more
    than the head is kept.

    Args:
        send: To the client.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._is_answered = False
        self._turn = asyncio.Lock()  # pings and events come from two tasks, and the head goes before both

    async def send(self, message: Message) -> None:
        """Takes a message of the application."""
        async with self._turn:
            if message["type"] == "http.response.start" and _is_stream(message):
                self._head = message
            elif self._head is not None:
                await self._begin(message)
            elif not self._is_answered or not message.get("body"):  # after the whole body there is only its end
                await self._send(message)

    async def finish(self) -> None:
        """Sends what is held back. The application is through."""
        async with self._turn:
            if self._head is not None:
                head, self._head = self._head, None
                await self._send(head)

    async def _begin(self, first: Message) -> None:
        assert self._head is not None
        head, self._head = self._head, None
        body = first.get("body", b"")
        event = _RESPONSE.match(body)
        if event is not None and body.endswith(_EVENT_END):
            self._is_answered = True
            body = body[event.end() : -len(_EVENT_END)]
            first = {**first, "body": body}
            fields = [field for field in head["headers"] if field[0].lower() not in _OF_STREAMS]
            own = [(b"content-type", JSON_TYPE.encode()), (b"content-length", b"%d" % len(body))]
            head = {**head, "headers": fields + own}
        await self._send(head)
        await self._send(first)


def _is_stream(head: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in head["headers"]
    )
