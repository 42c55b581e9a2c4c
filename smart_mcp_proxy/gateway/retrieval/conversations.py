"""Conversations, as far as searches show them: each one would have been sent the whole catalog once."""

from collections.abc import Callable
from typing import Final

APART_S: Final = 1_800.0
"""A search after so long a silence begins another conversation, where clients have no sessions."""
REMEMBERED: Final = 4_096
"""Callers; the one that searched longest ago leaves first."""


class Conversations:
    """Tells the first search of a conversation from the others.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: dict[tuple[str, str | None], float] = {}

    def begins(self, principal: str, session: str | None) -> bool:
        """Note a search; whether it is the first one of its conversation.

        Args:
            principal: On whose behalf.
            session: The caller's; None where it has none.
        """
        now_s = self._clock()
        last_s = self._last_s.pop((principal, session), None)
        self._last_s[principal, session] = now_s
        if len(self._last_s) > REMEMBERED:
            del self._last_s[next(iter(self._last_s))]
        return last_s is None or now_s - last_s > APART_S
