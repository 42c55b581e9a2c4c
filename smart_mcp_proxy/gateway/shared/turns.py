"""Turns at something that one at a time may do, among all processes on a store."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from smart_mcp_proxy.catalog import Catalog, sealed
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import spawn

_LEASE_S: Final = 60.0
"""A gateway that dies with the lease holds up the others so long.

Longer than a gateway can need to renew its sign-in at a server. A person's may take longer, since nothing limits the
answers of its provider together: then another process gets the turn before the first one is done.
"""
_POLL_S: Final = 0.1
GIVE_UP_S: Final = 90.0
"""Seconds that a turn is waited for where nobody says otherwise."""


@asynccontextmanager
async def turn(catalog: Catalog, name: str, wait_s: float = GIVE_UP_S) -> AsyncIterator[None]:
    """Let one at a time inside under this name, among all tasks and processes on a store.

    Args:
        catalog: Its store has the lease.
        name: Not a secret: it can be read in the store.
        wait_s: How long others are waited for.

    Raises:
        TimeoutError: They were inside for longer.
        CatalogError: The store fails before it is entered.
    """
    holder = uuid.uuid4().hex
    try:
        async with asyncio.timeout(wait_s):
            while not await _take(catalog, name, holder):  # noqa: ASYNC110  (other gateways set no event)
                await asyncio.sleep(_POLL_S)
    except BaseException:  # the store may be late to hear that it was asked
        spawn(_drop(catalog, name, holder), "a turn that nobody waits for")
        raise
    try:
        yield
    finally:
        await _drop(catalog, name, holder)


async def _take(catalog: Catalog, name: str, holder: str) -> bool:
    take = partial(sealed.take_lease, name=name, holder=holder, now_s=catalog.now_s(), life_s=_LEASE_S)
    return await catalog.write(take, is_ordered=False)


async def _drop(catalog: Catalog, name: str, holder: str) -> None:
    with suppress(CatalogError):  # it ends by itself
        await catalog.write(partial(sealed.drop_lease, name=name, holder=holder), is_ordered=False)
