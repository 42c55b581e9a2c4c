"""Protocol of a store: transactions on the catalog of record, and waiting for changes."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.rollback_guard import Checkpoint
from smart_mcp_proxy.errors import CatalogError

T = TypeVar("T")

Topic = Literal["catalog", "tokens"]
"""Kinds of change that processes wait for."""


class StorageError(CatalogError):
    """The store itself is at fault, its disk or network: what is in memory is all there is for now."""


class Store(Protocol):
    """Catalog of record of one or many processes.

    All SQL runs in one thread, which `run` enters; all methods but that, `wait_change` and `announce` are used in it.

    Attributes:
        label: Path or address, for messages; never with a password.
        unstorable: A character that no name in it may hold; empty for none.
        longest_bytes: Of the names of a server and its tool, or a URI, together; None for any length.
        ahead_s: How far the store's clock is ahead of this machine's; 0 where they differ by less than a second.
        is_shared: Whether gateways on other machines may use it, which see none of this machine's files.
    """

    label: str
    unstorable: str
    longest_bytes: int | None
    ahead_s: float
    is_shared: bool

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the store's thread, to its end even if the caller is cancelled."""
        ...

    async def wait_change(self, topic: Topic, limit_s: float) -> None:
        """Return when another process may have changed something, after `limit_s` at the latest."""
        ...

    def announce(self, name: str) -> None:
        """Tell other gateways the name of this one; a gateway that has it, too, is named in the log."""
        ...

    def is_blank(self) -> bool:
        """Whether nothing was ever stored, before `connect`."""
        ...

    def connect(self) -> None:
        """Opens the store.

        Raises:
            ConfigError: It cannot be used, or not by this program.
            CatalogError: It cannot be used now.
        """
        ...

    def migrate(self, connection: Connection, *, is_lost: bool) -> None:
        """Bring the store to the latest version, in a transaction; see `versions.migrate`."""
        ...

    def mend(self) -> None:
        """Make a failed store usable again, if another try is not enough.

        Raises:
            As `connect`.
        """
        ...

    def peek(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a store that may refuse writes; its writes are rolled back.

        Raises:
            CatalogError: It cannot be read, or not be trusted.
        """
        ...

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` with all its queries in one state of the store."""
        ...

    def write(self, work: Callable[[Connection], T], *, is_ordered: bool = True) -> T:
        """Run `work` with all its writes committed, or none and an error. It may run more than once.

        Args:
            work: What is done.
            is_ordered: Whether it must come before or after every other such write, as whatever moves the catalog's
                generation must; other writes need not wait for each other.
        """
        ...

    def read_checkpoint(self) -> Checkpoint | None:
        """Read how many decisions the store must hold; None where nothing outside it says so."""
        ...

    def advance_checkpoint(self, checkpoint: Checkpoint, *, adopts: bool = False) -> None:
        """Note outside the store how far it has come.

        Raises:
            StorageError: The disk does not let us.
        """
        ...

    def fold_journal(self) -> None:
        """Copy what was committed to where nobody can remove it alone."""
        ...
