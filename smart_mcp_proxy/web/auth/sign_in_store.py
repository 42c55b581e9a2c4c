"""Storage of people's sign-ins: clients, codes and provider tokens, encrypted on disk."""

import base64
import hmac
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, SupportsFloat

from cryptography.fernet import Fernet
from key_value.aio.protocols import AsyncKeyValue
from key_value.aio.stores.filetree import (
    FileTreeStore,
    FileTreeV1CollectionSanitizationStrategy,
    FileTreeV1KeySanitizationStrategy,
)
from key_value.aio.wrappers.encryption import FernetEncryptionWrapper

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.secrets.auth_key import SignInKey, UnusableFileError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import spawn

__all__ = ["FOLDER", "SweptFiles", "open_store"]

FOLDER: Final = "agent-sign-ins"
SWEEP_EVERY_S: Final = 300.0
"""A third of the time for which what a sign-in leaves behind is worth something; a sweep reads every file."""


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


def open_store(settings: Settings) -> tuple[AsyncKeyValue, bytes]:
    """The store, and the key from which every other of the sign-in is derived.

    Raises:
        ConfigError: The data directory cannot be written, or what is there cannot be used.
    """
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
