"""HTTP level of a session: exchanges by request, how each may end, and announcements."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.event_parser import BURST_EVENTS, EventParser, OversizedEventError
from smart_mcp_proxy.models import OnMessage
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.http.endpoint import ServerEndpoint, is_event_stream, is_json, media_type
from smart_mcp_proxy.upstream.http.exchange import RequestBody, Response
from smart_mcp_proxy.upstream.http_failures import IN_SESSION_HINT, HttpFailure, extract_error_message, refuses_session
from smart_mcp_proxy.upstream.protocol.codec import encode_message
from smart_mcp_proxy.upstream.protocol.inbox import Inbox
from smart_mcp_proxy.upstream.protocol.session import timeout_error

_FIRST_PAUSE_S: Final = 1.0
"""Before the stream is opened again, where the server names no other pause."""
_LONGEST_PAUSE_S: Final = 30.0
_HEALTHY_S: Final = 30.0
"""A stream that held this long was cut by something on the way; a shorter one without a word is not worth hurrying."""

_OF_A_REQUEST: Final = frozenset({"notifications/progress", "notifications/message"})
"""Notifications of a server about one request; everything else it announces is about itself."""

_SESSION_HEADER: Final = "Mcp-Session-Id"
_RESUME_S: Final = 1.0
"""Pause before a cut answer is taken up again, where the server names none."""
_LONGEST_RESUME_S: Final = 30.0
_SAY_S: Final = 10.0
_END_S: Final = 1.0

_log = get_logger("upstream")


class _Head(msgspec.Struct):
    method: str
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_head = msgspec.json.Decoder(_Head)


def is_notification(text: bytes) -> bool:
    """Whether this is a message that tells how the request before it is getting on."""
    try:
        head = _head.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return head.id is msgspec.UNSET and head.method in _OF_A_REQUEST


class MessageLines:
    """Cuts notifications off the front of a body that arrives in pieces; each byte is looked at once.

    Args:
        limit_bytes: A longer line or rest is refused.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._is_cutting = True

    @property
    def rest(self) -> bytes:
        """Bytes from the first message on that is no notification."""
        return bytes(self._rest)

    @property
    def is_oversized(self) -> bool:
        """Whether more is held than may be."""
        return len(self._rest) > self._limit_bytes

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The notifications that `chunk` completes."""
        seen = len(self._rest)
        self._rest += chunk
        while self._is_cutting and (end := self._rest.find(b"\n", seen)) >= 0:
            line = bytes(self._rest[:end]).strip()
            if line and not is_notification(line):
                self._is_cutting = False
                return
            del self._rest[: end + 1]
            seen = 0
            if line:
                yield line


@dataclass(eq=False, repr=False)
class HttpSessionTransport:
    """Messages between one server and us; knows the session's headers, not the era.

    Attributes:
        server: Configured name, for messages.
        endpoint: Where to send.
        inbox: Where what arrives goes.
        max_event_bytes: Larger events are refused.
        on_refused: Given the error, when the server refuses the stream of announcements that it had before.
        headers: What each request of a handshake-era session carries besides the configured headers.
    """

    server: str
    endpoint: ServerEndpoint
    inbox: Inbox
    max_event_bytes: int
    on_refused: Callable[[UpstreamError], None]

    def __post_init__(self) -> None:
        self.headers: dict[str, str] = {}
        self._has_announced = False

    @property
    def has_id(self) -> bool:
        """Whether the server keeps a session for us."""
        return _SESSION_HEADER in self.headers

    async def exchange(
        self,
        request_id: int,
        method: str,
        headers: Mapping[str, str],
        body: RequestBody,
        on_message: OnMessage | None = None,
    ) -> int:
        """Sends a request and reads until the inbox has the answer; what comes before it goes to `on_message`.

        Returns:
            The HTTP status that it came with.

        Raises:
            UpstreamError: None will come.
        """
        response = await self.endpoint.send("POST", headers, body)
        last_id = ""
        while (cut := await self._read_to_end(response, request_id, method, on_message)) is not None:
            last_id = cut.last_id or last_id
            if not last_id or not self.has_id:
                raise self._improper(method, "its stream ended before it came")
            await asyncio.sleep(_RESUME_S if cut.retry_s is None else min(cut.retry_s, _LONGEST_RESUME_S))
            response = await self._resume_stream(method, last_id)
        return response.status

    async def announcements(self, last_id: str) -> Response:
        """The beginning of the stream on which the server says what belongs to no request."""
        headers = self.headers | {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        response = await self.endpoint.send("GET", headers)
        if is_event_stream(response):
            self._has_announced = True
        elif self._has_announced and response.status >= 400:  # else many answer so where they announce nothing
            self.on_refused(self.endpoint.status_error(response, is_session_over=self.has_id))
        return response

    async def say(self, message: Mapping[str, Any]) -> None:
        """Sends a message that nobody answers.

        Raises:
            UpstreamError: It was refused, or could not be sent in time.
        """
        body = RequestBody(encode_message(message))
        try:
            async with asyncio.timeout(_SAY_S):
                response = await self.endpoint.send("POST", self.headers, body)
        except TimeoutError:
            raise timeout_error(self.server, str(message.get("method")), _SAY_S, was_sent=body.is_sent) from None
        if response.status >= 400:
            response.close()
            raise self.endpoint.status_error(response)
        self.endpoint.drain_soon(response)

    def say_soon(self, message: Mapping[str, Any]) -> None:
        """Sends a message that nobody answers without waiting; if that fails, it failed."""

        async def try_to_say() -> None:
            try:
                await self.say(message)
            except UpstreamError as exc:
                _log.debug("server %s did not take a message: %r", self.server, exc)

        self.endpoint.spawn(try_to_say())

    async def end(self) -> None:
        """Tells the server that the session is over; not for long."""
        try:
            async with asyncio.timeout(_END_S):
                (await self.endpoint.send("DELETE", self.headers)).close()
        except (TimeoutError, UpstreamError) as exc:
            _log.debug("server %s was not told of the session's end: %r", self.server, exc)

    # --- reading answers

    async def _read_to_end(
        self, response: Response, request_id: int, method: str, on_message: OnMessage | None
    ) -> EventParser | None:
        """Reads one answer and lets go of its connection; see `_read_answer`."""
        try:
            cut = await self._read_answer(response, request_id, method, on_message)
        except BaseException:
            response.close()
            raise
        if cut is not None:
            response.reject()
        elif not response.is_over:  # only the end of the body is missing: soon the connection can be used again
            self.endpoint.drain_soon(response)
        return cut

    async def _read_answer(
        self, response: Response, request_id: int, method: str, on_message: OnMessage | None
    ) -> EventParser | None:
        """Reads one answer; of a stream that was cut before it, returns what knows where to take it up again."""
        if response.status >= 400:
            await self._read_refusal(response, request_id)
            return None
        if method == "initialize" and (session_id := response.headers.get(_SESSION_HEADER.lower())):
            self.headers[_SESSION_HEADER] = session_id
        kind = media_type(response)
        if kind == "text/event-stream":
            return await self._read_events(response, request_id, on_message)
        if kind != "application/json":
            what = f"content type {kind}" if kind else "no content type"
            raise self._improper(method, f"HTTP {response.status} with {what}")
        body = await (self._read_lines(response, on_message) if on_message else self.endpoint.read_all(response))
        if not await self.inbox.take(request_id, *body):
            response.reject()  # what it answers may be the request before; the next one would get this one's answer
            raise self._improper(method, "no message in it carries the request's id")
        return None

    async def _read_refusal(self, response: Response, request_id: int) -> None:
        """Read a response of status 400 or above: the server's whole JSON-RPC error, else the status.

        Source: docs/design/wire-formats.md#a-status-outlives-its-body
        """
        error = self.endpoint.status_error(response)
        is_sign_in = isinstance(error, UpstreamAuthError)
        is_told = is_json(response) or response.status == 400
        if not self.has_id and (is_sign_in or not is_told):
            raise error
        told = await self.endpoint.read_refusal(response)
        body = told or b""
        self.endpoint.raise_where_tls_is_missing(response, body)
        if is_sign_in or not self.inbox.take_refusal(body, request_id):
            is_session_over = self.has_id and told is not None and refuses_session(told)
            error = self.endpoint.status_error(response, extract_error_message(body), is_session_over=is_session_over)
            if self.has_id and response.status == 404:
                error.hint = IN_SESSION_HINT  # the path of the url is right
            raise error

    async def _read_lines(self, response: Response, on_message: OnMessage) -> Sequence[bytes]:
        """Dispatch the notifications that a JSON body begins with, a line each; return the rest."""
        lines = MessageLines(self.max_event_bytes)
        while chunk := await self.endpoint.read_some(response):
            for notification in lines.feed(chunk):
                await on_message(notification)
            if lines.is_oversized:
                raise self.endpoint.build_oversize_error()
        return (lines.rest,)

    async def _read_events(
        self, response: Response, request_id: int, on_message: OnMessage | None
    ) -> EventParser | None:
        """Reads a stream up to the answer; what is known of the stream if it ends before."""
        parser = EventParser(self.max_event_bytes)
        try:
            while chunk := await self.endpoint.read_some(response):
                for number, event in enumerate(parser.feed(chunk), 1):
                    is_message = event.name == "message"
                    if is_message and on_message is not None and is_notification(event.data):
                        await on_message(event.data)
                    elif is_message and await self.inbox.take(request_id, event.data):
                        return None
                    if number % BURST_EVENTS == 0:
                        await asyncio.sleep(0)
        except OversizedEventError:
            raise self.endpoint.build_oversize_error() from None
        except UpstreamError:
            if not parser.last_id or not self.has_id:
                raise
        return parser

    async def _resume_stream(self, method: str, last_id: str) -> Response:
        """The rest of a stream that was cut."""
        try:
            response = await self.announcements(last_id)
        except UpstreamError as exc:
            raise self._improper(method, "its stream was cut and cannot be taken up again", is_lost=True) from exc
        if is_event_stream(response):
            return response
        response.close()
        reason = f"its stream was cut and cannot be taken up again (HTTP {response.status})"
        raise self._improper(method, reason, is_lost=True)

    def _improper(self, method: str, reason: str, *, is_lost: bool = False) -> UpstreamError:
        return self.endpoint.error(HttpFailure(f"gave no proper answer to '{method}': {reason}", is_lost=is_lost))


@dataclass(eq=False, repr=False)
class Announcements:
    """Reads one stream after the other until the server says that it has none.

    Attributes:
        server: Configured name, for messages.
        endpoint: Where the stream comes from.
        connect: Opens it; given the id of the last event heard, empty at first.
        take: Given the text of each message.
        max_event_bytes: A larger event ends the stream.
    """

    server: str
    endpoint: ServerEndpoint
    connect: Callable[[str], Awaitable[Response]]
    take: Callable[[bytes], Awaitable[object]]
    max_event_bytes: int

    def __post_init__(self) -> None:
        self._last_id = ""
        self._pause_s = _FIRST_PAUSE_S

    async def run(self) -> None:
        """Listens; returns when there is nothing to listen to."""
        while True:
            try:
                response = await self._open_stream()
                if response is None:
                    return
                await self._read(response)
            except (UpstreamError, OversizedEventError) as exc:
                _log.debug("server %s: its stream of announcements was lost: %r", self.server, exc)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)

    async def _open_stream(self) -> Response | None:
        """The beginning of the stream, None if the server offers none."""
        response = await self.connect(self._last_id)
        if is_event_stream(response):
            return response
        response.close()
        if response.status == 429 or response.status >= 500:
            raise self.endpoint.status_error(response)
        _log.debug("server %s announces nothing by itself (HTTP %d)", self.server, response.status)
        return None

    async def _read(self, response: Response) -> None:
        clock = asyncio.get_running_loop().time
        parser, opened_at, is_alive = EventParser(self.max_event_bytes), clock(), False
        try:
            while chunk := await self.endpoint.read_some(response):
                for number, event in enumerate(parser.feed(chunk), 1):
                    is_alive = True
                    if event.name == "message":
                        await self.take(event.data)
                    if number % BURST_EVENTS == 0:
                        await asyncio.sleep(0)
        finally:
            response.close()
            self._last_id = parser.last_id or self._last_id
            if parser.retry_s is not None:
                self._pause_s = min(_LONGEST_PAUSE_S, parser.retry_s)
            elif is_alive or clock() - opened_at >= _HEALTHY_S:
                self._pause_s = _FIRST_PAUSE_S
