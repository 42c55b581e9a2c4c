"""When whoever follows the catalog and the servers looks at them again."""

import asyncio
from typing import Final

__all__ = ["MERGE_S", "settled"]

MERGE_S: Final = 0.05
"""Changes that come within this time count as one."""


async def settled(change: asyncio.Event) -> None:
    """Returns a moment after the change: what comes with it is there by then."""
    await change.wait()
    await asyncio.sleep(MERGE_S)
