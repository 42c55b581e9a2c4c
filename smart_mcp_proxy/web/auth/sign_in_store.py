"""Storage of people's sign-ins and what belongs to them, encrypted; turns at them, and their ends."""

import asyncio
import base64
import hashlib
import hmac
import json
import math
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, SupportsFloat
from weakref import WeakValueDictionary

from cryptography.fernet import Fernet
from key_value.aio.protocols import AsyncKeyValue
from key_value.aio.stores.base import BaseStore, ManagedEntry
from key_value.aio.stores.filetree import (
    FileTreeStore,
    FileTreeV1CollectionSanitizationStrategy,
    FileTreeV1KeySanitizationStrategy,
)
from key_value.aio.wrappers.encryption import FernetEncryptionWrapper

from smart_mcp_proxy.catalog import STORE_AGAIN_S, Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError, ConfigError, UnverifiedError
from smart_mcp_proxy.gateway.shared.turns import turn
from smart_mcp_proxy.secrets.auth_key import SignInKey, UnusableFileError
from smart_mcp_proxy.secrets.sealing import SealBrokenError, SecretKey, open_sealed, seal
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import spawn

FOLDER: Final = "agent-sign-ins"
KIND: Final = "agent-sign-in"
_MOST_BYTES: Final = 256 * 2**20
"""Limit on all entries in a database; what ends first goes first, those that never end last."""
SWEEP_EVERY_S: Final = 300.0
"""A third of the time for which what a sign-in leaves behind is worth something; a sweep reads every file."""
FOLLOW_S: Final = 1.0
"""Writes to the database are seen by every process within 2 s. Source: docs/design/processes.md#several-gateways"""
_KIND: Final = "agent-sign-in"
_WAIT_S: Final = 10.0
"""Clients wait longer for an answer: what is granted after they have gone is lost, with what it was granted for."""


class SweptFiles(FileTreeStore):
    """Files swept of expired entries now and then: the library removes only what is asked for again.

    A sweep comes with something that is written, in the background, and not while there is another.

    Args:
        folder: Holds them.
        clock: Monotonic seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            data_directory=folder,
            key_sanitization_strategy=FileTreeV1KeySanitizationStrategy(folder),
            collection_sanitization_strategy=FileTreeV1CollectionSanitizationStrategy(folder),
        )
        self._clock = clock
        self._sweep_due_s = -math.inf

    async def put(
        self, key: str, value: Mapping[str, Any], *, collection: str | None = None, ttl: SupportsFloat | None = None
    ) -> None:
        """Keeps a value, for `ttl` seconds or for good."""
        await super().put(key, value, collection=collection, ttl=ttl)
        if self._clock() >= self._sweep_due_s:
            self._sweep_due_s = math.inf
            spawn(self._sweep(), "sweep of sign-ins")

    async def _sweep(self) -> None:
        try:
            await self.cull()
        finally:
            self._sweep_due_s = self._clock() + SWEEP_EVERY_S


class SharedEntries(BaseStore):
    """Entries in the database that gateways share, each encrypted.

    The library goes by this machine's clock, the rows by the store's.

    Args:
        catalog: Its store keeps them.
        key: What encrypts them, of 32 bytes.
        clock: Monotonic seconds.
    """

    def __init__(self, catalog: Catalog, key: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stable_api=True)
        self._catalog = catalog
        self._key = key
        self._clock = clock
        self._sweep_due_s = -math.inf

    async def _get_managed_entry(self, *, collection: str, key: str) -> ManagedEntry | None:
        purpose, name = _derive_entry_name(collection, key)
        now_s = self._catalog.now_s()
        kept = await self._catalog.read(partial(sealed.find, kind=KIND, key=name, now_s=now_s))
        if kept is None:
            return None
        try:
            data = open_sealed(self._key, kept.box, purpose)
        except SealBrokenError:  # under an earlier key: as if it had ended
            return None
        value = json.loads(data)
        if kept.expires_s is None:
            return ManagedEntry(value=value)
        return ManagedEntry.from_ttl(value=value, ttl=kept.expires_s - now_s)

    async def _put_managed_entry(self, *, collection: str, key: str, managed_entry: ManagedEntry) -> None:
        purpose, name = _derive_entry_name(collection, key)
        box = seal(self._key, managed_entry.value_as_json.encode(), purpose)
        life_s = managed_entry.ttl
        ends_s = None if life_s is None else self._catalog.now_s() + life_s
        value = SealedValue(KIND, name, box, uuid.uuid4().hex, ends_s)
        await self._catalog.write(partial(sealed.store, value=value), is_ordered=False)
        if self._clock() >= self._sweep_due_s:
            self._sweep_due_s = self._clock() + SWEEP_EVERY_S
            sweep = partial(sealed.drop_oldest, kind=KIND, most_bytes=_MOST_BYTES, now_s=self._catalog.now_s())
            await self._catalog.write(sweep, is_ordered=False)

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        name = _derive_entry_name(collection, key)[1]
        return await self._catalog.write(partial(sealed.drop, kind=KIND, key=name), is_ordered=False)


def _derive_entry_name(collection: str, key: str) -> tuple[bytes, str]:
    """Associated data of an entry, and its name in the database: keys are tokens, in part."""
    purpose = json.dumps([KIND, collection, key]).encode()
    return purpose, hashlib.sha256(purpose).hexdigest()


def open_store(settings: Settings, catalog: Catalog | None) -> tuple[AsyncKeyValue, bytes]:
    """The store, and the key from which every other of the sign-in is derived.

    Args:
        settings: They have the data directory and the secret key.
        catalog: Keeps sign-ins where gateways share its store; None for files.

    Raises:
        ConfigError: The data directory cannot be written, or what is there cannot be used.
    """
    secret = SecretKey.of(settings)
    if catalog is not None and catalog.is_shared and secret is not None:
        return SharedEntries(catalog, secret.key(KIND)), secret.key("agent tokens")
    folder = settings.data_dir / FOLDER
    state = folder / "state"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.mkdir(mode=0o700, exist_ok=True)
        key = SignInKey(folder).load_or_make()[0]
        files = SweptFiles(state)
    except (OSError, UnusableFileError) as exc:
        raise ConfigError(
            f"Sign-ins cannot be kept under {folder}: {exc}.", hint="Check the data directory's owner and permissions."
        ) from exc
    fernet = Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"store", "sha256")))
    return FernetEncryptionWrapper(key_value=files, fernet=fernet, raise_on_decryption_error=False), key


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
            await self._catalog.write(sealed.increment_ended_sign_ins, is_ordered=False)

    async def follow(self) -> None:
        """Does the same for every end that another process notes, until it is cancelled."""
        known: int | None = None
        while self._catalog is not None:
            with suppress(CatalogError):
                count = await self._catalog.read(sealed.read_ended_sign_ins)
                if known is not None and count != known:
                    self._forget()
                known = count
            await asyncio.sleep(FOLLOW_S)


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
