"""Visitors: clients of the modern era, which have no session, known from their requests."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from smart_mcp_proxy.fastmcp_compat.server import Visit
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.telemetry import Activity

VISITORS: Final = 256
"""Kept at a time; clients choose their names freely. Those that were not seen for longest leave."""
ABSENT_S: Final = 1_800.0
"""A client that was not seen for so long is written down anew when it comes back."""


class Visitor(msgspec.Struct):
    """A client of the modern era.

    Attributes:
        visit: Who it is.
        last_s: When it was last seen, in seconds since 1970.
        under_way: Requests that are being answered, a stream that it listens on among them.
    """

    visit: Visit
    last_s: float
    under_way: int = 0


@dataclass(eq=False, repr=False)
class Visitors:
    """The clients of the modern era that were here, and a line in the activity log for each that comes.

    Attributes:
        recorder: Gets the line.
        clock: Seconds since 1970.
        on_visit: Called in the context of each request.
    """

    recorder: Recorder[Activity]
    clock: Callable[[], float] = time.time
    on_visit: Callable[[Visit], object] = lambda visit: None

    def __post_init__(self) -> None:
        self._visitors: dict[Visit, Visitor] = {}

    def list_visitors(self) -> tuple[Visitor, ...]:
        """List visitors, most recently seen last; an open request counts as seen now."""
        now_s = self.clock()
        for visitor in self._visitors.values():
            if visitor.under_way:
                visitor.last_s = now_s
        return tuple(sorted(self._visitors.values(), key=lambda visitor: visitor.last_s))

    @contextmanager
    def track_visit(self, visit: Visit) -> Iterator[None]:
        """While open, a request of this client is under way."""
        self.on_visit(visit)
        visitor = self._enter(visit)
        visitor.under_way += 1
        try:
            yield
        finally:
            visitor.under_way -= 1
            visitor.last_s = self.clock()

    def _enter(self, visit: Visit) -> Visitor:
        now_s = self.clock()
        visitor = self._visitors.pop(visit, None)
        if visitor is None or (not visitor.under_way and now_s - visitor.last_s > ABSENT_S):
            self.recorder.record(_build_visit_activity(visit, now_s))
        if visitor is None:
            visitor = Visitor(visit, now_s)
            if len(self._visitors) >= VISITORS:
                del self._visitors[self._choose_evicted_visit()]
        self._visitors[visit] = visitor  # behind all others: the order is that of their last requests
        visitor.last_s = now_s
        return visitor

    def _choose_evicted_visit(self) -> Visit:
        """Return the visit to evict: the least recent idle one, else the one that began first."""
        idle = (visit for visit, visitor in self._visitors.items() if not visitor.under_way)
        return next(idle, next(iter(self._visitors)))


def _build_visit_activity(visit: Visit, at_s: float) -> Activity:
    """The line of the activity log for a client that has come."""
    profile = visit.path.removeprefix("p/") if visit.path.startswith("p/") else ""
    facts = {"version": visit.version, "profile": profile}
    return Activity(
        kind="session",
        principal=visit.principal,
        subject=visit.client,
        outcome="ok",
        duration_ms=0.0,
        at_s=at_s,
        detail={"protocol": visit.protocol_version, "transport": visit.transport}
        | {key: text for key, text in facts.items() if text},
    )
