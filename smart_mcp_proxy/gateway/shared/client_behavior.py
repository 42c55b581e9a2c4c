"""Learned behaviour of clients on list_changed: some refetch the list, some never do."""

import time
from collections.abc import Callable
from typing import Final

_HEED_S: Final = 30.0
"""A client that has not asked for the list this long after it was told of a change is taken not to heed it."""
_MOST_NAMES: Final = 256
"""Names of clients whose conduct is remembered; they choose them freely."""
_NAME_CHARS: Final = 100
"""Characters of the name that a client gives itself."""


class ClientBehavior:
    """Remembers which clients ask for their list again after they were told that it changed.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_name: dict[str, tuple[int, int]] = {}

    def of(self, name: str) -> tuple[int, int]:
        """Announcements to clients of this name that were heeded, and that were not."""
        return self._by_name.get(name[:_NAME_CHARS], (0, 0))

    def watch(self, name: str) -> "Watch":
        """Follows one session of a client."""
        kept = name[:_NAME_CHARS]
        return Watch(self._clock, lambda is_heeded: self._note(kept, is_heeded=is_heeded))

    def _note(self, name: str, *, is_heeded: bool) -> None:
        if name not in self._by_name and len(self._by_name) == _MOST_NAMES:
            self._by_name.pop(next(iter(self._by_name)))
        heeded, unheeded = self.of(name)
        self._by_name[name] = (heeded + 1, unheeded) if is_heeded else (heeded, unheeded + 1)


class Watch:
    """Watches whether one session's client fetches its list again after each announced change.

    Args:
        clock: Monotonic seconds.
        note: Told how each announcement was taken.
    """

    def __init__(self, clock: Callable[[], float], note: Callable[[bool], None]) -> None:
        self._clock = clock
        self._note = note
        self._told_s: float | None = None

    def note_announcement(self) -> None:
        """The client has been told of a change."""
        self.give_up()
        if self._told_s is None:
            self._told_s = self._clock()

    def note_list_request(self) -> None:
        """The client has asked for its list."""
        self.give_up()
        if self._told_s is not None:
            self._told_s = None
            self._note(True)

    def give_up(self) -> None:
        """Count an announcement that was not heeded in time; also called when the session is over."""
        if self._told_s is not None and self._clock() - self._told_s > _HEED_S:
            self._told_s = None
            self._note(False)
