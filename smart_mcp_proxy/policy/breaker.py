"""Whether calls to a server are held back because it keeps failing. No clock of its own, no waiting.

closed --failures--> open --time--> half-open: one call tries --it succeeds--> closed, --it fails--> open for longer.
"""

import random
from enum import StrEnum
from typing import Final

from smart_mcp_proxy.errors import ProxyError, UpstreamAuthError, UpstreamError, UpstreamTimeoutError

__all__ = ["Breaker", "BreakerState", "is_failure"]

FAILURES_IN_A_ROW: Final = 5
WINDOW_S: Final = 30.0
WINDOW_CALLS: Final = 10
WINDOW_FAILED: Final = 0.5
"""Held back after five failures in a row, or when half of at least ten calls within 30 s failed.
Source: the common values of circuit breakers in front of tool servers and of HTTP proxies."""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""From the first to the longest it doubles with every call that was let through and failed."""
JITTER: Final = 0.5
"""Part of each pause that is left to chance: servers that failed together are not tried together."""
PROBE_RETRY_S: Final = 1.0
"""What others are told to wait while one call tries."""

_INTERNAL_ERROR: Final = -32603
"""JSON-RPC's own word for what HTTP calls 500. Every other code speaks of the request, not of the server."""


class BreakerState(StrEnum):
    """closed lets calls through, open holds them back, half_open lets one through to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def is_failure(error: ProxyError) -> bool:
    """Whether an error says that a server is in a bad way, rather than something about this one call.

    Counted: no answer in time, a connection that cannot be made or breaks, HTTP 5xx, JSON-RPC's "internal error".
    Not counted: a server that is known not to be ready (its supervisor waits already), one that wants a sign-in or
    fewer calls, and every error about the request.
    """
    if isinstance(error, UpstreamTimeoutError):
        return True
    if not isinstance(error, UpstreamError) or isinstance(error, UpstreamAuthError):
        return False
    facts = error.data or {}
    if "state" in facts:
        return False
    if "rpc_code" in facts:
        return bool(facts["rpc_code"] == _INTERNAL_ERROR)
    status = facts.get("http_status")
    return status is None or status >= 500


class Breaker:
    """Counts how one server's calls end, and holds calls back while it fails.

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

    def succeeded(self, epoch: int, now_s: float) -> None:
        """A call was answered."""
        if epoch != self.epoch:
            return
        if self.state is BreakerState.HALF_OPEN:
            self._close()
            return
        self._in_a_row = 0
        self._count(now_s, is_failed=False)

    def failed(self, epoch: int, now_s: float) -> None:
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

    def abandoned(self, epoch: int) -> None:
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
