"""Sessions over streamable HTTP in both eras: raw JSON over kept connections."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era, OnMessage
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.trace_context import trace_fields
from smart_mcp_proxy.upstream.http.endpoint import ServerEndpoint, is_event_stream
from smart_mcp_proxy.upstream.http.exchange import RequestBody, Response
from smart_mcp_proxy.upstream.http.http_session import Announcements, HttpSessionTransport
from smart_mcp_proxy.upstream.http_failures import REFUSALS_S, build_lost_session_error, is_about_session
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol import handshake
from smart_mcp_proxy.upstream.protocol.base_session import UNCANCELLABLE, UpstreamSession
from smart_mcp_proxy.upstream.protocol.codec import encode_message
from smart_mcp_proxy.upstream.protocol.header_rules import HeaderRules
from smart_mcp_proxy.upstream.protocol.inbox import Inbox
from smart_mcp_proxy.upstream.protocol.pending import (
    NO_REPORTS,
    SUBSCRIBE,
    PendingCall,
    PendingCalls,
    Reports,
    drop_reply,
    next_request_id,
)
from smart_mcp_proxy.upstream.protocol.session import STOPPED, after_gap, start_error

_MAX_EXCHANGES: Final = 256
"""Requests to one server at a time; more wait for their turn, so that a server that hangs does not use up the sockets
of all."""
_MAX_ANSWERS: Final = 32
"""Answers on their way to requests of the server's; one that asks faster than it listens gets no more."""
_FIRST_STREAM_S: Final = 0.25
"""Seconds to wait for the stream of announcements. What opens later counts as a change, for the gap before."""
_CHECK_S: Final = 10.0
_LEAST_CHECK_S: Final = 1.0
"""Least seconds that a request waits for the check, however little of its own time is left."""
_CLOSE_S: Final = 2.0
_PROGRESS: Final = b'"notifications/progress"'
_MAYBE_MODERN: Final = frozenset({400, 404, 405, 406, 415})
"""Statuses with which a server that no longer knows `initialize` may answer it, where it gives no JSON-RPC error."""


class Deadline:
    """Time limit of a `with` block, like `asyncio.timeout` for a third of the cost.

    Args:
        seconds: From entering on.
        renewed_until_s: Asked then whether it ends later, on the event loop's clock; None if it never does.
    """

    __slots__ = ("_cancelling", "_handle", "_is_expired", "_is_over", "_renewed_until_s", "_seconds", "_task")

    def __init__(self, seconds: float, renewed_until_s: Callable[[], float] | None = None) -> None:
        self._seconds = seconds
        self._renewed_until_s = renewed_until_s
        self._is_expired = self._is_over = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = loop.call_later(self._seconds, self._look)
        return self

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._renewed_until_s is not None and (until_s := self._renewed_until_s()) > loop.time():
            self._handle = loop.call_at(until_s, self._look)
        else:
            self.expire()

    def expire(self) -> None:
        """Ends the block now, if it has not ended."""
        if not self._is_over:
            self._handle.cancel()
            self._is_expired = self._is_over = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        self._is_over = True
        if self._is_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


async def open_raw_http(opening: SessionOptions) -> "RawHttpSession":
    """Connects to the server and agrees on an era with it.

    Raises:
        UpstreamAuthError: It asks for a sign-in.
        UpstreamError: It cannot be reached or refuses; the message has the HTTP status.
        UpstreamTimeoutError: It does not answer within `limits.init_s`.
    """
    session = RawHttpSession(opening)
    await session.open(opening.era)
    return session


class RawHttpSession(UpstreamSession):
    """A session over HTTP: an exchange for each request, and one stream for unsolicited messages.

    Args:
        opening: What it is opened from.
    """

    def __init__(self, opening: SessionOptions) -> None:
        super().__init__(opening.config, opening.on_event, opening.peer)
        limit = self._max_message_bytes = opening.max_message_bytes
        self._endpoint = ServerEndpoint(opening, self._lose, self._lose_authorization)
        self._inbox = Inbox(
            self._server,
            PendingCalls(self._server),
            opening.on_event,
            self._answer,
            self._say,
            opening.peer,
            self._stream_opened,
        )
        self._session = HttpSessionTransport(self._server, self._endpoint, self._inbox, limit, self._stream_refused)
        self._check: asyncio.Task[None] | None = None
        self._header_rules = HeaderRules(self._server)
        self._slots = asyncio.Semaphore(_MAX_EXCHANGES)
        self._deadlines: set[Deadline] = set()
        self._has_ended_calls = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._is_listening = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RawHttpSession {self._server}, {self._reason or 'open'}, {len(self._inbox.pending)} calls>"

    # --- lifetime

    async def open(self, known: Era | None) -> None:
        """Connects; see `open_raw_http`."""
        try:
            async with asyncio.timeout(self.limits.init_s):
                self._adopt(await self._negotiate_agreement(known))
                with contextlib.suppress(UpstreamError):  # some servers refuse it and work all the same
                    await self.notify("notifications/initialized", {})
                await self._start_listening()
        except TimeoutError:
            await self.close()
            raise start_error(self._config) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session, on the server too; calls under way fail."""
        must_end = self._reason is None and self._session.has_id
        self._lose(STOPPED)
        await self._end_calls()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener}, timeout=_CLOSE_S)
        await self._endpoint.stop()
        if must_end:
            await self._session.end()
        await self._endpoint.close()

    async def _end_calls(self) -> None:
        """Brings all deadlines forward to now, and waits until nobody uses a connection any more.

        Of a session that the server has forgotten, requests under way will mostly be refused like the first one, and
        can be sent again then.
        """
        if self._cause is not None and self._deadlines:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFUSALS_S):
                    await self._has_ended_calls.wait()
        for deadline in self._deadlines:
            deadline.expire()
        if self._deadlines:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._has_ended_calls.wait()

    def _describe_loss(self, *, was_sent: bool) -> UpstreamError:
        return self._endpoint.build_lost_error(self._reason or "ended the session", self._cause, was_sent=was_sent)

    # --- agreeing on an era

    async def _negotiate_agreement(self, known: Era | None) -> handshake.Agreement:
        try:
            return await self._attempt_negotiation(known)
        except UpstreamError as exc:
            if not _hints_at_modern(exc, known):
                raise
        return await self._attempt_negotiation("modern")

    async def _attempt_negotiation(self, known: Era | None) -> handshake.Agreement:
        tasks: list[asyncio.Task[None]] = []
        replies: list[asyncio.Future[RawResult]] = []

        async def post(method: str, params: Mapping[str, Any]) -> "asyncio.Future[RawResult]":
            reply: asyncio.Future[RawResult] = asyncio.get_running_loop().create_future()
            replies.append(reply)
            tasks.append(spawn(self._fulfil(reply, method, params), f"upstream-open-{self._server}"))
            return reply

        try:
            return await handshake.negotiate(self._server, post, known, self._declared)
        finally:
            for task in tasks:
                task.cancel()
            for reply in replies:
                drop_reply(reply)

    async def _fulfil(self, reply: "asyncio.Future[RawResult]", method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self._result(method, params, self.limits.init_s)
        except UpstreamError as exc:
            if not reply.done():
                reply.set_exception(exc)
        else:
            if not reply.done():
                reply.set_result(result)

    def _adopt(self, agreement: handshake.Agreement) -> None:
        super()._adopt(agreement)
        if self.era == "modern":
            self._session.headers.clear()  # an attempt at `initialize` may have left some
        else:
            self._session.headers[MCP_PROTOCOL_VERSION_HEADER] = self.protocol_version

    # --- requests

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends one notification; the modern era has none over HTTP."""
        if self.era == "handshake":
            await super().notify(method, params)

    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout_s: float, reports: Reports, on_message: OnMessage | None
    ) -> RawResult:
        if reports is not NO_REPORTS:
            on_message = on_message and partial(_relay_notification, reports, on_message)
        result = await self._result(method, params, timeout_s, reports, on_message)
        if method != "tools/list" or self.era != "modern":
            return result
        # Of tools that demand headers those that can be used.
        return RawResult(await asyncio.to_thread(self._header_rules.learn, result.text))

    async def _result(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout_s: float,
        reports: Reports = NO_REPORTS,
        on_message: OnMessage | None = None,
    ) -> RawResult:
        """The result of one request, had over an HTTP exchange of its own."""
        if self._reason is not None:
            raise self._build_lost_error(was_sent=False)
        request_id = next_request_id()
        meta = handshake.merge_envelope(params.get("_meta") or {}, self._envelope)
        if reports is not NO_REPORTS:
            meta["progressToken"] = request_id
        if meta:
            params = {**params, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        body = RequestBody(encode_message(message), trace_fields(meta))
        headers = self._headers(method, params)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[RawResult] = loop.create_future()
        self._inbox.pending.add(request_id, PendingCall(method, reply, reports))
        began_s = loop.time()
        is_renewed = reports is not NO_REPORTS
        deadline = Deadline(timeout_s, partial(self._ends_at_s, reports, began_s, timeout_s) if is_renewed else None)
        status = 0
        try:
            with deadline:
                self._deadlines.add(deadline)
                await self._slots.acquire()
                try:
                    status = await self._session.exchange(request_id, method, headers, body, on_message)
                finally:
                    self._slots.release()
            return reply.result()
        except UpstreamError as exc:
            await self._raise_if_forgotten(exc, method, status, self._ends_at_s(reports, began_s, timeout_s))
            raise
        except TimeoutError:
            self._cancel(request_id, method, body)
            if self._reason is not None:
                raise self._build_lost_error(was_sent=body.is_sent) from None
            raise self._late(method, reports, began_s, timeout_s, was_sent=body.is_sent) from None
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._cancel(request_id, method, body)
                raise
            raise self._build_lost_error(was_sent=body.is_sent) from exc
        finally:
            self._deadlines.discard(deadline)
            if self._lost.is_set() and not self._deadlines:
                self._has_ended_calls.set()
            self._inbox.pending.discard(request_id)
            drop_reply(reply)

    async def _raise_if_forgotten(self, error: UpstreamError, method: str, status: int, ends_s: float) -> None:
        """Raise the error of a lost session in the place of a request's own, where that is meant.

        Only a 404 that says nothing else says so for certain. Others, and words about a session, may be those of a
        tool, so the server is asked.

        Args:
            error: The request's own.
            method: Of the request.
            status: Of HTTP, where the error is a JSON-RPC error.
            ends_s: When the request is to end, on the event loop's clock.
        """
        is_agreed = self.era == "handshake" and self.protocol_version
        if not is_agreed or not is_about_session(error, has_id=self._session.has_id, status=status):
            return
        if self._reason is None:
            if asyncio.current_task() is self._check or _is_certain(error):
                self._lose_session(error)
            else:
                left_s = ends_s - asyncio.get_running_loop().time()
                await asyncio.wait({self._ensure_session_check()}, timeout=max(_LEAST_CHECK_S, left_s))
        if self._cause is not None:
            raise build_lost_session_error(self._server, error, method=method) from error

    def _ensure_session_check(self) -> asyncio.Task[None]:
        """The one check under way of whether the server still knows the session."""
        if self._check is None or self._check.done():
            self._check = spawn(self._check_session(), f"upstream-session-{self._server}")
        return self._check

    async def _check_session(self) -> None:
        # Some servers answer a ping before everything else.
        method = "ping" if self.capabilities.get("tools") is None else "tools/list"
        with contextlib.suppress(UpstreamError):
            await self._result(method, {}, _CHECK_S)

    def _stream_refused(self, error: UpstreamError) -> None:
        if self._reason is not None or not is_about_session(error, has_id=True):
            return
        if _is_certain(error):
            self._lose_session(error)
        else:
            self._ensure_session_check()

    def _headers(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        if self.era == "modern":
            return self._header_rules.headers(self.protocol_version, method, params)
        if method == "server/discover":
            return self._header_rules.headers(MODERN_PROTOCOL_VERSIONS[-1], method, params)
        return {} if method == "initialize" else self._session.headers

    def _cancel(self, request_id: int, method: str, body: RequestBody) -> None:
        """Cancel a request at a handshake-era server; at a modern one closing the connection does it."""
        if self.era == "handshake" and body.is_sent and self._reason is None and method not in UNCANCELLABLE:
            params = {"requestId": request_id, "reason": "the caller no longer waits"}
            self._session.say_soon({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _answer(self, message: Mapping[str, Any]) -> None:
        if self._endpoint.chores < _MAX_ANSWERS:
            self._session.say_soon(message)

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self._session.say(message)

    # --- announcements

    async def _start_listening(self) -> None:
        """Open the stream of unsolicited messages, so that no change after the list is missed."""
        is_modern = self.era == "modern"
        if is_modern and not handshake.build_list_subscriptions(self.capabilities):
            return
        if not is_modern and not self._session.has_id:
            return  # without a session the server could not tell to whom to announce
        connect = self._subscription if is_modern else self._announcements
        announcements = Announcements(
            self._server, self._endpoint, connect, partial(self._inbox.take, None), self._max_message_bytes
        )
        self._listener = spawn(announcements.run(), f"upstream-listen-{self._server}")
        is_open = spawn(self._is_listening.wait(), f"upstream-listening-{self._server}")
        await asyncio.wait({self._listener, is_open}, timeout=_FIRST_STREAM_S, return_when=asyncio.FIRST_COMPLETED)
        is_open.cancel()
        self._is_listening.set()

    async def _announcements(self, last_id: str) -> Response:
        response = await self._session.announcements(last_id)
        if is_event_stream(response):
            self._stream_opened()
        return response

    async def _subscription(self, _last_id: str) -> Response:
        params = {"notifications": handshake.build_list_subscriptions(self.capabilities), "_meta": self._envelope}
        message = {"jsonrpc": "2.0", "id": next_request_id(), "method": SUBSCRIBE, "params": params}
        return await self._endpoint.send("POST", self._headers(SUBSCRIBE, params), RequestBody(encode_message(message)))

    def _stream_opened(self) -> None:
        if self._is_listening.is_set():
            for event in after_gap(self.capabilities):  # nobody listened: something may have changed meanwhile
                self._on_event(event)
        self._is_listening.set()


def _hints_at_modern(exc: UpstreamError, known: Era | None) -> bool:
    """Whether a server that refused `initialize` did so because it has left the handshake era behind."""
    if exc.answer is not None and exc.answer.code == UNSUPPORTED_PROTOCOL_VERSION:
        return handshake.choose_supported_version(exc) is not None
    return known == "handshake" and (exc.data or {}).get("http_status") in _MAYBE_MODERN


def _is_certain(error: UpstreamError) -> bool:
    """Whether an error in a session says by itself that the server no longer knows it."""
    return error.delivery == "not_sent" and (error.data or {}).get("http_status") == 404


async def _relay_notification(reports: Reports, on_message: OnMessage, notification: bytes) -> None:
    """Passes on what comes on a request's own exchange, and not through the inbox; notes progress."""
    if _PROGRESS in notification:
        reports.hear()
    await on_message(notification)
