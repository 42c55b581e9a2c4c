"""Sessions with child processes, over their stdin and stdout."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.io.process_state import is_stopped
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.models import Era, OnMessage, OnProgress
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.request_ids import next_request_id
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.codec import (
    encode_message,
    request_line,
)
from smart_mcp_proxy.upstream.protocol.handshake import Agreement, announced, enveloped, modern_meta, negotiate
from smart_mcp_proxy.upstream.protocol.line_inbox import LineInbox
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE, PendingCall, PendingCalls, expire, is_answered
from smart_mcp_proxy.upstream.protocol.progress import NO_FEED, ProgressFeed
from smart_mcp_proxy.upstream.protocol.session import (
    LogLine,
    OnEvent,
    Peer,
    Revived,
    after_gap,
    lost_error,
    timeout_error,
)
from smart_mcp_proxy.upstream.stdio.process import ChildProcess

__all__ = ["StdioLink", "open_stdio"]

_EXIT_NOTICE_S: Final = 0.2
"""After a pipe of it was closed, how long a server may take to have an exit code worth telling."""
_LAST_OUTPUT_S: Final = 0.2
"""After its exit, how long what it wrote may take to be read; a child of its own may hold the pipe open for ever."""
_RENEW_S: Final = 1.0
"""Pause before an ended subscription is made anew."""
_STOPPED_S: Final = 3.0
"""How long a process that a signal has stopped may stay so once a call has timed out; another one is busy, perhaps, and
has `limits.init_s`."""
_LOOK_S: Final = 0.25
"""How often a silent server is looked at."""
_UNCANCELLABLE: Final = frozenset({"initialize", "server/discover"})

_log = get_logger("upstream")


async def open_stdio(
    config: ServerConfig,
    *,
    environ: Mapping[str, str],
    era: Era | None,
    on_event: OnEvent,
    max_message_bytes: int,
    watchdog: Watchdog | None = None,
    peer: Peer | None = None,
) -> "StdioLink":
    """Starts the server and agrees on an era with it.

    Raises:
        UpstreamError: It cannot be started, ends at once, or refuses both eras.
        UpstreamTimeoutError: It does not answer within `limits.init_s`.
    """
    deadline = asyncio.get_running_loop().time() + config.limits.init_s
    link = await _started(config, environ, on_event, max_message_bytes, watchdog, peer)
    try:
        return await link.opened(era, deadline)
    except UpstreamError:
        # Some servers of the handshake era end when anything but `initialize` comes first: once more, without probe.
        if era == "handshake" or not link.is_lost:
            raise
    link = await _started(config, environ, on_event, max_message_bytes, watchdog, peer)
    return await link.opened("handshake", deadline)


async def _started(
    config: ServerConfig,
    environ: Mapping[str, str],
    on_event: OnEvent,
    max_message_bytes: int,
    watchdog: Watchdog | None,
    peer: Peer | None,
) -> "StdioLink":
    child = await ChildProcess.start(config, environ, lambda line: on_event(LogLine(line)), watchdog)
    return StdioLink(config, child, on_event, max_message_bytes, peer)


class StdioLink:
    """A session over a child's pipes.

    Args:
        config: The server, expanded.
        child: Its process, just started.
        on_event: Told of changes and log lines.
        max_message_bytes: Longer messages are refused.
        peer: The one client that the session is for; None where many share it.
    """

    era: Era
    protocol_version: str
    capabilities: Mapping[str, Any]
    server_info: str

    def __init__(
        self,
        config: ServerConfig,
        child: ChildProcess,
        on_event: OnEvent,
        max_message_bytes: int,
        peer: Peer | None = None,
    ) -> None:
        self._server = config.name
        self._init_s = config.limits.init_s
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._peer = peer
        self._on_event = on_event
        self._pending = PendingCalls(config.name, self._lose)
        self._inbox = LineInbox(
            config.name, self._pending, on_event, self._reply_soon, self._say, peer, max_message_bytes=max_message_bytes
        )
        self._reason: str | None = None
        self._lost = asyncio.Event()
        child.offer(self._inbox.take)
        self._reader = spawn(self._read_all(), f"upstream-read-{config.name}")
        self._watcher = spawn(self._watch_exit(), f"upstream-exit-{config.name}")
        self._doubter: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StdioLink {self._server}, {self._child!r}, {len(self._pending)} calls>"

    @property
    def is_lost(self) -> bool:
        """Whether the session ended."""
        return self._reason is not None

    async def opened(self, known: Era | None, deadline: float) -> "StdioLink":
        """This session, once both sides agree; the child is ended if they do not.

        Args:
            known: The era of the last connection.
            deadline: On the event loop's clock.
        """
        futures: list[tuple[int, asyncio.Future[RawResult]]] = []

        async def post(method: str, params: Mapping[str, Any]) -> "asyncio.Future[RawResult]":
            request_id, reply = self._expect(method, NO_FEED)
            futures.append((request_id, reply))
            await self._write(request_line(request_id, method, params))
            return reply

        try:
            async with asyncio.timeout_at(deadline):
                agreement = await negotiate(self._server, post, known, self._peer.capabilities if self._peer else {})
                self._adopt(agreement)
                if agreement.era == "handshake":
                    await self.notify("notifications/initialized", {})
                elif announced(agreement.capabilities):
                    # Sent before anybody can list: a change after the list is never missed.
                    self._listener = spawn(self._listen(await self._subscribed()), f"upstream-listen-{self._server}")
        except TimeoutError:
            await self.close()
            raise timeout_error(self._server, "initialize", self._init_s, was_sent=True) from None
        except BaseException:
            await self.close()
            raise
        finally:
            for request_id, reply in futures:
                self._forget(request_id, reply)
        return self

    def _adopt(self, agreement: Agreement) -> None:
        self.era = agreement.era
        self.protocol_version = agreement.protocol_version
        self._envelope = modern_meta(agreement.protocol_version)
        self.capabilities = agreement.capabilities
        self.server_info = agreement.server_info

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> Coroutine[Any, Any, RawResult]:
        """The `result` of one request exactly as the server wrote it; see `Link.request`."""
        if on_progress is None:
            return self._exchange(method, params, timeout_s, NO_FEED)
        feed = ProgressFeed(on_progress)
        return feed.around(self._exchange(method, params, timeout_s, feed))

    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout_s: float, feed: ProgressFeed
    ) -> RawResult:
        request_id, reply = self._expect(method, feed)
        meta: Mapping[str, Any] = params.get("_meta") or {}
        if self.era == "modern":
            meta = enveloped(meta, self._envelope) if meta else self._envelope
        if feed is not NO_FEED:
            meta = {**meta, "progressToken": request_id}
        is_sent, began_s = False, self._loop.time()
        deadline_s = began_s + timeout_s
        # A timer, not asyncio.timeout around it all: that costs several times as much.
        timer = self._loop.call_at(deadline_s, expire, reply)
        try:
            line = request_line(request_id, method, {**params, "_meta": meta} if meta else params)
            if not self._put(line):
                await self._write(line, deadline_s)
            is_sent = True
            return await reply
        except TimeoutError:
            if self._inbox.heard_s < began_s and (self._doubter is None or self._doubter.done()):
                self._doubter = spawn(self._doubt(), f"upstream-doubt-{self._server}")
            raise timeout_error(self._server, method, timeout_s, was_sent=is_sent) from None
        finally:
            timer.cancel()
            if is_sent and not is_answered(reply):
                self._cancel(request_id, method)
            self._forget(request_id, reply)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends one notification."""
        await self._say({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    async def close(self) -> None:
        """Ends the session and the server's whole process group; calls under way fail."""
        self._lose("was stopped")
        for task in (self._listener, self._doubter, self._watcher, self._reader):
            if task is not None:
                task.cancel()
        await self._child.close()

    async def wait_closed(self) -> UpstreamError:
        """Waits for the end, and says why it came."""
        await self._lost.wait()
        return lost_error(self._server, self._reason or "ended", was_sent=True)

    # --- sending

    def _expect(self, method: str, feed: ProgressFeed) -> tuple[int, "asyncio.Future[RawResult]"]:
        if self._reason is not None:
            raise lost_error(self._server, self._reason, was_sent=False)
        request_id = next_request_id()
        reply: asyncio.Future[RawResult] = self._loop.create_future()
        self._pending.add(request_id, PendingCall(method, reply, feed))
        return request_id, reply

    def _forget(self, request_id: int, reply: "asyncio.Future[RawResult]") -> None:
        self._pending.discard(request_id)
        if not reply.cancel() and not reply.cancelled():
            reply.exception()  # seen: whoever waited may have gone with another error

    def _put(self, line: bytes) -> bool:
        """Hands a line to the server without waiting; False where that has to be done with `_write`."""
        try:
            return self._child.put(line)
        except ConnectionError:
            return False

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self._write(encode_message(message))

    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._child.write(line)
        except ConnectionError as exc:
            await self._lose_pipe("closed its input")
            raise lost_error(self._server, self._reason or "", was_sent=False) from exc

    def _cancel(self, request_id: int, method: str) -> None:
        """Send a cancellation without waiting: the caller may be in the middle of leaving."""
        if method in _UNCANCELLABLE:
            return
        params = {"requestId": request_id, "reason": "the caller no longer waits"}
        line = encode_message({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        self._child.write_soon(line)

    # --- receiving

    async def _read_all(self) -> None:
        await self._inbox.read(self._child.read)
        await self._lose_pipe("closed its output")

    async def _watch_exit(self) -> None:
        code = await self._child.wait()
        await asyncio.wait({self._reader}, timeout=_LAST_OUTPUT_S)
        self._lose("ended" if code is None else f"ended with {_exit_words(code)}")

    async def _doubt(self) -> None:
        """End the session if the server stays silent: a stopped process never ends by itself."""
        silent_since_s, began_s = self._inbox.heard_s, self._loop.time()
        method = "ping" if self.era == "handshake" else "server/discover"
        params = {"_meta": self._envelope} if self.era == "modern" else {}
        self._child.write_soon(request_line(next_request_id(), method, params))
        while self._loop.time() - began_s < (_STOPPED_S if is_stopped(self._child.pid) else self._init_s):
            await asyncio.sleep(_LOOK_S)
            if self._inbox.heard_s != silent_since_s:
                self._on_event(Revived())
                return
        self._lose(f"does not even answer '{method}'")

    def _reply_soon(self, reply: Mapping[str, Any]) -> None:
        self._child.write_soon(msgspec.json.encode(reply) + b"\n")

    async def _subscribed(self) -> "tuple[int, asyncio.Future[RawResult]]":
        """Id and future end of a new subscription to changes of lists; the changes come as notifications."""
        request_id, end = self._expect(SUBSCRIBE, NO_FEED)
        params = {"notifications": announced(self.capabilities), "_meta": self._envelope}
        await self._write(request_line(request_id, SUBSCRIBE, params))
        return request_id, end

    async def _listen(self, subscription: "tuple[int, asyncio.Future[RawResult]]") -> None:
        """Renews the subscription whenever the server ends it, for as long as it offers one."""
        while True:
            request_id, end = subscription
            try:
                await end
                await asyncio.sleep(_RENEW_S)
                subscription = await self._subscribed()
            except UpstreamError as exc:
                _log.debug("server %s offers no subscription: %s", self._server, exc)
                return
            finally:
                self._forget(request_id, end)
            for event in after_gap(self.capabilities):  # there was a gap: something may have changed in it
                self._on_event(event)

    async def _lose_pipe(self, words: str) -> None:
        """Ends the session because a pipe is closed: mostly its server has just ended, which says more."""
        code = await self._child.wait(_EXIT_NOTICE_S)
        self._lose(words if code is None else f"ended with {_exit_words(code)}")

    def _lose(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._pending.fail_all(lambda: lost_error(self._server, reason, was_sent=True))
            self._lost.set()


def _exit_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
