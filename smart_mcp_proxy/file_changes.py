"""Files of the user's, replaced whole and in one step, under a lock on their folder."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from smart_mcp_proxy.errors import ConfigError

Stamp = tuple[int, ...]
"""Tells whether a file is still the same one."""

_NEW_FILE_MODE = 0o600
"""Entries hold secrets."""
_LOCK_S = 10.0
_LOCK_LOOK_S = 0.01


def build_file_stamp(facts: os.stat_result) -> Stamp:
    """Return what differs as soon as a file is written or replaced."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Alone among all processes that change a file of this folder, while open."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder itself: the file is replaced by every change, and a lock file would litter the user's project.
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be used: {exc.strerror}.", hint="Check who may write there.") from exc
    try:
        _wait_for_lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    end_s = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                message = f"Another process has been changing files in {folder} for {_LOCK_S:g} seconds."
                raise ConfigError(message, hint="Try again.") from None
            time.sleep(_LOCK_LOOK_S)
        except OSError as exc:
            hint = "Edit the file by hand: its file system has no locks."
            raise ConfigError(f"{folder} cannot be locked: {exc.strerror}.", hint=hint) from exc
        else:
            return


def build_replacement_path(path: Path) -> Path:
    """Path of the new file that waits to replace `path`: a process that was killed may have left one."""
    return path.with_name(f".{path.name}.mcpproxy-new")


def replace_file(path: Path, data: bytes, seen: Stamp | None) -> bool:
    """Put `data` in place of a file, with its owner and mode; False if it was saved meanwhile.

    Under the lock of its folder: the new file has one name, so that a killed process leaves no more than one.

    Args:
        path: The file, no link.
        data: What it holds afterwards.
        seen: Its stamp when it was read; None where there was none.

    Raises:
        ConfigError: It cannot be written.
    """
    temporary = build_replacement_path(path)
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                _keep_facts(descriptor, path)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            if _present(path) != seen:
                return False
            os.replace(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()
        sync_folder(path.parent)
    except OSError as exc:
        hint = "Check who may write there, and whether the disk is full."
        raise ConfigError(f"{path} cannot be written: {exc.strerror}.", hint=hint) from exc
    return True


def _keep_facts(descriptor: int, path: Path) -> None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, _NEW_FILE_MODE)
        return
    with suppress(PermissionError):  # only root may give a file to somebody else
        os.fchown(descriptor, facts.st_uid, facts.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))


def _present(path: Path) -> Stamp | None:
    try:
        return build_file_stamp(path.stat())
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Makes a change of names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
