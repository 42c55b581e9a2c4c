"""A store: transactions on the catalog of record in one thread, and waiting for changes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.rollback_guard import Checkpoint
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import await_shielded

STORE_AGAIN_S: Final = 5.0
"""After so long a client may ask again where the store did not answer."""

T = TypeVar("T")

Topic = Literal["catalog", "tokens"]
"""Kinds of change that processes wait for."""


class HeldStoreError(CatalogError):
    """The store does not take it now, and may soon: others hold it for too long."""

    http_status = 503

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **{"retry_after_s": STORE_AGAIN_S, **more})


class StorageError(HeldStoreError):
    """The store itself is at fault, its disk or network: what is in memory is all there is for now.

    It is tried again all the time.
    """


class Store(ABC):
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
    unstorable = ""
    longest_bytes: int | None = None
    ahead_s = 0.0
    is_shared = False

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the store's thread, to its end even if the caller is cancelled."""
        return await await_shielded(self.submit(work))

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Let `work` begin when its turn comes."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        done.add_done_callback(_take_note)
        return done

    async def end(self, last: Callable[[], None]) -> None:
        """Runs `last` after all other work and ends the thread."""
        closed = self._thread.submit(last)
        self._thread.shutdown(wait=False)
        await await_shielded(asyncio.wrap_future(closed))

    @abstractmethod
    async def wait_change(self, topic: Topic, limit_s: float) -> None:
        """Return when another process may have changed something, after `limit_s` at the latest."""

    @abstractmethod
    def announce(self, name: str) -> None:
        """Tell other gateways the name of this one; a gateway that has it, too, is named in the log."""

    def is_tight(self) -> bool:
        """Whether a decision may soon not fit on the disk; False where that costs too much to know."""
        return False

    def is_blank(self) -> bool:
        """Whether nothing was ever stored, before `connect`; False where that is not known yet."""
        return False

    @abstractmethod
    def connect(self) -> None:
        """Opens the store.

        Raises:
            ConfigError: It cannot be used, or not by this program.
            CatalogError: It cannot be used now.
        """

    @abstractmethod
    def migrate(self, connection: Connection, *, is_lost: bool) -> None:
        """Bring the store to the latest version, in a transaction; see `versions.migrate`."""

    @abstractmethod
    def mend(self) -> None:
        """Make a failed store usable again, if another try is not enough.

        Raises:
            As `connect`.
        """

    def peek(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a store that may refuse writes; its writes are rolled back.

        Raises:
            CatalogError: It cannot be read, or not be trusted.
        """
        return self.read(work)

    @abstractmethod
    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` with all its queries in one state of the store."""

    @abstractmethod
    def write(self, work: Callable[[Connection], T], *, is_ordered: bool = True) -> T:
        """Run `work` with all its writes committed, or none and an error. It may run more than once.

        Args:
            work: What is done.
            is_ordered: Whether it must come before or after every other such write, as whatever moves the catalog's
                generation must; other writes need not wait for each other.
        """

    def read_checkpoint(self) -> Checkpoint | None:
        """Read how many decisions the store must hold; None where nothing outside it says so."""
        return None

    @abstractmethod
    def advance_checkpoint(self, checkpoint: Checkpoint, *, adopts: bool = False) -> None:
        """Note outside the store how far it has come.

        Raises:
            StorageError: The disk does not let us.
        """

    @abstractmethod
    def fold_journal(self) -> None:
        """Copy what was committed to where nobody can remove it alone."""


def _take_note(done: asyncio.Future[T]) -> None:
    """Looks at the error of work whose caller has gone: asyncio would report it as forgotten."""
    if not done.cancelled():
        done.exception()
