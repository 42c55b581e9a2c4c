"""Checkpoint beside the database: the number of approval decisions it must hold.

A database that was emptied, removed, put back from an older copy or robbed of its journal is a sound file to SQLite.
What tells it from a sound one is kept outside it, in `approvals.mark`: the random number that the file was born with,
and how often its approvals, blocks and heard first lists have changed. The database counts that itself, by triggers,
in the transaction of the change. The checkpoint is written after the commit, so only three things can be seen at a
start:

- The file has the checkpoint's number and counts as far or further (a process died between commit and checkpoint): it
  is whole.
- There is no checkpoint: a new directory, one of an earlier program, or one whose content a copy was about to replace;
  the file is taken as it is and gets one. A directory in which nothing was decided yet gets none, because nothing can
  be lost there.
- Anything else, a checkpoint that cannot be read included: decisions may be lost, a block among them, and what is left
  must not be trusted either. The file is treated as a damaged one is, and the new one starts closed.

A checkpoint that cannot be written (disk full, read-only) counts as a database that cannot be written: what the servers
list is served from memory, that is said, and both are tried again. The decision itself is in the database by then and
the checkpoint behind it, which is the first case above: a full disk closes no healthy gateway.

Not seen is the loss of the database and the checkpoint together, which is what a user does who starts anew.

Refused:

- *A checkpoint inside the database.* It goes back with the copy that is put back.
- *Times of files, or a digest of the file.* A copy may keep or change its times, clocks are set; a digest changes with
  every write, and has to be on disk before the commit that it is to prove.
- *Counting in this program.* What another version, an older program or a shell of SQLite decides would not be counted;
  triggers are in the file and count for everybody who writes to it.
- *Writing the checkpoint first.* A process that dies in between would leave a healthy database behind its checkpoint,
  and close a gateway to which nothing happened. After the commit, the worst is a checkpoint that is one decision late.
- *Repairing what is found.* What was lost may be a block: nobody but the user can say that it was none.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.damage import hold_directory

CHECKPOINT_NAME: Final = "approvals.mark"
CATALOG_ID_KEY: Final = "catalog_id"
"""In `meta`: a random number that this file was born with."""
CLOSED_KEY: Final = "approvals_closed"
"""In `meta` where the record of approvals was lost with a damaged file: then no first list is trusted either."""
COUNT_KEY: Final = "approvals_count"
"""In `meta`: how often approvals, blocks and heard first lists have changed; grows only."""

LACKS_KEY: Final = "approvals_lacking"
"""In `meta` of a database that many gateways share, once one of them has found it to have gone back: how many
decisions it should have counted then. It counts on from where it was, and so may come to count as many without them."""

GENERATION_KEY: Final = "generation"
"""In `meta`: grows with every write to tools or approvals."""

_COUNTERS = (CATALOG_ID_KEY, CLOSED_KEY, COUNT_KEY, LACKS_KEY, GENERATION_KEY)
_READ_META = f"SELECT key, value FROM meta WHERE key IN {_COUNTERS}"
_FORMAT = re.compile(rb"catalog (-?\d{1,19})\napprovals (\d{1,19})\n")
_LIMIT_BYTES = 128
"""Longer than any checkpoint."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Progress of a database in decisions.

    Attributes:
        catalog_id: The random number it was born with; 0 for none.
        count: How often its approvals, blocks and heard first lists have changed, >= 0.
        lacking: How many it should have had when it was last found to lack some; 0 if it never was.
    """

    catalog_id: int
    count: int
    lacking: int = 0

    def covers(self, other: "Checkpoint") -> bool:
        """Whether what is at this checkpoint knows every decision that `other` counts."""
        is_same = self.catalog_id == other.catalog_id != 0 and self.lacking == other.lacking
        return is_same and self.count >= other.count


NO_CHECKPOINT: Final = Checkpoint(0, 0)
"""Checkpoint where nothing can be made out: of a file, that it knows nothing; beside a file, that no file will do."""


class CheckpointFile:
    """The checkpoint of a data directory; for use in the database's thread.

    Args:
        directory: With the database in it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CHECKPOINT_NAME
        self._last: Checkpoint | None = None

    def read(self) -> Checkpoint | None:
        """The checkpoint; None where there is none, `NO_CHECKPOINT` where it cannot be made out."""
        try:
            with self._path.open("rb") as file:
                found = _FORMAT.fullmatch(file.read(_LIMIT_BYTES))
        except (FileNotFoundError, NotADirectoryError):  # without its directory it is not there either
            return None
        except OSError:
            return NO_CHECKPOINT
        return NO_CHECKPOINT if found is None else Checkpoint(int(found[1]), int(found[2]))

    def find_loss(self, connection: Connection) -> str | None:
        """Describe how the database falls short of the checkpoint; None if it does not.

        Nor does one so new that it trusts nothing.

        Args:
            connection: Not in a transaction yet: what it sees must not be older than the checkpoint.
        """
        # The checkpoint first: whatever it says was committed before it was written.
        checkpoint = self.read()
        while not (checkpoint is None or _trusts_nothing(connection) or read_checkpoint(connection).covers(checkpoint)):
            # Unless another process has put this file in the place of the lost one in between, and marked it.
            if (again := self.read()) == checkpoint:
                break
            checkpoint = again
        else:
            return None
        if checkpoint == NO_CHECKPOINT:
            return f"{CHECKPOINT_NAME} beside it cannot be read, so decisions about tools may be missing"
        return f"{CHECKPOINT_NAME} beside it knows decisions about tools that it does not hold"

    def knows(self, checkpoint: Checkpoint) -> bool:
        """Whether this process has raised the checkpoint to this one last."""
        return checkpoint == self._last

    def advance(self, checkpoint: Checkpoint, *, adopts: bool = False) -> None:
        """Writes the checkpoint of a database after its commit; one that is there already costs nothing.

        Args:
            checkpoint: Of the database.
            adopts: Whether the database takes the place of the one that the checkpoint was of. Otherwise one of another
                file stays: a process that has not noticed yet that its file was replaced must not speak for the new.

        Raises:
            OSError: It cannot be written.
        """
        if self.knows(checkpoint) and not adopts:
            return
        with hold_directory(self._path.parent) as directory:
            if _is_due(self.read(), checkpoint, adopts=adopts):
                _replace(self._path, b"catalog %d\napprovals %d\n" % (checkpoint.catalog_id, checkpoint.count))
                os.fsync(directory)
        self._last = checkpoint

    def remove(self) -> None:
        """Remove it, before a commit that replaces the decisions that it counts.

        A database without a checkpoint is taken as it is.

        Raises:
            OSError: It cannot be removed.
        """
        with hold_directory(self._path.parent) as directory:
            self._path.unlink(missing_ok=True)
            os.fsync(directory)
        self._last = None


def read_checkpoint(connection: Connection) -> Checkpoint:
    """Read the progress of a database; one without a count has none."""
    if connection.dialect.name == "sqlite" and not _has_table(connection, "meta"):
        return NO_CHECKPOINT
    return build_checkpoint(connection, read_meta(connection))


def read_meta(connection: Connection) -> dict[str, int]:
    """Read the counters of a database that has its tables."""
    return dict(connection.exec_driver_sql(_READ_META).all())


def build_checkpoint(connection: Connection, counters: Mapping[str, int]) -> Checkpoint:
    """The progress that these counters of a database tell of; without a count there is none."""
    if not {CATALOG_ID_KEY, COUNT_KEY} <= counters.keys():
        return NO_CHECKPOINT
    lacking = 0 if connection.dialect.name == "sqlite" else counters.get(LACKS_KEY, 0)
    return Checkpoint(counters[CATALOG_ID_KEY], counters[COUNT_KEY], lacking)


def _is_due(standing: Checkpoint | None, checkpoint: Checkpoint, *, adopts: bool) -> bool:
    if standing is None:
        return checkpoint.count > 0
    if standing.catalog_id != checkpoint.catalog_id:
        return adopts
    return checkpoint.count > standing.count


def _trusts_nothing(connection: Connection) -> bool:
    """Return whether a file was just begun in place of a lost one: no tools, or no decisions."""
    if not _has_table(connection, "approvals"):
        return not _has_table(connection, "tools") or not _holds(connection, "tools")
    is_closed = connection.exec_driver_sql("SELECT 1 FROM meta WHERE key = ?", (CLOSED_KEY,)).first() is not None
    return is_closed and not _holds(connection, "approvals") and not _holds(connection, "baselines")


def _has_table(connection: Connection, name: str) -> bool:
    find = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.exec_driver_sql(find, (name,)).first() is not None


def _holds(connection: Connection, table: str) -> bool:
    return connection.exec_driver_sql(f"SELECT 1 FROM {table} LIMIT 1").first() is not None


def _replace(path: Path, content: bytes) -> None:
    """Puts `content` into the owner's own file, whole or not at all; for one process at a time."""
    # One name: what a killed process leaves of it is overwritten by the next.
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
