"""Whether calls are held back because what they ask keeps failing. No clock of its own, no waiting.

closed --failures--> open --time--> half-open: one call tries --it succeeds--> closed, --it fails--> open for longer.
"""

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from smart_mcp_proxy.errors import ProxyError, UpstreamError, UpstreamTimeoutError

FAILURES_IN_A_ROW: Final = 5
WINDOW_S: Final = 30.0
WINDOW_CALLS: Final = 10
WINDOW_FAILED: Final = 0.5
"""Held back after five failures in a row, or when half of at least ten calls within 30 s failed.
Source: docs/design/limits.md#the-breaker"""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""From the first to the longest it doubles with every call that was let through and failed."""
JITTER: Final = 0.5
"""Part of each pause that is left to chance: servers that failed together are not tried together."""
PROBE_RETRY_S: Final = 1.0
"""Seconds that others should wait while one call tries."""

_UNREACHED: Final = frozenset({502, 503, 504, 521, 522, 523, 524})
"""HTTP statuses by which something in front of a server says that it was not reached or did not answer in time.
Source: RFC 9110, sections 15.6.3 to 15.6.5;
https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/"""


Epochs = tuple[int, int]
"""Epochs of a server's breaker and of an item's; 0 where the item has none."""


class BreakerState(StrEnum):
    """closed lets calls through, open holds them back, half_open lets one through to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CallEnd(StrEnum):
    """The end of a call, as far as it says something about the server or about its tool."""

    ANSWERED = "answered"
    """Within its deadline, whatever the answer says: the server is alive."""
    UNREACHED = "unreached"
    """Not sent, because there was no connection: the server as a whole failed."""
    UNANSWERED = "unanswered"
    """Sent, and no answer came: what was called failed. The rest of the server may be well."""
    UNCLEAR = "unclear"
    """Not the server's doing: cancelled, refused before it was sent, or the server is known not to be ready."""


def classify_end(error: BaseException | None) -> CallEnd:
    """The end of a call that raised `error`, or nothing (None).

    An error that a server answers with is an answer: many report every mistake of an agent as JSON-RPC's "internal
    error" or HTTP 500. Only a lost connection and a missed deadline are failures.
    """
    if error is None:
        return CallEnd.ANSWERED
    if not isinstance(error, ProxyError):
        return CallEnd.UNCLEAR
    if error.delivery == "executed":
        return CallEnd.ANSWERED
    if not isinstance(error, UpstreamError):
        return CallEnd.UNCLEAR
    status = (error.data or {}).get("http_status")
    if isinstance(error, UpstreamTimeoutError) or error.is_lost or status in _UNREACHED:
        return CallEnd.UNREACHED if error.delivery == "not_sent" else CallEnd.UNANSWERED
    return CallEnd.ANSWERED if error.was_answered or status is not None else CallEnd.UNCLEAR


class Breaker:
    """Counts how calls of a server, or of one of its tools, end; holds them back while they fail.

    Each call asks first; one that goes ahead reports its end with the `epoch` it went ahead in. What ends in a later
    epoch than it began is not counted: a slow call from before must not decide about the server as it is now.

    Args:
        rng: Source of jitter.

    Attributes:
        state: At present.
        epoch: Changes with every change of the state.
        reason: Why it opened last, as the end of a sentence about the server.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.epoch = 0
        self.reason = ""
        self.state = BreakerState.CLOSED
        self._pause_s = FIRST_PAUSE_S
        self._until_s = self._probe_until_s = self._window_s = 0.0
        self._in_a_row = self._calls = self._failed = 0

    def __repr__(self) -> str:
        return f"<Breaker {self.state}, {self._in_a_row} failures in a row>"

    def wait_s(self, now_s: float) -> float:
        """Seconds until it is worth asking, 0 if a call may go ahead now."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        if self.state is BreakerState.OPEN:
            return max(0.0, self._until_s - now_s)
        return PROBE_RETRY_S if now_s < self._probe_until_s else 0.0

    def ask(self, now_s: float, call_s: float) -> float:
        """As `wait_s`; where it is 0 the call goes ahead, as the one that tries if the server has failed.

        Args:
            now_s: Monotonic seconds.
            call_s: The longest a call takes: a try that has not ended by then is taken for lost.
        """
        wait_s = self.wait_s(now_s)
        if not wait_s and self.state is not BreakerState.CLOSED:
            self._move(BreakerState.HALF_OPEN)
            self._probe_until_s = now_s + call_s
        return wait_s

    def record_success(self, epoch: int, now_s: float) -> None:
        """A call was answered."""
        if epoch != self.epoch:
            return
        if self.state is BreakerState.HALF_OPEN:
            self._close()
            return
        self._in_a_row = 0
        self._count(now_s, is_failed=False)

    def record_failure(self, epoch: int, now_s: float) -> None:
        """A call ended in a way that speaks against the server."""
        if epoch != self.epoch:
            return
        if self.state is BreakerState.HALF_OPEN:
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            self._open(now_s, "failed again")
            return
        self._in_a_row += 1
        self._count(now_s, is_failed=True)
        if self._in_a_row >= FAILURES_IN_A_ROW:
            self._open(now_s, f"failed {self._in_a_row} calls in a row")
        elif self._calls >= WINDOW_CALLS and self._failed >= WINDOW_FAILED * self._calls:
            self._open(now_s, f"failed {self._failed} of {self._calls} calls")

    def record_inconclusive(self, epoch: int) -> None:
        """A call ended without saying anything about the server; if it was the one that tries, another may."""
        if epoch == self.epoch and self.state is BreakerState.HALF_OPEN:
            self._move(BreakerState.OPEN)

    def hold(self, now_s: float, wait_s: float) -> None:
        """The server itself asks for a pause of `wait_s` seconds, of which at most 60 are kept."""
        self._move(BreakerState.OPEN)
        self._until_s = max(self._until_s, now_s + min(wait_s, LONGEST_PAUSE_S))
        self.reason = "asked for a pause"

    def reset(self) -> None:
        """Forgets everything: the server was connected anew."""
        self._close()

    def _open(self, now_s: float, reason: str) -> None:
        self._move(BreakerState.OPEN)
        self._until_s = now_s + self._pause_s * self._rng.uniform(1 - JITTER, 1)
        self.reason = reason

    def _close(self) -> None:
        self._move(BreakerState.CLOSED)
        self._in_a_row = self._calls = self._failed = 0
        self._window_s = self._until_s = self._probe_until_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self.epoch += 1

    def _count(self, now_s: float, *, is_failed: bool) -> None:
        if now_s - self._window_s > WINDOW_S:
            self._window_s = now_s
            self._calls = self._failed = 0
        self._calls += 1
        self._failed += is_failed


class Breakers:
    """The breaker of one server, and those of what was called of it and gave no answer.

    A tool whose calls get no answer says nothing about the server's other tools: they are let through.

    Args:
        rng: Source of jitter.

    Attributes:
        server: Of the whole server.
        has_failed: Whether any call may be held back; False while no call ever failed since the last `reset`.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.server = Breaker(rng)
        self._items: dict[str, Breaker] = {}
        self.has_failed = False

    def of(self, item: str) -> Iterator[tuple[str, Breaker]]:
        """The breakers that a call of `item` meets, by name; the server's has none."""
        yield "", self.server
        if item in self._items:
            yield item, self._items[item]

    def find_tripped(self) -> tuple[str, Breaker] | None:
        """The item that is held back, empty for the whole server, and its breaker; None if nothing is."""
        named = {"": self.server, **self._items}
        return next((held for held in named.items() if held[1].state is not BreakerState.CLOSED), None)

    def ask(self, item: str, now_s: float, call_s: float) -> Epochs:
        """The epochs in which a call goes ahead that no breaker holds back; see `Breaker.ask`."""
        found = self._items.get(item)
        for breaker in (self.server, found):
            if breaker is not None and breaker.state is not BreakerState.CLOSED:
                breaker.ask(now_s, call_s)
        return self.server.epoch, 0 if found is None else found.epoch

    def record_end(self, item: str, epochs: Epochs, end: CallEnd, now_s: float) -> None:
        """Counts a call of `item` that went ahead in these epochs."""
        server_epoch, item_epoch = epochs
        self.has_failed |= end is CallEnd.UNREACHED or end is CallEnd.UNANSWERED
        if end is CallEnd.ANSWERED:
            self.server.record_success(server_epoch, now_s)
        elif end is CallEnd.UNREACHED:
            self.server.record_failure(server_epoch, now_s)
        else:
            self.server.record_inconclusive(server_epoch)
        if end is CallEnd.UNANSWERED and item not in self._items and server_epoch == self.server.epoch:
            self._items[item] = Breaker(self._rng)
        if (found := self._items.get(item)) is None:
            return
        if end is CallEnd.ANSWERED:
            found.record_success(item_epoch, now_s)
        elif end is CallEnd.UNANSWERED:
            found.record_failure(item_epoch, now_s)
        else:
            found.record_inconclusive(item_epoch)

    def hold(self, now_s: float, wait_s: float) -> None:
        """The server itself asks for a pause; see `Breaker.hold`."""
        self.server.hold(now_s, wait_s)
        self.has_failed = True

    def reset(self) -> None:
        """Forgets everything: the server was connected anew."""
        self.server.reset()
        self._items.clear()
        self.has_failed = False
