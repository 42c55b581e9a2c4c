"""Server lists on their way into the catalog: those that come together are stored together."""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot
from smart_mcp_proxy.catalog.store.memory_fallback import FIRST_REMEMBERED_ID, UnstoredServerList, remember
from smart_mcp_proxy.catalog.store.repository import Archive
from smart_mcp_proxy.catalog.store.store import StorageError, Store
from smart_mcp_proxy.catalog.tables import approvals, tools
from smart_mcp_proxy.catalog.tables.following import ApprovalStanding, Followed, follow
from smart_mcp_proxy.catalog.tables.prepared_tools import prepare
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import Review, ToolKey

_MOST_ITEMS: Final = 1_000
"""Limit on the items of lists that share a transaction: other processes wait for its end."""


class _Waiting(msgspec.Struct):
    """A list on its way into the file.

    Attributes:
        server: Configured name, or a shelf.
        definitions: As the server sent them.
        review: The server's policy; None where only the user approves.
        folders: Of the server, as `prepare` takes them.
        keep: Which others stay.
        diff: What it has changed; None before it is stored.
        had_turn: Whether it was tried to store it.
    """

    server: str
    definitions: Sequence[Mapping[str, Any]]
    review: Review | None
    folders: Collection[str] | None = None
    keep: tools.Keep = tools.KEEP_NONE
    diff: Diff | None = None
    had_turn: bool = False


class ServerLists(Archive):
    """The part of a catalog that takes what servers list."""

    def __init__(self, database: Store, *, name_limit: int, clock: Callable[[], float], seals: Seals) -> None:
        super().__init__(database, clock=clock, seals=seals)
        self._name_limit = name_limit
        self._snapshot = Snapshot()
        self._standing = ApprovalStanding(is_closed=True)
        """Nothing is trusted before the file was read, or found never to have been written."""
        self._last_sync_s: dict[str, float] = {}
        self._listed: dict[str, dict[str, str]] = {}
        """Change hashes by server and tool name, as heard last; names of a list would keep the memory that it took."""
        self._heard: dict[str, UnstoredServerList] = {}
        """Lists that no file holds yet, by server."""
        self._waiting: deque[_Waiting] = deque()
        """Lists that were heard and have not had their turn."""
        self._ids = itertools.count(FIRST_REMEMBERED_ID)

    @property
    def snapshot(self) -> Snapshot:
        """All tools as of now; a new object after each change, the same one otherwise."""
        return self._snapshot

    def last_sync_s(self, server: str) -> float | None:
        """When `server` last told its tools, in seconds since the epoch; None if it never did."""
        return self._last_sync_s.get(server)

    def get_listed_hash(self, key: ToolKey) -> str | None:
        """The change hash of a tool in its server's last list to this very process, empty if it was not in it.

        None before this process heard such a list. Another process may have heard another one since: it speaks for
        its own connection, not for ours.
        """
        listed = self._listed.get(key.server)
        return None if listed is None else listed.get(key.tool, "")

    def get_listed_hashes(self, server: str) -> Mapping[str, str] | None:
        """The change hashes of all tools in that list, by name; None before there is one."""
        return self._listed.get(server)

    def is_known(self, server: str) -> bool:
        """Return whether a first list was stored, of tools or contents: only a first list is trusted."""
        return server in self._standing.baselined

    @property
    def is_closed(self) -> bool:
        """Whether the record of approvals was lost: every tool waits for the user, also those of a first list."""
        return self._standing.is_closed

    @property
    def is_sealed(self) -> bool:
        """Whether decisions carry the seal of this process's key; otherwise none counts, and it is closed."""
        return self._standing.is_sealed

    async def sync(
        self,
        server: str,
        definitions: Sequence[Mapping[str, Any]],
        review: Review | None = None,
        folders: Collection[str] | None = None,
        keep: tools.Keep = tools.KEEP_NONE,
    ) -> Diff:
        """Makes the catalog's tools of `server` equal to its full list, and returns what changed.

        A tool whose definition changed keeps its id; one that left and comes back gets a new one. A list that
        changes nothing writes nothing: that the server was heard is stored with the next heartbeat.

        Args:
            server: Configured name, or a shelf of its prompts, resources or templates, which are kept as tools are.
            definitions: Tool objects as the server sent them, each with a string `name`; of two with one name the
                first counts. One that JSON or UTF-8 cannot write is left out with a warning.
            review: Whether the server's policy approves a definition; None where the first list is approved and only
                the user does. Called in the catalog's thread.
            folders: Those of the server, in whose place an approved definition may have named others: it stays approved
                as it was read. None where every difference is a change.
            keep: Which tools stay although the list lacks them. Called in the catalog's thread, in the transaction that
                writes.
        """
        waiting = _Waiting(server, definitions, review, folders, keep)
        self._waiting.append(waiting)
        await self._database.run(partial(self._sync_waiting, waiting))
        if waiting.diff is None:  # it failed together with others: by itself it tells whether it was the cause
            await self._database.run(partial(self._sync, {server: waiting}))
        assert waiting.diff is not None
        return waiting.diff

    async def close_first_list(self, server: str) -> None:
        """Store an empty first list of `server`, unless any process has stored one.

        Only a first list is trusted: what the server lists later waits for approval.

        Args:
            server: As for `sync`.
        """
        if not self.is_known(server):
            await self._database.run(partial(self._close_first_list, server))

    # From here on: in the database's thread.

    def _sync_waiting(self, own: _Waiting) -> None:
        """Stores a list, and those that wait behind it, in one transaction.

        A transaction costs more than what is written in it. Only one list of each server goes along.

        Raises:
            CatalogError: It cannot be stored; of several, each has to be tried by itself.
        """
        if own.had_turn:
            return  # with others
        lists: dict[str, _Waiting] = {}
        items = 0
        while self._waiting:
            waiting = self._waiting[0]
            items += len(waiting.definitions)
            if lists and (waiting.server in lists or items > _MOST_ITEMS):
                break
            lists[waiting.server] = self._waiting.popleft()
            waiting.had_turn = True
        try:
            self._sync(lists)
        except CatalogError:
            if len(lists) == 1:
                raise

    def _close_first_list(self, server: str) -> None:
        if self._lost is None:
            with suppress(StorageError):  # from here on the memory is all there is
                self._read_on()
        if not self.is_known(server):
            self._sync({server: _Waiting(server, [], None)})

    def _sync(self, lists: Mapping[str, _Waiting]) -> None:
        before, now_s = self._snapshot, self.now_s()
        heard: dict[str, UnstoredServerList] = {}
        for server, each in lists.items():
            store = self._database
            wanted = prepare(server, each.definitions, before, store.unstorable, store.longest_bytes, each.folders)
            heard[server] = UnstoredServerList(wanted, each.review, each.keep)
            self._listed[server] = {tool.key.tool: tool.hash for tool in wanted.values()}
        try:
            self._store(heard, now_s)
        except StorageError:
            for server, one in heard.items():
                self._remember(server, one, now_s)
        diffs = self._snapshot.since(before).split(heard, before)
        for server, each in lists.items():
            each.diff = diffs[server]

    def _store(self, heard: Mapping[str, UnstoredServerList], now_s: float) -> None:
        """Stores lists, and reads on: where all are stored already, by one look for what others wrote."""

        def store(connection: Connection) -> None:
            for server, one in unstored.items():
                written = tools.store(connection, server, one.wanted, self._name_limit, self._seals, one.keep)
                # In the same transaction: no list stands in the file without what was agreed to with it.
                approvals.settle(connection, server, one.wanted, one.review, self._seals, written=written, now_s=now_s)
            tools.note_syncs(connection, dict.fromkeys(unstored, now_s))

        if self._lost is not None:
            raise self._lost
        self._read_on()
        unstored = {server: one for server, one in heard.items() if self._is_unstored(server, one)}
        if unstored:
            self._decide(store)
            self._read_on()
        for server in heard:
            self._last_sync_s[server] = now_s
            if server in unstored:
                self._unsaved_syncs.pop(server, None)
            else:
                self._unsaved_syncs[server] = now_s

    def _is_unstored(self, server: str, heard: UnstoredServerList) -> bool:
        """Whether a list changes what is stored, of which the snapshot was just brought up to date."""
        if not self.is_known(server):
            return True
        if self._snapshot.holds(server, self._listed[server]):
            return False

        def look(connection: Connection) -> bool:  # what waits for the user may be approved by the policy now
            return tools.is_unstored(connection, server, heard.wanted, self._seals, heard.keep) or bool(
                approvals.settlement(connection, server, heard.wanted, heard.review, self._seals)
            )

        with self._noting_loss():
            return self._database.read(look)

    def _remember(self, server: str, heard: UnstoredServerList, now_s: float) -> None:
        self._heard[server] = heard
        self._snapshot = remember(self._snapshot, server, heard, self._standing, self._name_limit, self._ids)
        # After it: who sees from another thread that a server has listed must find what it has.
        self._last_sync_s[server] = self._unsaved_syncs[server] = now_s
        if not self.is_known(server):
            self._standing = msgspec.structs.replace(self._standing, baselined=self._standing.baselined | {server})

    def _look(self, connection: Connection, base: Snapshot | None = None) -> Followed:
        """Read what is stored, on from `base`, or from the present snapshot if none is given."""
        snapshot = self._snapshot if base is None else base
        followed = follow(connection, snapshot, self._standing, self._seals)
        return followed or Followed(snapshot, self._standing, self._last_sync_s)

    def _read_on(self) -> Diff:
        """Return what the file holds and the snapshot does not."""
        before = self._snapshot
        with self._noting_loss():
            self._snapshot, self._standing, last_sync_s = self._database.read(self._look)
        self._last_sync_s = last_sync_s | self._unsaved_syncs
        return self._snapshot.since(before)
