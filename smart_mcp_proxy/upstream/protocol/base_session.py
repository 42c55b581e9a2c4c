"""Base of all sessions: facts agreed on, requests on a stream of messages, the end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, Self

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.extensions import SHOWS_APPS
from smart_mcp_proxy.models import Era, OnMessage, OnProgress
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import get_logger, redact, spawn
from smart_mcp_proxy.upstream.protocol import handshake
from smart_mcp_proxy.upstream.protocol.codec import encode_message, request_line
from smart_mcp_proxy.upstream.protocol.inbox import LineInbox
from smart_mcp_proxy.upstream.protocol.pending import (
    NO_REPORTS,
    SUBSCRIBE,
    PendingCall,
    PendingCalls,
    Reports,
    drop_reply,
    expire,
    is_answered,
    next_request_id,
)
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import (
    OnEvent,
    after_gap,
    build_lost_error,
    ends_at_s,
    late_error,
    see_log,
    start_error,
)

UNCANCELLABLE: Final = frozenset({"initialize", "server/discover"})
"""Requests that a client may not cancel.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation"""
_RENEW_S: Final = 1.0
"""Pause before an ended subscription is made anew."""

_log = get_logger("upstream")


class UpstreamSession(ABC):
    """An open, negotiated session, whatever carries it. Safe for many requests at once.

    Args:
        config: The server, expanded.
        on_event: Told of changes and log lines.
        peer: The one client that the session is for; None where many share it.

    Attributes:
        era, protocol_version: Generation and version of the protocol that were agreed on.
        capabilities: What the server declared.
        server_info: Name and version as the server gives them, for display only.
        run: Names the server's process, where another worker runs it; else empty.
        limits: The server's; other ones hold from the next request on.
        folders: Those that the gateway gave the server's process; none where there is none.
    """

    def __init__(self, config: ServerConfig, on_event: OnEvent, peer: Conversation | None) -> None:
        self.era: Era = "handshake"
        self.protocol_version = ""
        self.capabilities: Mapping[str, Any] = {}
        self.server_info = ""
        self.run = ""
        self.limits = config.limits
        self.folders: tuple[str, ...] = ()
        self._server = config.name
        self._config = config
        self._on_event = on_event
        # Of a shared session the calls are everybody's, unless each client has one of its own: then it is for lists.
        shared = {"extensions": SHOWS_APPS} if config.connection == "per_client" else {}
        self._declared: Mapping[str, Any] = peer.capabilities if peer is not None else shared
        self._envelope: Mapping[str, Any] = {}
        """`_meta` of every request of the modern era."""
        self._reason: str | None = None
        self._end_error: UpstreamError | None = None
        self._cause: UpstreamError | None = None
        """By which the server says that it no longer knows the session."""
        self._lost = asyncio.Event()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._server}, {self._reason or 'open'}>"

    @property
    def is_lost(self) -> bool:
        """Whether the session ended."""
        return self._reason is not None

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> Coroutine[Any, Any, RawResult]:
        """The `result` of one request exactly as the server wrote it.

        Args:
            method: A method of the protocol.
            params: Its parameters.
            timeout_s: Total, counted anew from each report of progress; see `ends_at_s`.
            on_progress: Where progress goes.
            on_message: Where the notifications go that come on the request's own exchange, progress among them; the
                server waits while one is dealt with. Where requests share a stream there are none.

        Raises:
            UpstreamError: The server answered with an error, or the session failed; `delivery` says which.
            UpstreamTimeoutError: No answer within `timeout_s`; the server was told to stop.
        """
        # Nobody asked for progress, and no limit that it could renew is set: as nearly always.
        if on_progress is None and (self.limits.call_max_s is None or method != "tools/call"):
            return self._exchange(method, params, timeout_s, NO_REPORTS, on_message)
        reports = Reports(on_progress)
        return reports.around(self._exchange(method, params, timeout_s, reports, on_message))

    @abstractmethod
    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout_s: float, reports: Reports, on_message: OnMessage | None
    ) -> RawResult:
        """Send a request and return its result; see `request`."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends one notification; nobody answers."""
        await self._say({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    @abstractmethod
    async def _say(self, message: Mapping[str, Any]) -> None:
        """Send a message that nobody answers."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session within seconds, and with it all that it started. Calls under way fail."""

    def note_timeout(self, began_s: float) -> None:  # noqa: B027  (most sessions need not know)
        """Note that a request, begun at this time of the event loop, had no answer in time."""

    async def wait_closed(self) -> UpstreamError:
        """Waits for the end, and says why it came."""
        await self._lost.wait()
        return self._end_error or self._build_lost_error(was_sent=True)

    def _adopt(self, agreement: handshake.Agreement) -> None:
        self.era = agreement.era
        self.protocol_version = agreement.protocol_version
        self.capabilities = agreement.capabilities
        self.server_info = agreement.server_info
        if self.era == "modern":
            self._envelope = handshake.modern_meta(self.protocol_version)

    def _lose(self, reason: str, error: UpstreamError | None = None) -> None:
        """End the session for a reason, in words to follow the server's name; the first one counts.

        Args:
            reason: For the requests under way.
            error: For the supervisor, where it should know more.
        """
        if self._reason is None:
            self._reason, self._end_error = reason, error
            self._lost.set()

    def _ends_at_s(self, reports: Reports, began_s: float, timeout_s: float) -> float:
        return ends_at_s(self.limits, began_s, timeout_s, reports.heard_s)

    def _late(
        self, method: str, reports: Reports, began_s: float, timeout_s: float, *, was_sent: bool
    ) -> UpstreamTimeoutError:
        """The error of a request that had no answer in time."""
        return late_error(self._server, method, self.limits, began_s, timeout_s, reports.heard_s, was_sent=was_sent)

    def _lose_session(self, cause: UpstreamError) -> None:
        """End the session because the server no longer knows it."""
        if self._reason is None:
            self._cause = cause
            self._lose("has forgotten the session", self._build_lost_error(was_sent=False))

    def _lose_authorization(self, error: UpstreamError) -> None:
        self._lose("is no longer signed in to", error)

    def _build_lost_error(self, *, was_sent: bool) -> UpstreamError:
        """The error of a request that the end of the session leaves without an answer."""
        end = self._end_error
        if isinstance(end, UpstreamAuthError):  # a new sign-in is what helps
            return UpstreamAuthError(end.message, hint=end.hint, delivery="unknown" if was_sent else "not_sent")
        return self._describe_loss(was_sent=was_sent)

    def _describe_loss(self, *, was_sent: bool) -> UpstreamError:
        """The same by the reason for which the session ended."""
        return build_lost_error(self._server, self._reason or "ended", was_sent=was_sent)


class OpenSession(Protocol):
    """Opens sessions."""

    def __call__(
        self,
        config: ServerConfig,
        *,
        environ: Mapping[str, str],
        era: Era | None,
        on_event: OnEvent,
        peer: Conversation | None = None,
    ) -> Awaitable[UpstreamSession]:
        """A negotiated session with the server that `config` (already expanded) describes.

        Args:
            config: The server.
            environ: The gateway's own environment.
            era: What the server spoke last time, to save the probe.
            on_event: Told of changes and log lines.
            peer: The one client that the session is for; None where many share it.
        """


class StreamSession(UpstreamSession):
    """A session whose messages all come on one stream, in any order.

    Args:
        config: The server, expanded.
        on_event: Told of changes and log lines.
        max_message_bytes: Longer messages are refused.
        peer: The one client that the session is for; None where many share it.
        put: Sends one line at once; False where that has to wait.
    """

    def __init__(
        self,
        config: ServerConfig,
        on_event: OnEvent,
        max_message_bytes: int,
        peer: Conversation | None,
        put: Callable[[bytes], bool] = lambda line: False,
    ) -> None:
        super().__init__(config, on_event, peer)
        self._loop = asyncio.get_running_loop()
        self._put = put
        self._pending = PendingCalls(config.name, self._lose)
        self._inbox = LineInbox(
            config.name, self._pending, on_event, self._reply_soon, self._say, peer, max_message_bytes=max_message_bytes
        )
        self._listener: asyncio.Task[None] | None = None

    # --- carried by

    @abstractmethod
    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        """Send one line.

        Args:
            line: Text of a message.
            deadline_s: On the event loop's clock.

        Raises:
            UpstreamError: It cannot be sent.
            TimeoutError: Nothing of it was sent by then.
        """

    @abstractmethod
    def _write_soon(self, line: bytes) -> None:
        """Send one small line without waiting; dropped where the server does not read."""

    async def _negotiate_agreement(self, post: handshake.Post, known: Era | None) -> handshake.Agreement:
        return await handshake.negotiate(self._server, post, known, self._declared)

    # --- lifetime

    async def establish_session(self, known: Era | None, deadline_s: float) -> Self:
        """This session, once both sides agree; closed if they do not.

        Args:
            known: The era of the last connection.
            deadline_s: On the event loop's clock.
        """
        sent: list[tuple[int, asyncio.Future[RawResult]]] = []

        async def post(method: str, params: Mapping[str, Any]) -> "asyncio.Future[RawResult]":
            request_id, reply = self._expect(method, NO_REPORTS)
            sent.append((request_id, reply))
            await self._write(request_line(request_id, method, params))
            return reply

        try:
            async with asyncio.timeout_at(deadline_s):
                agreement = await self._negotiate_agreement(post, known)
                self._adopt(agreement)
                if agreement.era == "handshake":
                    await self.notify("notifications/initialized", {})
                elif handshake.build_list_subscriptions(agreement.capabilities):
                    # Sent before anybody can list: a change after the list is never missed.
                    self._listener = spawn(
                        self._listen(await self._send_subscription()), f"upstream-listen-{self._server}"
                    )
        except TimeoutError:
            await self.close()
            raise self._with_noise(start_error(self._config)) from None
        except BaseException:
            await self.close()
            raise
        finally:
            for request_id, reply in sent:
                self._forget(request_id, reply)
        return self

    def _with_noise(self, late: UpstreamTimeoutError) -> UpstreamTimeoutError:
        """The error of a start that took too long, where other text came in place of an answer."""
        if not (noise := redact(self._inbox.unread)):
            return late
        return UpstreamTimeoutError(
            late.message,
            hint=f"What it writes to stdout is no MCP message: it may wait for a person, or need an option for stdio. "
            f"{see_log(self._server)}",
            delivery=late.delivery,
            said=f"It wrote to stdout: '{noise}'",
        )

    def _lose(self, reason: str, error: UpstreamError | None = None) -> None:
        if self._reason is None:
            super()._lose(reason, error)
            self._pending.fail_all(lambda: self._build_lost_error(was_sent=True))

    # --- requests

    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout_s: float, reports: Reports, on_message: OnMessage | None
    ) -> RawResult:
        request_id, reply = self._expect(method, reports)
        meta: Mapping[str, Any] = params.get("_meta") or {}
        if self.era == "modern":
            meta = handshake.merge_envelope(meta, self._envelope) if meta else self._envelope
        if reports is not NO_REPORTS:
            meta = {**meta, "progressToken": request_id}
        is_sent, began_s = False, self._loop.time()
        deadline_s = began_s + timeout_s
        # A timer, not asyncio.timeout around it all: that costs several times as much.
        timer = self._loop.call_at(deadline_s, self._expire, reply, reports, began_s, timeout_s)
        try:
            line = request_line(request_id, method, {**params, "_meta": meta} if meta else params)
            if not self._put(line):
                await self._write(line, deadline_s)
            is_sent = True
            return await reply
        except TimeoutError:
            self.note_timeout(began_s)
            raise self._late(method, reports, began_s, timeout_s, was_sent=is_sent) from None
        finally:
            timer.cancel()
            if is_sent and not is_answered(reply):
                self._cancel(request_id, method)
            self._forget(request_id, reply)

    def _expire(self, reply: "asyncio.Future[RawResult]", reports: Reports, began_s: float, timeout_s: float) -> None:
        """End the wait for a reply, unless there was progress meanwhile."""
        # Looked at only here, where the time is over: a call pays nothing for it.
        end_s = self._ends_at_s(reports, began_s, timeout_s)
        if end_s > self._loop.time() and not reply.done():
            self._loop.call_at(end_s, self._expire, reply, reports, began_s, timeout_s)
        else:
            expire(reply)

    def _expect(self, method: str, reports: Reports) -> tuple[int, "asyncio.Future[RawResult]"]:
        if self._reason is not None:
            raise self._build_lost_error(was_sent=False)
        request_id = next_request_id()
        reply: asyncio.Future[RawResult] = self._loop.create_future()
        self._pending.add(request_id, PendingCall(method, reply, reports))
        return request_id, reply

    def _forget(self, request_id: int, reply: "asyncio.Future[RawResult]") -> None:
        self._pending.discard(request_id)
        drop_reply(reply)

    def _cancel(self, request_id: int, method: str) -> None:
        """Send a cancellation without waiting: the caller may be in the middle of leaving."""
        if method in UNCANCELLABLE:
            return
        params = {"requestId": request_id, "reason": "the caller no longer waits"}
        self._write_soon(encode_message({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))

    # --- messages that nobody answers

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self._write(encode_message(message))

    def _reply_soon(self, reply: Mapping[str, Any]) -> None:
        self._write_soon(encode_message(reply))

    # --- changes of lists, in the modern era

    async def _send_subscription(self) -> "tuple[int, asyncio.Future[RawResult]]":
        """Id and future end of a new subscription to changes of lists; the changes come as notifications."""
        request_id, end = self._expect(SUBSCRIBE, NO_REPORTS)
        params = {"notifications": handshake.build_list_subscriptions(self.capabilities), "_meta": self._envelope}
        await self._write(request_line(request_id, SUBSCRIBE, params))
        return request_id, end

    async def _listen(self, subscription: "tuple[int, asyncio.Future[RawResult]]") -> None:
        """Renews the subscription whenever the server ends it, for as long as it offers one."""
        while True:
            request_id, end = subscription
            try:
                await end
                await asyncio.sleep(_RENEW_S)
                subscription = await self._send_subscription()
            except UpstreamError as exc:
                _log.debug("server %s offers no subscription: %s", self._server, exc)
                return
            finally:
                self._forget(request_id, end)
            for event in after_gap(self.capabilities):  # there was a gap: something may have changed in it
                self._on_event(event)
