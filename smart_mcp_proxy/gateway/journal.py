"""Activity that no answer may outrun: each record is in a file before its answer leaves, and in the catalog soon after.

A record is written with one system call into the operating system's memory: kill -9 cannot undo that, a power cut can.
What a killed process left behind is stored by whichever gateway looks next.
"""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Final

import msgspec

from smart_mcp_proxy.telemetry import Activity, get_logger, new_activity_id

__all__ = ["FOLDER", "Journal", "left_behind", "read_journal"]

FOLDER: Final = "journal"
LIMIT_BYTES: Final = 32 * 1024 * 1024
"""A journal that is longer takes nothing more: the catalog has not taken a record for some 100,000 calls."""
READ_BYTES: Final = 64 * 1024 * 1024
"""Of a file that was left behind; ours are half as long at most."""

log = get_logger("journal")


class Journal:
    """Two files that take turns: one is written while the records of the other go into the catalog.

    Each is locked for as long as this process lives.

    Args:
        data_dir: Holds the folder of all journals.

    Raises:
        OSError: The files cannot be created.
    """

    def __init__(self, data_dir: Path) -> None:
        folder = data_dir / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._files = _new_files(folder)
        self._is_waiting = False
        """Whether the second file holds records that the catalog has not taken yet."""
        self._problem = ""

    def __repr__(self) -> str:
        return f"<Journal {self._files[0].path.stem}, {self._files[0].size_bytes} bytes>"

    def write(self, record: Activity) -> None:
        """Puts a record into the file; where that fails it says so once, and the record is on its way all the same."""
        file = self._files[0]
        try:
            if file.size_bytes > LIMIT_BYTES:
                raise OSError(errno.EFBIG, "it is full, because the catalog takes nothing")
            file.write(_line(record))
        except OSError as exc:
            problem = exc.strerror or str(exc)
            if problem != self._problem:
                log.warning("records since the last second would be lost with a kill: %s", problem)
            self._problem = problem

    def turn(self) -> None:
        """Begins a new file where the other is free: all records of the present one are about to be stored."""
        if not self._is_waiting:
            self._files.reverse()
            self._is_waiting = True

    def stored(self) -> None:
        """All records from before the last `turn` are in the catalog."""
        self._files[1].clear()
        self._is_waiting = False

    def leave(self) -> bool:
        """Begins two new files and leaves the present ones to whoever looks next for what was left behind.

        False where there can be no new files now: then the present ones stay in use, and nothing of them is removed.
        """
        try:
            fresh = _new_files(self._folder)
        except OSError as exc:
            log.warning("the journal cannot begin anew: %s", exc.strerror)
            return False
        former, self._files, self._is_waiting = self._files, fresh, False
        for file in former:
            file.close(is_kept=file.size_bytes > 0)
        return True

    def close(self, *, is_stored: bool) -> None:
        """Ends the journal; files whose records are not all in the catalog stay for the next gateway."""
        for file in self._files:
            file.close(is_kept=not is_stored and file.size_bytes > 0)


def left_behind(data_dir: Path) -> list[Path]:
    """The journals of processes that are gone, oldest first. Remove each once its records are stored."""
    return [path for path in sorted((data_dir / FOLDER).glob("*.[01]")) if not _is_in_use(path)]


def read_journal(path: Path) -> list[Activity]:
    """The records of a journal; none if it is gone by now, because another gateway was faster.

    A last line without an end is left out: its answer never left.

    Raises:
        OSError: It is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(READ_BYTES)
    except FileNotFoundError:
        return []
    records = []
    for line in filter(None, text.split(b"\n")[:-1]):
        try:
            records.append(msgspec.json.decode(line, type=Activity))
        except msgspec.MsgspecError:
            log.warning("a line of %s cannot be read and is left out", path)
    return records


def _is_in_use(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
    except OSError:  # held by its process, or gone
        return True
    return False


def _new_files(folder: Path) -> "list[_File]":
    name, files = new_activity_id(), list[_File]()
    try:
        for number in range(2):
            files.append(_File(folder / f"{name}.{number}"))
    except OSError:
        for file in files:
            file.close(is_kept=False)
        raise
    return files


class _File:
    """A locked file that is only ever added to or emptied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._is_torn = False
        # Locked before it has its name: another gateway would take it for one that was left behind.
        unnamed = path.with_suffix(f"{path.suffix}.new")
        self._descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(path)

    def write(self, line: bytes) -> None:
        line = b"\n" + line if self._is_torn else line
        written = os.write(self._descriptor, line)
        self.size_bytes += written
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def clear(self) -> None:
        if self.size_bytes:
            os.ftruncate(self._descriptor, 0)
            self.size_bytes = 0

    def close(self, *, is_kept: bool) -> None:
        if not is_kept:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _line(record: Activity) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except (UnicodeEncodeError, OverflowError):  # half a character, or an integer too long for it
        return json.dumps(msgspec.structs.asdict(record), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
