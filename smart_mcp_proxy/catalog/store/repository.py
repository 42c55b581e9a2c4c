"""Repository for approvals, activity, examples, vectors and the processes that share a store."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from msgspec import structs
from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.activity_chains import ChainCheck, ChainProof
from smart_mcp_proxy.catalog.recovery.rollback_guard import read_checkpoint
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.store.seal_rows import seal_rows
from smart_mcp_proxy.catalog.store.store import StorageError, Store, Topic
from smart_mcp_proxy.catalog.tables import activity, activity_stats, approvals, instances, tools, vectors
from smart_mcp_proxy.catalog.tables import feedback as examples
from smart_mcp_proxy.catalog.tables.activity import ActivityFilter, ChainWriter, StoredActivity
from smart_mcp_proxy.catalog.tables.activity_stats import ActivityFigures, FiguresQuery
from smart_mcp_proxy.catalog.tables.feedback import Example, Lesson
from smart_mcp_proxy.catalog.tables.instances import Instance
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity, get_logger

CALL_WAIT_S: Final = 3.0
"""Longest that an agent waits for the store: storing a long list takes two seconds; a store that stands still counts as
lost after up to 20."""
_CHECKED: Final = 2_000
"""Records checked at a time, some 20 ms: others' work waits meanwhile."""

T = TypeVar("T")

_log = get_logger("catalog")


class Archive:
    """The part of a catalog that lives in its file alone: nothing of it is done while the file fails.

    Every method raises `CatalogError` then, unless it says otherwise: what is not on disk must not be taken for stored.
    By it processes know of each other, too; while the file fails that waits.
    """

    def __init__(self, database: Store, *, clock: Callable[[], float], seals: Seals) -> None:
        self._database = database
        self._seals = seals
        self._clock = clock
        self._lost: StorageError | None = None
        self.lost_since: datetime | None = None
        """When the store began to fail, in UTC; None while it does not."""
        self._instance: Instance | None = None
        self._unsaved_syncs: dict[str, float] = {}
        self.gateways: tuple[Instance, ...] = ()
        """The living gateways that serve, as of the last heartbeat, oldest first; this one too, if it serves. While the
        store fails they are those of the last heartbeat that it took."""
        self._chains = ChainWriter(seals)
        self._is_tight = False

    @property
    def seals(self) -> Seals:
        """By which it is known that a gateway has written what is stored."""
        return self._seals

    @property
    def is_shared(self) -> bool:
        """Whether gateways on other machines may use the store, which see none of this machine's files."""
        return self._database.is_shared

    @property
    def clock_ahead_s(self) -> float:
        """Seconds that the store's clock is ahead of this machine's; 0 where they differ by less than one."""
        return self._database.ahead_s

    def now_s(self) -> float:
        """The time by the store's clock, which all its processes go by, in seconds since the epoch."""
        return self._clock() + self._database.ahead_s

    async def wait_change(self, topic: Topic, limit_s: float) -> None:
        """Return when another process may have changed something, after `limit_s` at the latest."""
        await self._database.wait_change(topic, limit_s)

    def announce(self, name: str) -> None:
        """Tell other gateways the name of this one, by which its sessions are found; see `Store.announce`."""
        self._database.announce(name)

    async def read(self, work: Callable[[Connection], T], *, limit_s: float | None = None) -> T:
        """Run `work` on the file, all its queries in one state; see `write` for `limit_s`."""
        return await _within(limit_s, self._database.run(partial(self._read, work)))

    async def write(
        self, work: Callable[[Connection], T], *, is_ordered: bool = True, limit_s: float | None = None
    ) -> T:
        """Run `work` and commit: what it wrote survives the end of this process; see `Store.write`.

        Args:
            work: May run more than once.
            is_ordered: See `Store.write`.
            limit_s: `CatalogError` is raised after so long, though `work` may be done later; None waits to its end.
        """
        return await _within(limit_s, self._database.run(partial(self._write, work, is_ordered=is_ordered)))

    async def write_through(self, work: Callable[[Connection], T]) -> T:
        """As `write`, for what should not hang on the journal either; see `Store.fold_journal`."""

        def write_through() -> T:
            result = self._write(work)
            self._database.fold_journal()
            return result

        return await self._database.run(write_through)

    async def approve(
        self,
        seen: Mapping[ToolKey, str],
        by: str,
        *,
        reopens: bool = False,
        lifts: bool = True,
        ballot: approvals.Ballot | None = None,
    ) -> frozenset[ToolKey]:
        """Approves listed definitions in the user's name; returns those that still were what the user saw.

        Once it returns they stay approved whatever happens to this process; `refresh` shows what became visible.

        Args:
            seen: The change hash that the user saw, by tool.
            by: Who approves.
            reopens: Whether first lists are trusted again, where the record of approvals was lost.
            lifts: Whether those among them that are blocked are no longer.
            ballot: The person who approves, and how many have to; None where nobody counts persons.
        """
        made = partial(approvals.approve, by=by, now_s=self.now_s(), seals=self._seals)
        work = partial(made, seen=seen, reopens=reopens, lifts=lifts, ballot=ballot)
        return await self._database.run(partial(self._decide, work))

    async def find_votes(self) -> Sequence[approvals.Vote]:
        """Approvals of definitions that need more of them, the oldest first."""
        return await self.read(partial(approvals.find_votes, seals=self._seals))

    async def reseal(self) -> int:
        """Believe all decisions about tools as they stand; return how many. `refresh` shows the effect."""
        self._seals.require_kept()
        return await self._database.run(partial(self._decide, partial(seal_rows, seals=self._seals)))

    async def bind_unconfined(self, programs: Mapping[str, str]) -> dict[str, str]:
        """Programs of servers that ran before there was a sandbox, by server; see `tools.bind_unconfined`."""
        work = partial(tools.bind_unconfined, programs=programs, seals=self._seals)
        return await self.write(work, is_ordered=False)

    async def find_altered_programs(self) -> frozenset[str]:
        """Servers whose record there was changed by something else than a gateway."""
        return await self.read(partial(tools.find_altered_programs, seals=self._seals))

    async def block(self, key: ToolKey, by: str) -> None:
        """Keeps a tool from agents, whatever its definition becomes; `refresh` shows it."""
        work = partial(approvals.block, key=key, by=by, now_s=self.now_s(), seals=self._seals)
        await self._database.run(partial(self._decide, work))

    async def unblock(self, key: ToolKey, by: str) -> bool:
        """Lifts a block, whether there was one; what was approved before it is approved again."""
        work = partial(approvals.unblock, key=key, by=by, now_s=self.now_s(), seals=self._seals)
        return await self._database.run(partial(self._decide, work))

    async def append_activity(self, batch: Sequence[Activity], limit_rows: int = 0, *, is_new: bool = False) -> None:
        """Adds records that the activity log lacks; they are on disk once this returns.

        Args:
            batch: In their order.
            limit_rows: The oldest beyond so many are removed; 0 is no limit.
            is_new: Whether none of them can be in the log already, unless the last batch of this process failed.
        """
        if batch:
            # Made by this machine's clock, which may be wrong; who asks for the last hour goes by the store's.
            ahead_s = self._database.ahead_s
            dated = [structs.replace(one, at_s=one.at_s + ahead_s) for one in batch] if ahead_s else list(batch)
            append = partial(
                activity.append,
                batch=dated,
                chains=self._chains,
                now_s=self.now_s(),
                limit_rows=limit_rows,
                is_new=is_new and not self._chains.is_in_doubt,
            )
            await self._database.run(partial(self._append_activity, append))

    def _append_activity(self, append: Callable[[Connection], None]) -> None:
        try:
            self._write(append, is_ordered=False)
        except CatalogError:
            self._chains.doubt()
            raise
        self._chains.settle()

    async def check_activity(self) -> ChainProof:
        """Look through the activity log for records that were changed, added or removed beside its gateways."""
        read_chains = partial(activity.read_chains, seals=self._seals)
        chains = await self.read(read_chains)
        check, place = ChainCheck(self._seals, chains), 0
        while records := await self.read(partial(activity.read_sealed, after=place, limit=_CHECKED)):
            await self._database.run(partial(check.add, records))
            place = records[-1].place
        return check.end(await self.read(read_chains))

    async def activity_page(
        self,
        wanted: ActivityFilter,
        limit: int,
        *,
        before: int | None = None,
        after: int | None = None,
        until: int | None = None,
    ) -> tuple[StoredActivity, ...]:
        """Up to `limit` records of the activity log with their places in it, the newest ones first.

        Args:
            wanted: Which.
            limit: At most so many, at least 1.
            before: Only those stored before this place.
            after: Only those stored after this place; then the oldest ones come first.
            until: Only those stored up to this place.
        """
        find = partial(activity.page, wanted=wanted, limit=limit, before=before, after=after, until=until)
        return await self.read(find)

    async def activity_figures(self, wanted: FiguresQuery) -> tuple[ActivityFigures, ...]:
        """Figures of searches and calls, in order of time and then of size."""
        return await self.read(partial(activity_stats.figures, wanted=wanted))

    async def last_activity_place(self) -> int:
        """Place of the newest record in the activity log that no record will precede; 0 where there is none."""
        return await self.read(activity.last_place)

    async def find_activity(self, record_id: str) -> Activity | None:
        """Find a record by id, or the newest one whose id ends so (6 characters at least)."""
        return await self.read(partial(activity.find, record_id=record_id))

    async def trim_activity(self, before_s: float) -> None:
        """Remove records of days (UTC) that were over at `before_s`, in seconds since the epoch."""
        trim = partial(activity.trim, seals=self._seals, before_s=before_s)
        while await self.write(trim, is_ordered=False):
            pass

    async def prepare_activity(self) -> None:
        """Makes room for the records of the coming days, where days have their own."""
        await self.write(partial(activity.prepare, now_s=self.now_s()), is_ordered=False)

    async def learn(self, lessons: Sequence[Lesson]) -> None:
        """Counts questions that led to a tool; `refresh` shows what became of it."""

        def work(connection: Connection) -> None:
            tools.mark_changed(connection, examples.learn(connection, lessons, now_s=self.now_s()))

        await self.write(work)

    async def read_examples(self, key: ToolKey) -> tuple[Example, ...]:
        """Everything learned about a tool, most used first, candidates included; nothing while the file fails."""
        try:
            return await self.read(partial(examples.of_tool, key=key))
        except StorageError:
            return ()

    async def forget_examples(self, key: ToolKey | None = None, words: str | None = None) -> int:
        """Delete examples of one tool or all, one question or all; returns how many questions.

        `refresh` shows what became of it.
        """

        def work(connection: Connection) -> int:
            count, changed = examples.forget(connection, key, words)
            tools.mark_changed(connection, changed)
            return count

        return await self.write(work)

    async def read_vectors(self, embedder: str, hashes: Collection[str]) -> dict[str, bytes]:
        """The vectors that an embedder made, by definition hash; those that nobody stored are absent."""
        return await self.read(partial(vectors.read_vectors, embedder=embedder, hashes=hashes))

    async def vector_counts(self, hashes: Collection[str]) -> dict[str, int]:
        """Count the definitions with stored vectors by embedder, most first, then the latest first."""
        return await self.read(partial(vectors.counts, hashes=hashes))

    async def store_vectors(self, embedder: str, made: Mapping[str, bytes]) -> None:
        """Stores vectors by definition hash; once it returns they survive whatever happens to this process."""
        await self.write(partial(vectors.store, embedder=embedder, made=made, now_s=self.now_s()))

    async def tidy_vectors(self, embedder: str, hashes: Collection[str]) -> None:
        """Notes that the vectors of these definitions are in use, and drops some that nobody used for 30 days."""

        def work(connection: Connection) -> None:
            vectors.note_use(connection, embedder, hashes, self.now_s())
            vectors.drop_unused(connection, self.now_s())

        await self.write(work)

    async def instances(self) -> tuple[Instance, ...]:
        """The living processes on this data directory, oldest first, this one included once it is registered."""
        return await self.read(partial(instances.live_instances, now_s=self.now_s()))

    @property
    def other_gateways(self) -> tuple[Instance, ...]:
        """The same without this process."""
        own = None if self._instance is None else self._instance.id
        return tuple(one for one in self.gateways if one.id != own)

    async def register_instance(self, pid: int, servers: Collection[str], *, serves: bool = True) -> Instance:
        """Tells other processes that this one lives and uses `servers`; again, when these change.

        Args:
            pid: Process id.
            servers: Names of its servers.
            serves: Whether agents call through it, so that it needs its share of limits; not asked again.
        """
        return await self._database.run(partial(self._register, pid, tuple(sorted(servers)), serves=serves))

    async def heartbeat(self) -> None:
        """Tells other processes that this one still lives, and drops those not heard of for 30 s.

        Raises:
            RuntimeError: `register_instance` was not called before.
        """
        await self._database.run(self._beat)

    # From here on: in the database's thread.

    def _lose(self, error: StorageError) -> None:
        """Goes on in memory; says once what is to be done, however many reads and writes fail meanwhile."""
        if self._lost is None:
            self.lost_since = datetime.fromtimestamp(self.now_s(), UTC)
        if self._lost is None or self._lost.hint != error.hint:
            _log.warning("%s Tools are kept in memory until it can be written.", error)
        self._lost = error

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        """Goes on in memory where the file fails inside; the error is raised on."""
        try:
            yield
        except StorageError as exc:
            self._lose(exc)
            raise

    def _read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one state of the file; where that fails, say what it was lost by."""
        try:
            return self._database.read(work)
        except StorageError as exc:
            raise self._lost or exc from exc.__cause__

    def _write(self, work: Callable[[Connection], T], *, is_ordered: bool = True) -> T:
        """Run `work` and commit; tries nothing while the file is known to fail."""
        if self._lost is not None:
            raise self._lost
        with self._noting_loss():
            return self._database.write(work, is_ordered=is_ordered)

    def _decide(self, work: Callable[[Connection], T]) -> T:
        """As `_write`, for what may change approvals: what is noted of them outside the file follows at once."""
        result, checkpoint = self._write(lambda connection: (work(connection), read_checkpoint(connection)))
        with self._noting_loss():
            self._database.advance_checkpoint(checkpoint)
        return result

    def _register(self, pid: int, servers: tuple[str, ...], *, serves: bool) -> Instance:
        now_s = self.now_s()
        if self._instance is not None:
            self._instance = structs.replace(self._instance, pid=pid, servers=servers)
            self._beat()
            return self._instance

        def register(connection: Connection) -> tuple[Instance, tuple[Instance, ...]]:
            own = instances.register(connection, pid, servers, now_s, serves=serves)
            return own, instances.live_instances(connection, now_s)

        try:
            self._instance, living = self._write(register)
        except StorageError:
            self._instance = Instance(instances.UNREGISTERED, pid, now_s, now_s, servers, serves)
        else:
            self._note(living)
        return self._instance

    def _register_again(self, connection: Connection, now_s: float) -> Instance | None:
        """Register this process in a store that does not know it."""
        own = self._instance
        if own is None:
            return None
        return instances.register(connection, own.pid, own.servers, now_s, serves=own.serves)

    def _beat(self) -> None:
        if self._instance is None:
            raise RuntimeError("heartbeat before register_instance")
        self._is_tight = self._database.is_tight()
        instance = self._instance = structs.replace(self._instance, heartbeat_s=self.now_s())

        def beat(connection: Connection) -> tuple[Instance, ...]:
            instances.beat(connection, instance)
            tools.note_syncs(connection, self._unsaved_syncs)
            return instances.live_instances(connection, instance.heartbeat_s)

        try:
            living = self._write(beat, is_ordered=False)
        except StorageError:
            return  # said already; other processes take this one for dead until the file is back
        self._unsaved_syncs.clear()
        self._note(living)

    def _note(self, living: tuple[Instance, ...]) -> None:
        self.gateways = tuple(one for one in living if one.serves)

    def _farewell(self, connection: Connection) -> None:
        """Leave nothing undone that waits for the next heartbeat, and remove this process."""
        tools.note_syncs(connection, self._unsaved_syncs)
        if self._instance is not None:
            instances.unregister(connection, self._instance)


async def _within(limit_s: float | None, done: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await done
    except TimeoutError:
        if not limit.expired():
            raise
        raise CatalogError(
            f"The catalog's store has not answered for {limit_s:g} s.", hint="Look at it with: mcpproxy doctor"
        ) from None
