"""Write-ahead log of activity: a record is in a file before its answer leaves.

The catalog has it soon after.

A record is put into the operating system's memory, as part of a file: kill -9 cannot undo that, a power cut can.
What a killed process left behind is stored by whichever gateway looks next.
"""

import contextlib
import errno
import fcntl
import json
import mmap
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from smart_mcp_proxy.telemetry import Activity, get_logger, new_activity_id

FOLDER: Final = "journal"
ROOM_BYTES: Final = 256 * 1024
"""A file grows by so much at a time: some 500 calls."""
KEPT_ROOM_BYTES: Final = 1024 * 1024
"""A file that grew beyond this gives its room back when it is emptied."""
LIMIT_BYTES: Final = 32 * 1024 * 1024
"""A journal that is longer takes nothing more: the catalog has not taken a record for some 100,000 calls."""
READ_BYTES: Final = 64 * 1024 * 1024
"""Bytes that are read of a file that was left behind; ours are half as long at most."""

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
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # where the catalog is a database nobody else did
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._files = _new_files(folder)
        self._is_waiting = False
        """Whether the second file holds records that the catalog has not taken yet."""
        self._problem = ""

    def __repr__(self) -> str:
        return f"<Journal {self._files[0].path.stem}, {self._files[0].size_bytes} bytes>"

    @property
    def has_missed(self) -> bool:
        """Whether there were records that it could not take."""
        return bool(self._problem)

    def write(self, record: Any) -> bool:
        """Append a record to the file, never waiting; a failure is logged once and does not stop the record.

        Returns:
            Whether it takes more before some are stored.
        """
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
        return file.size_bytes <= LIMIT_BYTES

    def turn(self) -> None:
        """Begins a new file where the other is free: all records of the present one are about to be stored."""
        if not self._is_waiting:
            self._files.reverse()
            self._is_waiting = True

    def discard_stored(self) -> None:
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


def find_abandoned_journals(data_dir: Path) -> list[Path]:
    """The journals of processes that are gone, oldest first. Remove each once its records are stored."""
    return [path for path in sorted((data_dir / FOLDER).glob("*.[01]")) if not _is_in_use(path)]


def read_journal(path: Path) -> list[Activity]:
    """The records of a journal; none if it is gone by now, because another gateway was faster.

    A last line without an end is left out: its answer never left. Behind it there may be zeros.

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
    """A locked file that is only ever added to or emptied.

    What is added is copied into a mapping of the file: like a write it is in the operating system's memory then, and
    it takes a tenth of the time. The room for it is really there: in a mapping a full disk would be a fatal signal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._room_bytes = 0
        self._room: mmap.mmap | None = None
        # Locked before it has its name: another gateway would take it for one that was left behind.
        unnamed = path.with_suffix(f"{path.suffix}.new")
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(path)
        with contextlib.suppress(OSError):  # of a full disk the first record tells
            self._grow(ROOM_BYTES)

    def write(self, line: bytes) -> None:
        end = self.size_bytes + len(line)
        if end > self._room_bytes:
            self._grow(end)
        if self._room is not None:
            self._room[self.size_bytes : end] = line
        elif os.pwrite(self._descriptor, line, self.size_bytes) < len(line):
            raise _full()
        self.size_bytes = end

    def clear(self) -> None:
        if not self.size_bytes:
            return
        if self._room is None or self._room_bytes > KEPT_ROOM_BYTES:
            self._unmap()
            os.ftruncate(self._descriptor, 0)
            self._room_bytes = 0
        else:  # no record may be found behind the end of later ones
            self._room[: self.size_bytes] = bytes(self.size_bytes)
        self.size_bytes = 0

    def close(self, *, is_kept: bool) -> None:
        self._unmap()
        if is_kept:
            os.ftruncate(self._descriptor, self.size_bytes)
        else:
            self.path.unlink(missing_ok=True)
        # First: a record that comes too late must not get into the file that has this number next.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _grow(self, needed_bytes: int) -> None:
        """Makes room, of zeros that are on the disk, or raises OSError and leaves the file as it was."""
        self._unmap()
        while self._room_bytes < needed_bytes:
            if (written := os.pwrite(self._descriptor, bytes(ROOM_BYTES), self._room_bytes)) == 0:
                raise _full()
            self._room_bytes += written
        with contextlib.suppress(OSError):  # some file systems map nothing; then each line is written
            self._room = mmap.mmap(self._descriptor, self._room_bytes)

    def _unmap(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.close()


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(record: Any) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except (UnicodeEncodeError, OverflowError):  # half a character, or an integer too long for it
        return json.dumps(msgspec.structs.asdict(record), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
