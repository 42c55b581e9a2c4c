"""Rate limits per caller and server, slots for calls in flight, shares of both. No clock or waiting.

Time comes in as monotonic seconds. Every function decides at once; who has to wait is told so and waits elsewhere.
"""

import math
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec.structs import replace

from smart_mcp_proxy.servers import ServerLimits

SHARE: Final = 2
"""A server without a limit of its own takes at most one of so many parts of all places: if it hangs, the others have
the rest."""
QUEUE_PER_PLACE: Final = 4
"""Calls that may wait for each one in flight, where an entry says how many may be in flight and not how many may wait:
eight in flight, thirty-two waiting."""
QUEUE: Final = 2_048
"""Calls that may wait for a server whose entry says neither: a thousand clients with a call each at the same moment are
served one after the other. It ends somewhere, because the arguments of calls that wait take memory."""
ROUNDING_S: Final = 1e-9
"""Sums of floating-point seconds miss the moment at which a token is there by less than this."""
LEAST_RATE_PER_S: Final = 1 / 60
"""Least share of a rate, unless the rate itself is lower: whatever shares it, nobody waits longer than a minute."""


class TokenBucket:
    """Token bucket: a steady rate and a burst, never more than `burst + rate * t` in any `t` s.

    It keeps one number, the moment at which the bucket would be full again (the "generic cell rate algorithm").

    Args:
        rate_per_s: Calls a second on average, above 0.
        burst: Calls that may come at once, at least 1; None for one second's worth.

    It is the virtual scheduling algorithm of annex A. Source: https://www.itu.int/rec/T-REC-I.371/en
    """

    __slots__ = ("_full_s", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: int | None = None) -> None:
        self._full_s = -math.inf
        self._set(rate_per_s, burst)

    def __repr__(self) -> str:
        return f"<TokenBucket {self.rate_per_s:g} calls/s, burst {self.burst}>"

    def change(self, rate_per_s: float, burst: int | None, now_s: float) -> None:
        """Takes another rate; the calls that were taken so far stay taken and are paid back at the new rate."""
        if self._full_s > now_s:
            self._full_s = now_s + (self._full_s - now_s) * self.rate_per_s / rate_per_s
        self._set(rate_per_s, burst)

    def _set(self, rate_per_s: float, burst: int | None) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst or max(1, math.ceil(rate_per_s))

    def wait_s(self, now_s: float) -> float:
        """Seconds until a call may be made, 0 if it may be made now."""
        wait_s = self._full_s - now_s - (self.burst - 1) / self.rate_per_s
        return wait_s if wait_s > ROUNDING_S else 0.0

    def take(self, now_s: float) -> None:
        """Counts a call that is made now."""
        self._full_s = max(self._full_s, now_s) + 1 / self.rate_per_s

    def is_full(self, now_s: float) -> bool:
        """Whether it is as good as new."""
        return self._full_s <= now_s


class PlaceState(Enum):
    """State of a call that asked for a slot."""

    HELD = "held"
    WAITING = "waiting"
    SERVER_FULL = "server full"
    ALL_FULL = "all full"
    LEFT = "left"


class Slot:
    """A concurrency slot of a call, held or waited for.

    Attributes:
        server: Whom it calls.
        principal: On whose behalf.
        state: Changes from waiting to held when its turn comes.
    """

    __slots__ = ("principal", "server", "state")

    def __init__(self, server: str, principal: str, state: PlaceState) -> None:
        self.server = server
        self.principal = principal
        self.state = state


class _Lane:
    """The places of one server."""

    __slots__ = ("in_flight", "most", "queue", "turns", "waiting")

    def __init__(self) -> None:
        self.most: float = math.inf
        self.queue: float = math.inf
        self.in_flight = 0
        self.waiting = 0
        self.turns: dict[str, deque[Slot]] = {}
        """Who waits, by principal; whose turn it is stands first."""

    def push(self, place: Slot) -> None:
        self.turns.setdefault(place.principal, deque()).append(place)
        self.waiting += 1

    def pop(self) -> Slot:
        """Take the next in turn: the oldest call of the principal that waited longest for a turn."""
        principal = next(iter(self.turns))
        places = self.turns.pop(principal)
        place = places.popleft()
        if places:
            self.turns[principal] = places
        self.waiting -= 1
        return place

    def drop(self, place: Slot) -> None:
        places = self.turns[place.principal]
        places.remove(place)
        if not places:
            del self.turns[place.principal]
        self.waiting -= 1


class SlotPool:
    """Slots for calls in flight, per server and in all, with a queue that takes turns.

    Who makes a thousand calls at once does not keep another caller waiting for a thousand: within one server's queue
    the callers take turns, and each caller's own calls keep their order. Servers with waiting calls take turns, too.

    Args:
        most: Calls in flight over all servers; 0 is no limit.
    """

    def __init__(self, most: int = 0) -> None:
        self.is_held = False
        """Whether places are held back."""
        self.most: float
        self._room: float
        """What of it may be taken now: nothing while places are held back."""
        self._share: float
        self._resize(most)
        self.in_flight = 0
        self._lanes: dict[str, _Lane] = {}
        self._limits: Mapping[str, ServerLimits] = {}
        self._waiting: dict[str, _Lane] = {}
        """The lanes in which somebody waits; whose turn it is stands first."""

    def __repr__(self) -> str:
        waiting = sum(lane.waiting for lane in self._waiting.values())
        return f"<SlotPool {self.in_flight} of {self.most} held, {waiting} calls waiting>"

    def configure(self, limits: Mapping[str, ServerLimits], most: int | None = None) -> list[Slot]:
        """Makes these the servers' limits; nobody loses a place. Returns the waiting ones that now have one.

        Args:
            limits: By server.
            most: Calls in flight over all servers from now on; None keeps the number.
        """
        if most is not None:
            self._resize(most)
        self._limits = dict(limits)
        for server, lane in list(self._lanes.items()):
            self._set(lane, server)
            if server not in limits and not lane.in_flight and not lane.waiting:
                del self._lanes[server]
        return self._next()

    def hold(self) -> None:
        """From now on whoever asks for a place has to wait for one; nobody loses one."""
        self.is_held = True
        self._room = 0

    def resume(self) -> list[Slot]:
        """Ends what `hold` began. Returns the waiting ones that have a place now."""
        self.is_held = False
        self._room = self.most
        return self._next()

    def load(self) -> dict[str, tuple[int, int]]:
        """Calls in flight and calls that wait, by server."""
        return {server: (lane.in_flight, lane.waiting) for server, lane in self._lanes.items()}

    def get_server_limits(self, server: str) -> tuple[float, float]:
        """Calls of a server that may be in flight and that may wait; infinite where nothing limits them."""
        lane = self._lane(server)
        return lane.most, lane.queue

    def enter(self, server: str, principal: str) -> Slot:
        """A place that is held, waited for, or not to be had; the first two have to be left."""
        lane = self._lanes.get(server) or self._lane(server)
        if lane.in_flight < lane.most and self.in_flight < self._room:
            # Nobody is overtaken: whoever waits in this lane would have been given this place before.
            lane.in_flight += 1
            self.in_flight += 1
            return Slot(server, principal, PlaceState.HELD)
        if lane.waiting >= lane.queue:
            is_own = lane.in_flight >= lane.most
            return Slot(server, principal, PlaceState.SERVER_FULL if is_own else PlaceState.ALL_FULL)
        place = Slot(server, principal, PlaceState.WAITING)
        lane.push(place)
        self._waiting.setdefault(server, lane)
        return place

    def leave(self, place: Slot) -> list[Slot]:
        """Gives a place back, or the wait for one up. Returns the waiting ones that have one now."""
        lane = self._lanes[place.server]
        state, place.state = place.state, PlaceState.LEFT
        if state is PlaceState.WAITING:
            lane.drop(place)
            if not lane.waiting:
                del self._waiting[place.server]
            return []
        if state is not PlaceState.HELD:
            raise RuntimeError(f"a place of server {place.server!r} is left that is {state.value}")
        lane.in_flight -= 1
        self.in_flight -= 1
        return self._next() if self._waiting else []

    def _next(self) -> list[Slot]:
        admitted = []
        while self.in_flight < self._room:
            server = next((name for name, lane in self._waiting.items() if lane.in_flight < lane.most), None)
            if server is None:
                break
            lane = self._waiting.pop(server)
            place = lane.pop()
            place.state = PlaceState.HELD
            lane.in_flight += 1
            self.in_flight += 1
            admitted.append(place)
            if lane.waiting:
                self._waiting[server] = lane
        return admitted

    def _lane(self, server: str) -> _Lane:
        lane = self._lanes.get(server)
        if lane is None:
            lane = self._lanes[server] = _Lane()
            self._set(lane, server)
        return lane

    def _resize(self, most: int) -> None:
        self.most = most or math.inf
        self._room = 0 if self.is_held else self.most
        self._share = max(1, most // SHARE) if most else math.inf

    def _set(self, lane: _Lane, server: str) -> None:
        limits = self._limits.get(server, ServerLimits())
        lane.most = min(self.most, limits.in_flight or self._share)
        if limits.queue is not None:
            lane.queue = limits.queue
        elif limits.in_flight or math.isinf(lane.most):
            lane.queue = QUEUE_PER_PLACE * lane.most
        else:
            lane.queue = QUEUE


def share_of_count(limit: int, gateways: int) -> int:
    """Divide a limit on calls by the number of gateways, rounding down to at least 1.

    A share of none would be no service. 0 stands for no limit and stays.
    """
    return limit and max(1, limit // gateways)


def share_of_rate(rate_per_s: float, gateways: int) -> float:
    """Divide a rate by the number of gateways, to at least a call a minute; 0, no limit, stays."""
    return max(rate_per_s / gateways, min(rate_per_s, LEAST_RATE_PER_S))


def share_of_limits(limits: ServerLimits, gateways: int) -> ServerLimits:
    """Divide limits by the number of gateways; queue and times stay: they limit no server."""
    if gateways == 1:
        return limits
    return replace(
        limits,
        calls_per_s=None if limits.calls_per_s is None else share_of_rate(limits.calls_per_s, gateways),
        burst=None if limits.burst is None else share_of_count(limits.burst, gateways),
        in_flight=None if limits.in_flight is None else share_of_count(limits.in_flight, gateways),
    )
