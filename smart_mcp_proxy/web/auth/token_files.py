"""Files with one token: made once, whole, readable by the owner only, shared by processes."""

import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.secrets.auth_key import lock_file
from smart_mcp_proxy.settings import BEARER

TOKEN_BYTES: Final = 32
_LIMIT_BYTES: Final = 64 * 1024
"""No token is longer."""
_GROUP_OR_OTHERS: Final = 0o077


class KeptToken(NamedTuple):
    """A token that a file keeps.

    Attributes:
        value: The token.
        is_new: Whether this call made it.
    """

    value: str
    is_new: bool

    def __repr__(self) -> str:
        return "<KeptToken, new>" if self.is_new else "<KeptToken>"


class _UnusableError(Exception):
    """The file is not ours to use; the text says why."""


class _UnfitError(_UnusableError):
    """The file is ours and proves nothing: others could have read it, or it holds no token."""


def load_or_create_token(path: Path, *, hint: str, replaces_unfit: bool = False, given: str | None = None) -> KeptToken:
    """The token in a file, made if there is none. It may block: run it in a thread.

    Args:
        path: The file; its folder is made as well.
        hint: What to do about a file that cannot be used.
        given: What the token has to be; None where any will do. A file of ours that holds another one is replaced.
        replaces_unfit: Whether a file of ours that others could have read, or that holds no token, gets a new one.

    Raises:
        ConfigError: The file cannot be made, is another user's, a link or no file, or is unfit.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (replaces_unfit or given) and _is_unfit(path, given):
            with lock_file(path.with_name(f".{path.name}.lock")):
                if _is_unfit(path, given):  # and no other process has replaced it meanwhile
                    path.unlink()
        is_new = not os.path.lexists(path) and _make(path, given or secrets.token_urlsafe(TOKEN_BYTES))
        return KeptToken(_read(path), is_new)
    except (OSError, _UnusableError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise ConfigError(f"The token file '{path}' cannot be used: {reason}.", hint=hint) from exc


def _is_unfit(path: Path, wanted: str | None) -> bool:
    try:
        found = _read(path)
    except FileNotFoundError:
        return False
    except _UnfitError:
        return True
    return wanted not in (None, found)


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _UnusableError("it is no file")
        if facts.st_uid != os.geteuid():
            raise _UnusableError("it belongs to another user")
        text = os.read(descriptor, _LIMIT_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not re.fullmatch(BEARER, text):
        raise _UnfitError("it does not hold one token")
    if facts.st_mode & _GROUP_OR_OTHERS:
        mode = stat.S_IMODE(facts.st_mode)
        raise _UnfitError(f"other users may have read it (mode {mode:o}, not 600)")
    return text


def _make(path: Path, token: str) -> bool:
    """Create a token file, whole and owner-only; False if another process was faster."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{token}\n")
        os.link(name, path)  # only where there is none
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True
