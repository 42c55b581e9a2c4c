"""Snapshots: immutable pictures of all approved tools, and differences between two."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from smart_mcp_proxy.models import ToolKey, ToolRecord, Withheld

__all__ = ["Diff", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Diff:
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


@dataclass(frozen=True, slots=True)
class Snapshot:
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
    """

    generation: int = 0
    by_id: Mapping[int, ToolRecord] = field(default_factory=dict)
    by_key: Mapping[ToolKey, ToolRecord] = field(default_factory=dict)
    by_listed: Mapping[str, ToolRecord] = field(default_factory=dict)
    by_server: Mapping[str, tuple[ToolRecord, ...]] = field(default_factory=dict)
    withheld: Mapping[ToolKey, Withheld] = field(default_factory=dict)

    def __repr__(self) -> str:
        withheld = f" withheld={len(self.withheld)}" if self.withheld else ""
        servers = len(self.by_server)
        return f"<Snapshot generation={self.generation} tools={len(self.by_id)} servers={servers}{withheld}>"

    def ids(self) -> set[int]:
        """The ids of all tools, the withheld ones included."""
        return self.by_id.keys() | {each.record.id for each in self.withheld.values()}

    def tools_of(self, *servers: str) -> tuple[ToolRecord, ...]:
        """The tools of servers, the withheld ones included; for what is stored, never for what is shown."""
        approved = (record for server in servers for record in self.by_server.get(server, ()))
        withheld = (each.record for each in self.withheld.values() if each.record.key.server in servers)
        return (*approved, *withheld)

    def replaced(
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
        gone = {*removed, *(record.id for record in records), *(each.record.id for each in withheld)}
        by_id, by_key = dict(self.by_id), dict(self.by_key)
        by_listed, by_server = dict(self.by_listed), dict(self.by_server)
        leaving = [by_id.pop(id_) for id_ in gone if id_ in by_id]
        kept_back = {key: each for key, each in self.withheld.items() if each.record.id not in gone}
        kept_back.update((each.record.key, each) for each in withheld)
        for record in leaving:
            del by_key[record.key], by_listed[record.listed_name]
        for record in records:
            by_id[record.id] = by_key[record.key] = by_listed[record.listed_name] = record

        left = {record.id for record in leaving}
        entering: dict[str, list[ToolRecord]] = {record.key.server: [] for record in (*leaving, *records)}
        for record in records:
            entering[record.key.server].append(record)
        for server, new in entering.items():
            kept = (record for record in by_server.pop(server, ()) if record.id not in left)
            if group := sorted((*kept, *new), key=lambda record: record.id):
                by_server[server] = tuple(group)
        return Snapshot(
            generation,
            MappingProxyType(by_id),
            MappingProxyType(by_key),
            MappingProxyType(by_listed),
            MappingProxyType(by_server),
            MappingProxyType(kept_back),
        )

    def since(self, older: "Snapshot") -> Diff:
        """Changes from `older`, an earlier snapshot of the same catalog, to this one."""
        added, changed = [], []
        if self is older:
            return Diff((), (), (), self.generation)
        for id_, record in self.by_id.items():
            before = older.by_id.get(id_)
            if before is None:
                added.append(record)
            elif before is not record:
                changed.append(record)
        removed = tuple(id_ for id_ in older.by_id if id_ not in self.by_id)
        return Diff(tuple(added), tuple(changed), removed, self.generation)
