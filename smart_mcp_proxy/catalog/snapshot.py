"""Snapshots: immutable pictures of all approved tools, and differences between two."""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from smart_mcp_proxy.layered import Layered
from smart_mcp_proxy.models import ToolKey, ToolRecord, Withheld

K = TypeVar("K")
V = TypeVar("V")

_id_of = attrgetter("id")


class Diff(msgspec.Struct, frozen=True):
    """Changes among the approved tools between two snapshots; false when there are none.

    Attributes:
        added: Tools that were not there before, or not approved.
        changed: Tools with another definition or listed name, under the id they had.
        removed: Ids of the tools that left or are withheld now; never given to another tool.
        generation: Of the later snapshot.
    """

    added: tuple[ToolRecord, ...]
    changed: tuple[ToolRecord, ...]
    removed: tuple[int, ...]
    generation: int

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def split(self, servers: Collection[str], older: "Snapshot") -> dict[str, "Diff"]:
        """The part of each of these servers; the first one's has what is of none of them.

        Args:
            servers: At least one.
            older: The snapshot from which this leads on.
        """
        first = next(iter(servers))
        if not self or len(servers) == 1:
            return {server: self if server == first else Diff((), (), (), self.generation) for server in servers}
        parts: dict[str, tuple[list[ToolRecord], list[ToolRecord], list[int]]]
        parts = {server: ([], [], []) for server in servers}
        for record in self.added:
            parts.get(record.key.server, parts[first])[0].append(record)
        for record in self.changed:
            parts.get(record.key.server, parts[first])[1].append(record)
        for id_ in self.removed:
            parts.get(older.by_id[id_].key.server, parts[first])[2].append(id_)
        return {
            server: Diff(tuple(added), tuple(changed), tuple(removed), self.generation)
            for server, (added, changed, removed) in parts.items()
        }


class SnapshotStep(NamedTuple):
    """The way from one snapshot to the next: the mark of the former, and what changed."""

    origin: object
    diff: Diff


class Snapshot(msgspec.Struct, frozen=True):  # noqa: PLW1641  (its mappings have no hash)
    """All tools of one generation of the catalog.

    Only `withheld` knows of a definition that was not approved: whoever looks a tool up anywhere else cannot come
    upon one, so search, lists, statistics and calls need no gate of their own.

    Attributes:
        generation: Grows with every write to the tools or approvals, by whichever process; 0 before the file was read.
        by_id: Record per id.
        by_key: Record per server and tool name.
        by_listed: Record per listed name.
        by_server: A server's records, oldest id first; servers without tools are absent.
        withheld: Listed tools whose definition is not approved, for whoever reviews them.
        withheld_keys: Key of each withheld tool by its id.
        step: What led here from the snapshot before.
        mark: Tells it from every other one.
    """

    generation: int = 0
    by_id: Layered[int, ToolRecord] = msgspec.field(default_factory=Layered)
    by_key: Mapping[ToolKey, ToolRecord] = msgspec.field(default_factory=Layered)
    by_listed: Mapping[str, ToolRecord] = msgspec.field(default_factory=Layered)
    by_server: Mapping[str, tuple[ToolRecord, ...]] = msgspec.field(default_factory=Layered)
    withheld: Mapping[ToolKey, Withheld] = msgspec.field(default_factory=Layered)
    # Not compared: they follow from the others, or tell one snapshot from the next.
    withheld_keys: Mapping[int, ToolKey] = msgspec.field(default_factory=Layered)
    step: SnapshotStep | None = None
    mark: object = msgspec.field(default_factory=object)

    def __repr__(self) -> str:
        withheld = f" withheld={len(self.withheld)}" if self.withheld else ""
        servers = len(self.by_server)
        return f"<Snapshot generation={self.generation} tools={len(self.by_id)} servers={servers}{withheld}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and astuple(self)[:-3] == astuple(other)[:-3]

    def ids(self) -> set[int]:
        """The ids of all tools, the withheld ones included."""
        return self.by_id.keys() | {each.record.id for each in self.withheld.values()}

    def collect_server_tools(self, *servers: str) -> tuple[ToolRecord, ...]:
        """The tools of servers, the withheld ones included; for what is stored, never for what is shown."""
        approved = (record for server in servers for record in self.by_server.get(server, ()))
        withheld = (each.record for each in self.withheld.values() if each.record.key.server in servers)
        return (*approved, *withheld)

    def holds(self, server: str, hashes: Mapping[str, str]) -> bool:
        """Whether a server's tools are these, by name and change hash, and all of them approved."""
        records = self.by_server.get(server, ())
        return (
            len(records) == len(hashes)
            and all(hashes.get(record.key.tool) == record.change_hash for record in records)
            and all(key.server != server for key in self.withheld)
        )

    def replace_records(
        self,
        generation: int,
        records: Collection[ToolRecord],
        removed: Collection[int],
        withheld: Collection[Withheld] = (),
    ) -> "Snapshot":
        """The snapshot of `generation`: this one without the ids in `removed`, the others put in by their id.

        Args:
            generation: Of the new snapshot.
            records: Approved tools.
            removed: Ids of tools that left.
            withheld: Tools that are not approved.
        """
        touched: set[int] = set()
        if self.by_id or self.withheld_keys:
            touched.update(removed, (record.id for record in records), (each.record.id for each in withheld))
        leaving = [before for id_ in touched if (before := self.by_id.get(id_)) is not None]
        entered = {record.id: record for record in records}
        left = {record.id for record in leaving}
        by_server = self._regroup_records(leaving, records)
        return Snapshot(
            generation,
            _next(self.by_id, entered, left),
            _next(self.by_key, {record.key: record for record in records}, [record.key for record in leaving]),
            _next(
                self.by_listed,
                {record.listed_name: record for record in records},
                [record.listed_name for record in leaving],
            ),
            _next(self.by_server, {server: group for server, group in by_server.items() if group}, by_server),
            _next(
                self.withheld,
                {each.record.key: each for each in withheld},
                [self.withheld_keys[id_] for id_ in touched if id_ in self.withheld_keys],
            ),
            _next(self.withheld_keys, {each.record.id: each.record.key for each in withheld}, touched),
            SnapshotStep(self.mark, self._diff_to(generation, entered, left)),
        )

    def _regroup_records(
        self, leaving: Collection[ToolRecord], records: Collection[ToolRecord]
    ) -> dict[str, tuple[ToolRecord, ...]]:
        """Group the records of each server that some leave or enter; empty where none is left."""
        servers = {record.key.server for record in (*leaving, *records)}
        groups = {server: list(self.by_server.get(server, ())) for server in servers}
        for record in leaving:
            group = groups[record.key.server]
            del group[bisect_left(group, record.id, key=_id_of)]
        for record in records:
            group = groups[record.key.server]
            if not group or group[-1].id < record.id:  # as at a start
                group.append(record)
            else:
                insort(group, record, key=_id_of)
        return {server: tuple(group) for server, group in groups.items()}

    def _diff_to(self, generation: int, entered: Mapping[int, ToolRecord], left: Collection[int]) -> Diff:
        return Diff(
            tuple(record for id_, record in entered.items() if id_ not in left),
            tuple(record for id_, record in entered.items() if id_ in left),
            tuple(id_ for id_ in left if id_ not in entered),
            generation,
        )

    def since(self, older: "Snapshot") -> Diff:
        """Changes from `older`, an earlier snapshot of the same catalog, to this one."""
        added, changed = [], []
        if self is older:
            return Diff((), (), (), self.generation)
        if self.step is not None and self.step.origin is older.mark:
            return self.step.diff
        for id_, record in self.by_id.items():
            before = older.by_id.get(id_)
            if before is None:
                added.append(record)
            elif before is not record:
                changed.append(record)
        removed = tuple(id_ for id_ in older.by_id if id_ not in self.by_id)
        return Diff(tuple(added), tuple(changed), removed, self.generation)


def _next(mapping: Mapping[K, V], entries: dict[K, V], gone: Collection[K]) -> Layered[K, V]:
    whole = mapping if isinstance(mapping, Layered) else Layered(dict(mapping))
    return whole.apply_changes(entries, gone)
