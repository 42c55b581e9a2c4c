"""Events with subscribers."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """Something that happens; calling it tells all subscribers, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def __repr__(self) -> str:
        return f"<Event with {len(self._subscribers)} subscribers>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Tell all subscribers."""
        for tell in self._subscribers:
            tell(*args, **kwargs)

    def subscribe(self, tell: Callable[P, object]) -> None:
        """Call `tell` each time from now on."""
        self._subscribers.append(tell)
