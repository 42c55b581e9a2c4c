"""Turns at people's codes and renewals: each works once, whichever process it comes to."""

import asyncio
import hashlib
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final
from weakref import WeakValueDictionary

from smart_mcp_proxy.catalog import STORE_AGAIN_S, Catalog
from smart_mcp_proxy.errors import CatalogError, UnverifiedError
from smart_mcp_proxy.gateway.shared.turns import turn

_KIND: Final = "agent-sign-in"
_WAIT_S: Final = 10.0
"""Clients wait longer for an answer: what is granted after they have gone is lost, with what it was granted for."""


class SignInTurns:
    """Lets one request at a time use up a code or a refresh token.

    Args:
        catalog: Its store says whose turn it is; None where there is no other process.
    """

    def __init__(self, catalog: Catalog | None) -> None:
        self._catalog = catalog
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<SignInTurns, {len(self._locks)} taken here>"

    def alone(self, what: str) -> AbstractAsyncContextManager[None]:
        """The turn at one code or sign-in: it is waited for, and kept while open.

        Entering it raises `UnverifiedError` where it cannot be had in 10 s, `CatalogError` where a shared store fails.
        While a file fails each process has turns of its own: sign-ins lie in files of theirs and go on.

        Args:
            what: It may be a secret: the store has its hash.
        """
        return _Turn(self._locks.setdefault(what, asyncio.Lock()), self._catalog, what)


class _Turn(AbstractAsyncContextManager[None]):
    """A turn of one request.

    Not a generator: through one no error of the SDK passes (`TokenError`), which cannot be changed.

    Args:
        lock: Of this process.
        catalog: Of all processes; None where there is no other.
        what: The code or the sign-in.
    """

    def __init__(self, lock: asyncio.Lock, catalog: Catalog | None, what: str) -> None:
        self._lock = lock
        self._catalog = catalog
        self._name = f"{_KIND} {hashlib.sha256(what.encode()).hexdigest()}"
        self._held = AsyncExitStack()

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await stack.enter_async_context(self._lock)
                    await self._enter_among_all(stack)
            except TimeoutError:
                raise UnverifiedError(
                    f"The turn at this sign-in could not be had in {_WAIT_S:g} s.",
                    hint="Try again in a while.",
                    retry_after_s=STORE_AGAIN_S,
                ) from None
            self._held = stack.pop_all()

    async def _enter_among_all(self, stack: AsyncExitStack) -> None:
        if self._catalog is None:
            return
        try:
            await stack.enter_async_context(turn(self._catalog, self._name))
        except CatalogError:
            if self._catalog.is_shared:  # the sign-ins are in it, too
                raise

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()
