"""Key that sign-ins are stored under: in the system's keyring, else in a file."""

import base64
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.secrets.keyring_edge import read_keyring_secret, store_secret

KeyPlace = Literal["keyring", "file"]

KEY_BYTES: Final = 32
_DAMAGED: Final = "its key is damaged"
"""AES-256."""
_LIMIT_BYTES: Final = 256 * 1024
"""A token can be large; a file beyond this is none of ours."""


class UnusableFileError(Exception):
    """A file that only we should be able to read and write is not as we left it; the text says how."""


@dataclass(eq=False, repr=False)
class SignInKey:
    """The key of one folder of sign-ins. Everything here may block: run it in a thread.

    Attributes:
        folder: Of the sign-ins; exists, and is the owner's alone.
        get: Looks something up in the keyring.
        put: Stores something in the keyring.
    """

    folder: Path
    get: Callable[[str], str | None] = read_keyring_secret
    put: Callable[[str, str], None] = store_secret

    def __post_init__(self) -> None:
        self._file = self.folder / "key"
        self._name = "sign-ins-" + hashlib.sha256(os.fsencode(self.folder.absolute())).hexdigest()[:16]

    def load(self, place: str) -> bytes:
        """The key that is kept there.

        Raises:
            UnusableFileError: There is none, or it cannot be used.
        """
        if place == "keyring":
            try:
                text = self.get(self._name)
            except ConfigError as exc:
                raise UnusableFileError(f"its key is in the system's keyring. {exc}") from exc
            if text is None:
                raise UnusableFileError("its key is no longer in the system's keyring")
            return decode_key(text, _DAMAGED)
        try:
            return decode_key(read_private(self._file), _DAMAGED)
        except FileNotFoundError as exc:
            raise UnusableFileError(f"its key {self._file} is gone") from exc

    def load_or_make(self) -> tuple[bytes, KeyPlace]:
        """The key to store something under, made the first time.

        A key file that is there is kept to: who has none, or works without a desktop, must not depend on a keyring.

        Raises:
            UnusableFileError: There is a key file that cannot be used.
            OSError: The folder cannot be written.
        """
        with lock_file(self.folder / "key.lock"):
            if self._file.exists():
                return self.load("file"), "file"
            if (key := self._from_keyring()) is not None:
                return key, "keyring"
            key = secrets.token_bytes(KEY_BYTES)
            write_private(self._file, base64.b64encode(key))
            return key, "file"

    def _from_keyring(self) -> bytes | None:
        """The keyring's key, made if there is none; None where there is no keyring that keeps it."""
        try:
            text = self.get(self._name)
            if text is None:
                made = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
                self.put(self._name, made)
                text = self.get(self._name)
                if text != made:
                    return None
            return decode_key(text, _DAMAGED)
        except (ConfigError, UnusableFileError):
            return None


def decode_key(text: str | bytes, problem: str) -> bytes:
    """The key of 32 bytes that `text` holds in base64.

    Raises:
        UnusableFileError: It holds none; `problem` says so.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UnusableFileError(problem)
    return key


def read_private(path: Path) -> bytes:
    """Read a file that nobody else can have read or written.

    Raises:
        FileNotFoundError: It is not there.
        UnusableFileError: It is not ours, others may read it, or it is no file of ours at all.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise UnusableFileError(f"{path} cannot be read ({exc.strerror})") from exc
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LIMIT_BYTES:
            raise UnusableFileError(f"{path} is not a file of the gateway's")
        if facts.st_uid != os.geteuid():
            raise UnusableFileError(f"{path} belongs to another user")
        if facts.st_mode & 0o077:
            raise UnusableFileError(f"{path} is open to other users (mode {stat.S_IMODE(facts.st_mode):o}, not 600)")
        return file.read(_LIMIT_BYTES)


def write_private(path: Path, data: bytes) -> None:
    """Puts `data` into a file of the owner's alone, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lets one at a time inside, among all processes; waits. The system lets go when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
