"""Ends of people's sign-ins, told to every process that may still let their tokens in."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from smart_mcp_proxy.catalog import Catalog, increment_ended_sign_ins, read_ended_sign_ins
from smart_mcp_proxy.errors import CatalogError

FOLLOW_S: Final = 1.0
"""Writes to the database are seen by every process within 2 s. Source: docs/design/processes.md#several-gateways"""


class EndedSignIns:
    """A count of ended sign-ins, in the store.

    Args:
        catalog: Its store has the count; None where no other process needs it.
        forget: Has every token looked at anew.
    """

    def __init__(self, catalog: Catalog | None, forget: Callable[[], None]) -> None:
        self._catalog = catalog
        self._forget = forget

    def __repr__(self) -> str:
        return f"<EndedSignIns in {self._catalog!r}>"

    async def note(self) -> None:
        """Have every token looked at anew, here at once; without the store the others do so within a minute."""
        self._forget()
        if self._catalog is None:
            return
        with suppress(CatalogError):
            await self._catalog.write(increment_ended_sign_ins, is_ordered=False)

    async def follow(self) -> None:
        """Does the same for every end that another process notes, until it is cancelled."""
        known: int | None = None
        while self._catalog is not None:
            with suppress(CatalogError):
                count = await self._catalog.read(read_ended_sign_ins)
                if known is not None and count != known:
                    self._forget()
                known = count
            await asyncio.sleep(FOLLOW_S)
