"""Sessions over HTTP+SSE, the transport before streamable HTTP.

Answers come on one stream, requests are posted to an address that the stream names.

Source: https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.event_parser import BURST_EVENTS, EventParser, OversizedEventError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import http_failures
from smart_mcp_proxy.upstream.http.endpoint import ServerEndpoint, is_event_stream, is_json, media_type
from smart_mcp_proxy.upstream.http.exchange import RequestBody, Response
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import StreamSession
from smart_mcp_proxy.upstream.protocol.codec import encode_message
from smart_mcp_proxy.upstream.protocol.handshake import Agreement, Post, greet
from smart_mcp_proxy.upstream.protocol.pending import next_request_id
from smart_mcp_proxy.upstream.protocol.session import STOPPED, start_error

_MAX_POSTS: Final = 256
"""At a time; more wait, so that a server that hangs does not use up the sockets of all."""
_MAX_CHORES: Final = 32
"""Messages on their way for which nobody waits; more are dropped."""
_CLOSE_S: Final = 2.0
_NOT_HERE: Final = frozenset({400, 404, 405, 406, 415})
"""Statuses with which a server refuses the older transport where it speaks the newer one."""
_OVER: Final = frozenset({404, 410})
"""Statuses with which a server may refuse what is posted to a session that it no longer knows, whatever its words."""
_STREAM_HEADERS: Final[Mapping[str, str]] = {"Accept": "text/event-stream"}

_log = get_logger("upstream")


async def open_sse(opening: SessionOptions) -> "SseSession":
    """Connects to the server.

    Raises:
        UpstreamAuthError: It asks for a sign-in.
        UpstreamError: It cannot be reached or refuses; the message has the HTTP status.
        UpstreamTimeoutError: It does not answer within `limits.init_s`.
    """
    session = SseSession(opening)
    deadline_s = asyncio.get_running_loop().time() + opening.config.limits.init_s
    await session.connect(deadline_s)
    return await session.establish_session("handshake", deadline_s)


class SseSession(StreamSession):
    """A session over one stream of events, which it stands and falls with.

    Args:
        opening: What it is opened from. A message on the stream that is too large ends the session.
    """

    def __init__(self, opening: SessionOptions) -> None:
        super().__init__(opening.config, opening.on_event, opening.max_message_bytes, opening.peer)
        self._max_message_bytes = opening.max_message_bytes
        self._endpoint = ServerEndpoint(opening, self._lose, self._lose_authorization)
        self._failure = http_failures.HttpFailure("")
        """What ended the session, where more than its reason is known."""
        self._has_address: asyncio.Future[None] = self._loop.create_future()
        self._slots = asyncio.Semaphore(_MAX_POSTS)
        self._reader: asyncio.Task[None] | None = None

    # --- lifetime

    async def connect(self, deadline_s: float) -> None:
        """Opens the stream and waits for the address to post to; closed if that fails.

        Args:
            deadline_s: On the event loop's clock.

        Raises:
            UpstreamError: See `open_sse`.
        """
        try:
            async with asyncio.timeout_at(deadline_s):
                response = await self._endpoint.send("GET", _STREAM_HEADERS)
                if not is_event_stream(response):
                    response.close()
                    raise self._no_stream(response)
                self._reader = spawn(self._read(response), f"upstream-read-{self._server}")
                await self._has_address
        except TimeoutError:
            await self.close()
            raise start_error(self._config) from None
        except BaseException:
            await self.close()
            raise

    def _no_stream(self, response: Response) -> UpstreamError:
        hint = f"If it speaks streamable HTTP: mcpproxy server patch {shell_word(self._server)} type=http"
        if response.status >= 400:
            error = self._endpoint.status_error(response)
            error.hint = hint if response.status in _NOT_HERE else error.hint
            return error
        kind = media_type(response) or "no content type"
        return self._endpoint.error(
            http_failures.HttpFailure(f"opened no stream of events (HTTP {response.status}, {kind})", hint=hint)
        )

    async def close(self) -> None:
        """Ends the session; calls under way fail."""
        self._lose(STOPPED)
        if self._cause is not None:
            await self._await_refusals()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader}, timeout=_CLOSE_S)
        await self._endpoint.stop()
        await self._endpoint.close()

    async def _await_refusals(self) -> None:
        """Wait for what is being posted: it will be refused like the first one, and can be sent again then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(http_failures.REFUSALS_S):
                for _ in range(_MAX_POSTS):
                    await self._slots.acquire()

    async def _negotiate_agreement(self, post: Post, known: Era | None) -> Agreement:
        return await greet(self._server, post, self._declared)  # the transport belongs to the handshake era

    def _lose(self, reason: str, error: UpstreamError | None = None) -> None:
        super()._lose(reason, error)
        if not self._has_address.done():
            self._has_address.set_exception(self._build_lost_error(was_sent=False))
            self._has_address.exception()  # seen: whoever waited may have gone with another error

    def _describe_loss(self, *, was_sent: bool) -> UpstreamError:
        hint = self._failure.hint
        return self._endpoint.build_lost_error(self._reason or "ended", self._cause, was_sent=was_sent, hint=hint)

    # --- the stream

    async def _read(self, response: Response) -> None:
        parser = EventParser(self._max_message_bytes)
        reason = "closed the connection"
        try:
            while chunk := await self._endpoint.read_some(response):
                for number, event in enumerate(parser.feed(chunk), 1):
                    if event.name == "message":
                        await self._inbox.take_message(event.data)
                    elif event.name == "endpoint":
                        self._learn_address(response, event.data)
                    if number % BURST_EVENTS == 0:
                        await asyncio.sleep(0)
        except OversizedEventError:
            self._failure = http_failures.build_too_long_failure(self._max_message_bytes)
            reason = self._failure.reason
        except UpstreamError:
            reason = "broke the connection"
        finally:
            response.close()
            self._lose(reason)

    def _learn_address(self, response: Response, data: bytes) -> None:
        """Take the address to post to, which must be on the stream's own origin."""
        if self._has_address.done():
            return
        try:
            address = urljoin(response.url, data.decode())
            here, there = urlsplit(response.url), urlsplit(address)
            is_own = (here.scheme, here.netloc) == (there.scheme, there.netloc)
        except ValueError:
            is_own = False
        if not is_own:
            self._lose("names an address to post to that is not on its own host")
            return
        self._endpoint.move(address)
        self._has_address.set_result(None)

    # --- sending

    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        body = RequestBody(line)
        try:
            async with asyncio.timeout_at(deadline_s), self._slots:
                response = await self._endpoint.send("POST", {}, body)
                if response.status >= 400 or (response.status == 200 and is_json(response)):
                    await self._read_reply(response, _head(line))
        except TimeoutError:
            if not body.is_sent:
                raise
            return  # its deadline has come, and it may have been carried out
        if not response.is_over:
            self._endpoint.drain_soon(response)

    async def _read_reply(self, response: Response, sent: "_Head") -> None:
        """Read what was said to a message, which should be nothing.

        Raises:
            UpstreamError: It was refused.
        """
        told = await self._endpoint.read_refusal(response)
        response.close()
        body = told or b""
        is_answer = sent.method == "tools/call" and _head(body).id == sent.id
        is_over = response.status == 404 and told is not None and not is_answer and http_failures.refuses_session(told)
        is_accepted = response.status < 400
        words = (
            http_failures.extract_rpc_error_message(body) if is_accepted else http_failures.extract_error_message(body)
        )
        error = self._endpoint.status_error(response, words, is_session_over=is_over)
        if self.protocol_version and (response.status in _OVER or http_failures.is_about_session(error, has_id=False)):
            if is_over or self._reason is not None or await self._is_forgotten():
                self._lose_session(error)
            if self._cause is not None:
                was_refused = False if is_answer else None
                raise http_failures.build_lost_session_error(
                    self._server, error, method=sent.method, was_refused=was_refused
                )
            if response.status == 404:
                error.hint = http_failures.IN_SESSION_HINT
        if not is_accepted:
            raise error

    async def _is_forgotten(self) -> bool:
        """Whether the server refuses a ping, too: a tool may speak of sessions of its own."""
        ping = RequestBody(encode_message({"jsonrpc": "2.0", "id": next_request_id(), "method": "ping"}))
        response = await self._endpoint.send("POST", {}, ping)
        body = await self._endpoint.read_refusal(response) if response.status == 200 and is_json(response) else b""
        response.close()
        return response.status >= 400 or http_failures.extract_rpc_error_message(body or b"") != ""

    def _write_soon(self, line: bytes) -> None:
        if self._endpoint.chores < _MAX_CHORES and not self.is_lost:
            self._endpoint.spawn(self._try_to_write(line))

    async def _try_to_write(self, line: bytes) -> None:
        try:
            await self._write(line, self._loop.time() + self.limits.patience_s)
        except (TimeoutError, UpstreamError) as exc:
            _log.debug("server %s did not take a message: %r", self._server, exc)


class _Head(msgspec.Struct):
    """The head of a message: its own id, or the one that it answers."""

    id: int | str | None = None
    method: str = ""


def _head(message: bytes) -> _Head:
    """The head of a message; an empty one where it is none."""
    try:
        return msgspec.json.decode(message, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        return _Head()
