"""Changes of lists, of servers' states and of the tools, and waiting for them."""

import asyncio
from typing import Final

MERGE_S: Final = 0.05
"""Changes that come within this time count as one."""


class Changes:
    """Signal of the next change: a listing ended, a server changed its state, or the tools changed."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def announce(self) -> None:
        """Wake those that wait now; later ones wait for the change after this one."""
        self._next.set()
        self._next = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Return an event that the next change sets."""
        return self._next

    async def wait(self) -> None:
        """Return at the next change."""
        await self._next.wait()


async def wait_change_settled(change: asyncio.Event) -> None:
    """Returns a moment after the change: what comes with it is there by then."""
    await change.wait()
    await asyncio.sleep(MERGE_S)
