"""Places for lists that are read at the same time, so that few large ones are in memory at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anyio import move_on_after

MOST_ITEMS: Final = 4_000
"""Reading so many definitions takes 30 MB for a moment; small lists of some hundred servers together have no more."""
UNKNOWN_ITEMS: Final = 125
"""Items that a list counts as which nobody has seen before."""
PATIENCE_S: Final = 2.0
"""If no list was finished for so long, those that are read wait for servers, and the next one waits no longer."""


class ListPlaces:
    """Lets a list be read while those that are read have few items together; one always may.

    Args:
        most_items: Of all lists that are read.
        patience_s: The next one does not wait longer while none is finished.
    """

    def __init__(self, most_items: int = MOST_ITEMS, patience_s: float = PATIENCE_S) -> None:
        self._most_items = most_items
        self._patience_s = patience_s
        self._items = 0
        self._finished = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ListPlaces {self._items} of {self._most_items} items>"

    @asynccontextmanager
    async def place(self, known_items: int) -> AsyncIterator[None]:
        """A place for a list, as long as it is inside.

        Args:
            known_items: How many it had the last time; 0 for one that is unknown.
        """
        items = known_items or UNKNOWN_ITEMS
        while self._items and self._items + items > self._most_items:
            with move_on_after(self._patience_s) as waiting:
                await self._finished.wait()
            if waiting.cancelled_caught:
                break
        self._items += items
        try:
            yield
        finally:
            self._items -= items
            self._finished.set()
            self._finished = asyncio.Event()
