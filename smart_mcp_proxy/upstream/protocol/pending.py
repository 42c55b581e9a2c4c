"""Requests under way on one session: their ids, their waiting callers and their progress."""

import asyncio
import contextlib
import math
import os
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import OnProgress, ProgressReport
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.codec import BrokenMessage, Envelope, RpcError
from smart_mcp_proxy.upstream.protocol.session import rpc_error

_PROMPT_REPORTS = 10
"""Reports of a call that are passed on as they come: a short call has all of them passed on."""
_INTERVAL_S = 0.1
"""Seconds between later ones: at most ten a second reach the caller; a server may send thousands."""
_LAST_WORD_S = 1.0
"""Seconds that a finished call may be held up by a listener that takes its last report."""
_MESSAGE_CHARS: Final = 1 << 16
"""Limit on one report, as on every other notification of a server that its client gets."""

_log = get_logger("upstream")

SUBSCRIBE: Final = "subscriptions/listen"
"""A request that stays open for as long as the session: no reply without a usable id is ever meant for it."""

_MOST_GARBLED: Final = 5
_GARBLED_WITHIN_S: Final = 60.0
"""Source: docs/design/limits.md#garbled-answers"""

_LEAST_ID: Final = 1 << 48
"""Least of all ids. With 48 random bits on top of it each has 15 digits: JavaScript keeps such a number, and so does a
server that reads it as a floating-point number and writes 15 digits of it."""
_SPARE_ID_BITS: Final = 16
"""Bits that are dropped of each 64 that are drawn."""
_ID_BATCH: Final = 512
"""Drawn at a time: one system call for all of them."""

_CUT_ID: Final = (1 << 32) - 1
"""Bits left of an id in a server that keeps 32 of them, as those made with rmcp 0.1.5 do."""

_drawn_ids: list[int] = []


def _drop_long_message(report: ProgressReport) -> ProgressReport:
    """The report without words that are longer than any that somebody reads: several wait at a time."""
    size = len(report.message or "")
    if size <= _MESSAGE_CHARS:
        return report
    return msgspec.structs.replace(report, message=f"(a message of {size:,} characters is left out)")


def next_request_id() -> int:
    """A random JSON-RPC id, of 48 bits nobody can foresee.

    A reply that comes late, even from before a reconnect, or unasked for meets no other request.
    """
    try:
        return _drawn_ids.pop()
    except IndexError:
        numbers = array("Q", os.urandom(8 * _ID_BATCH))
        _drawn_ids.extend([_LEAST_ID | number >> _SPARE_ID_BITS for number in numbers])
        return _drawn_ids.pop()


def is_same_id(answered: int, request_id: int) -> bool:
    """Whether a reply's id is this one, or its last 32 bits, signed or not."""
    is_cut = -(_CUT_ID >> 1) <= answered <= _CUT_ID and answered & _CUT_ID == request_id & _CUT_ID
    return answered == request_id or is_cut


class Reports:
    """Reports of one request's progress, in a task of their own; most requests have none.

    Args:
        on_progress: Where they go; None drops them.

    Attributes:
        heard_s: When the last one came, on the event loop's clock; 0 for never.
    """

    __slots__ = ("_highest", "_is_over", "_offered", "_on_progress", "_pump", "_waiting", "heard_s")

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.heard_s = 0.0
        self._on_progress = on_progress
        self._highest = -math.inf
        self._offered = 0
        self._waiting = deque[ProgressReport]()
        self._pump: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    def hear(self) -> None:
        """Notes that there is progress: the limit of the request counts from now."""
        self.heard_s = asyncio.get_running_loop().time()

    def offer(self, report: ProgressReport) -> None:
        """Takes a report; one that does not go beyond the last is dropped, a late one that waits is replaced."""
        self.hear()
        if self._on_progress is None or report.progress <= self._highest:
            return
        self._highest = report.progress
        self._offered += 1
        if self._offered > _PROMPT_REPORTS and self._waiting:
            self._waiting.pop()
        self._waiting.append(_drop_long_message(report))
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._deliver_all(), "upstream-progress")

    async def around(self, request: Awaitable[RawResult]) -> RawResult:
        """The result of the request whose reports come here, once the caller has the last of them."""
        try:
            result = await request
            self._is_over.set()
            if self._pump is not None:
                await asyncio.wait({self._pump}, timeout=_LAST_WORD_S)
            return result
        finally:
            self._on_progress = None  # what comes late is dropped
            if self._pump is not None:
                self._pump.cancel()

    async def _deliver_all(self) -> None:
        while self._waiting:
            await self._deliver(self._waiting.popleft())
            if self._offered < _PROMPT_REPORTS:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._is_over.wait()

    async def _deliver(self, report: ProgressReport) -> None:
        if self._on_progress is None:
            return
        try:
            await self._on_progress(report)
        except Exception as exc:  # noqa: BLE001  # boundary: callback fan-out; a listener must not fail the call
            _log.warning("a progress listener failed: %s", exc)


NO_REPORTS: Final = Reports(None)
"""Reports of every request whose progress nobody asked for."""


class PendingCall(NamedTuple):
    """Request that waits for its response."""

    method: str
    reply: "asyncio.Future[RawResult]"
    reports: Reports


class _ProgressParams(msgspec.Struct):
    progressToken: int | str  # noqa: N815  (the protocol's name)
    progress: float
    total: float | None = None
    message: str | None = None


class PendingCalls:
    """Gives each reply to the one request it answers; what answers none is dropped.

    Args:
        server: Configured name, for messages.
        on_garbled: Told why, when what the server writes cannot be read and the session is of no more use.
    """

    def __init__(self, server: str, on_garbled: Callable[[str], None] = lambda reason: None) -> None:
        self._server = server
        self._on_garbled = on_garbled
        self._garbled_s: deque[float] = deque(maxlen=_MOST_GARBLED)
        self._calls: dict[int, PendingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, request_id: int, call: PendingCall) -> None:
        """Expects a reply with this id."""
        self._calls[request_id] = call

    def discard(self, request_id: int) -> None:
        """Expects it no longer."""
        self._calls.pop(request_id, None)

    def settle(self, message: Envelope, exchange_id: int | None = None) -> bool:
        """Hands a reply to its request; False if there is none.

        Args:
            message: The reply.
            exchange_id: The request on whose own exchange it came, where it carries no id.
        """
        request_id = message.request_id if exchange_id is None else exchange_id
        call = None
        if request_id is not None:
            call = self._calls.get(request_id) or self._find_cut(request_id)
        if call is None:
            # An id that was lost (not another one): if only one call can be meant, it need not wait for its deadline.
            return exchange_id is None and message.has_lost_id and self._fail_only("it carries no usable id")
        result, error = message.read_result(), bytes(message.error)
        if error and result is None:
            failure = _parse_rpc_error(self._server, call.method, error)
            if exchange_id is not None and failure.answer is not None:
                failure.answer = msgspec.structs.replace(failure.answer, has_id=False)
            self._fail(call, failure)
        elif result is not None and result.pieces[0].startswith(b"{"):
            if not call.reply.done():
                call.reply.set_result(result)
        else:
            self._fail(call, self._build_unreadable_error(call, "its result is no JSON object"))
        return True

    def _find_cut(self, answered: int) -> PendingCall | None:
        """Find the request whose id came back in fewer bits, if only one can be meant."""
        found = [call for request_id, call in self._calls.items() if is_same_id(answered, request_id)]
        return found[0] if len(found) == 1 else None

    def settle_broken(self, message: BrokenMessage, *, is_garbled: bool = True) -> bool:
        """Fails the request that a broken reply belongs to, if that is certain; False if it is not.

        Args:
            message: What there is of it.
            is_garbled: It cannot be read; else it could be, and is not accepted.
        """
        if message.request_id is None:
            is_met = self._fail_only(message.reason)
        elif is_met := (call := self._calls.get(message.request_id)) is not None:
            self._fail(call, self._build_unreadable_error(call, message.reason))
        if is_met and is_garbled:
            self._count_garbled()
        return is_met

    def give_up(self, reason: str) -> None:
        """End the session, whose server writes nothing that can be read."""
        self._on_garbled(reason)

    def _count_garbled(self) -> None:
        now = time.monotonic()
        self._garbled_s.append(now)
        if len(self._garbled_s) == _MOST_GARBLED and now - self._garbled_s[0] <= _GARBLED_WITHIN_S:
            self._on_garbled(f"sent {_MOST_GARBLED} answers within {_GARBLED_WITHIN_S:g} s that cannot be read")

    def report(self, params: bytes) -> None:
        """Passes a progress notification to its call; a malformed or late one is dropped."""
        try:
            report = msgspec.json.decode(params, type=_ProgressParams)
            token = int(report.progressToken)
        except (msgspec.DecodeError, ValueError):
            return
        call = self._calls.get(token) or self._find_cut(token)
        if call is not None and call.reports is not NO_REPORTS and not call.reply.done():
            call.reports.offer(ProgressReport(report.progress, report.total, report.message))

    def fail_all(self, error: Callable[[], UpstreamError]) -> None:
        """Fails whatever is still waiting, each with an error of its own."""
        for call in tuple(self._calls.values()):
            self._fail(call, error())

    def _fail_only(self, reason: str) -> bool:
        calls = [call for call in self._calls.values() if call.method != SUBSCRIBE]
        if len(calls) != 1:
            return False
        self._fail(calls[0], self._build_unreadable_error(calls[0], reason))
        return True

    def _build_unreadable_error(self, call: PendingCall, reason: str) -> UpstreamError:
        return UpstreamError(
            f"Server '{self._server}' sent an answer to '{call.method}' that cannot be read: {reason}.",
            hint="The server is at fault; the call may have been carried out.",
            delivery="unknown",
        )

    @staticmethod
    def _fail(call: PendingCall, error: UpstreamError) -> None:
        if not call.reply.done():
            call.reply.set_exception(error)


def _parse_rpc_error(server: str, method: str, text: bytes) -> UpstreamError:
    try:
        error = msgspec.json.decode(text, type=RpcError)
    except (msgspec.DecodeError, RecursionError):  # a bare string, say: show it as it is
        error = RpcError(0, text[:500].decode(errors="replace"))
    return rpc_error(server, method, error.code, error.message, error.data)


def expire(reply: "asyncio.Future[RawResult]") -> None:
    """Ends the wait for a reply that did not come in time, with a TimeoutError."""
    if not reply.done():
        reply.set_exception(TimeoutError())


def is_answered(reply: "asyncio.Future[RawResult]") -> bool:
    """Whether the server, or its end, has decided: not we, by giving up."""
    return reply.done() and not reply.cancelled() and not isinstance(reply.exception(), TimeoutError)


def drop_reply(reply: "asyncio.Future[RawResult]") -> None:
    """Waits for a reply no longer; its error counts as seen: whoever waited may have another."""
    if not reply.cancel() and not reply.cancelled():
        reply.exception()
