"""In-memory catalog while the file cannot be stored, and how it is stored afterwards."""

import json
from collections.abc import Iterator, Mapping

import msgspec
from sqlalchemy import Connection, update

from smart_mcp_proxy.catalog.hashing import approval_digest
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.snapshot import Snapshot
from smart_mcp_proxy.catalog.tables import approvals
from smart_mcp_proxy.catalog.tables.following import ApprovalStanding, parse_hints
from smart_mcp_proxy.catalog.tables.prepared_tools import PreparedTool, Wanted, prepare
from smart_mcp_proxy.catalog.tables.schema import listed_names, meta
from smart_mcp_proxy.catalog.tables.tools import KEEP_NONE, Keep, store
from smart_mcp_proxy.catalog.tables.upsert import upsert
from smart_mcp_proxy.models import Review, Submission, ToolKey, ToolRecord, Withheld, WithheldState
from smart_mcp_proxy.names import build_listed_name

FIRST_REMEMBERED_ID = 1 << 40
"""Ids from here on belong to tools that no file holds yet; no file gets so far."""


class UnstoredServerList(msgspec.Struct, frozen=True):
    """A server's list that no file holds yet.

    Attributes:
        wanted: Its tools by name.
        review: The server's policy; None where only the user approves.
        keep: Which others stay.
    """

    wanted: Wanted
    review: Review | None = None
    keep: Keep = KEEP_NONE


def remember(
    snapshot: Snapshot,
    server: str,
    heard: UnstoredServerList,
    standing: ApprovalStanding,
    name_limit: int,
    ids: Iterator[int],
) -> Snapshot:
    """Apply a server's list to `snapshot` as `store` and `advance` do, without a file.

    Args:
        snapshot: Not changed.
        server: Configured name.
        heard: Its whole list.
        standing: As it was last read.
        name_limit: Longest listed name, in characters.
        ids: For the tools that are new.
    """
    before = {record.key.tool: record for record in snapshot.collect_server_tools(server)}
    gone = before.keys() - heard.wanted.keys()
    removed = [before[name].id for name in gone - heard.keep(None, gone)]
    taken = {*snapshot.by_listed, *(each.record.listed_name for each in snapshot.withheld.values())}
    records: list[ToolRecord] = []
    withheld: list[Withheld] = []
    for name, tool in heard.wanted.items():
        known = before.get(name)
        if known is not None and known.change_hash == tool.hash:
            record = known
        else:
            record = _record(tool, known, name_limit, taken, ids)
        judged = _judge_record(record, snapshot, heard, standing)
        if isinstance(judged, ToolRecord) and judged is not snapshot.by_key.get(tool.key):
            records.append(judged)
        elif isinstance(judged, Withheld) and judged != snapshot.withheld.get(tool.key):
            withheld.append(judged)
    if not (records or removed or withheld):
        return snapshot
    return snapshot.replace_records(snapshot.generation + 1, records, removed, withheld)


def _record(
    tool: PreparedTool, known: ToolRecord | None, name_limit: int, taken: set[str], ids: Iterator[int]
) -> ToolRecord:
    """A listed tool under the id and name that it had, or new ones."""
    if known is None:
        name = build_listed_name(tool.key, name_limit, taken)
        taken.add(name)
    return ToolRecord(
        id=next(ids) if known is None else known.id,
        key=tool.key,
        listed_name=name if known is None else known.listed_name,
        raw=tool.raw,
        change_hash=tool.hash,
        digest=approval_digest(tool.hash),
        annotations=parse_hints(tool.annotations),
        examples=() if known is None else known.examples,
    )


def _judge_record(
    record: ToolRecord, snapshot: Snapshot, heard: UnstoredServerList, standing: ApprovalStanding
) -> ToolRecord | Withheld:
    """Judge a tool by the approvals in memory, which may be fewer than there were."""
    key = record.key
    approved: bytes | None
    if (shown := snapshot.by_key.get(key)) is not None:
        approved, approved_hash = shown.raw, shown.change_hash
    elif (kept_back := snapshot.withheld.get(key)) is not None:
        approved, approved_hash = kept_back.approved, kept_back.approved_hash
    else:
        approved, approved_hash = None, ""
    if key in standing.blocked:
        return Withheld(record, WithheldState.BLOCKED, approved, approved_hash)
    is_first = approved is None and standing.trusts_first_list(key.server)
    if record.change_hash == approved_hash or (is_first and heard.review is None):
        return record
    before = None if approved is None else json.loads(approved)
    # Of a server that was never heard it is certain that nothing was approved.
    submission = Submission(key, record.change_hash, json.loads(record.raw), before, is_on_file=is_first)
    if heard.review is not None and not standing.is_closed and heard.review(submission):
        return record
    return Withheld(record, WithheldState.CHANGED if approved_hash else WithheldState.PENDING, approved, approved_hash)


def restore(  # noqa: PLR0913  (each is another part of the memory, or of the store)
    connection: Connection,
    snapshot: Snapshot,
    lists: Mapping[str, UnstoredServerList],
    standing: ApprovalStanding,
    name_limit: int,
    seals: Seals,
    *,
    is_new_file: bool,
    is_whole: bool,
    now_s: float,
) -> None:
    """Stores what only the memory knows: the lists that were heard, in a new file all tools and decisions.

    Of a memory that is not whole only blocks and heard first lists count: an approval may have been taken back.

    Listed names stay as they are unless another process has given them away meanwhile. Generations and ids go on
    from those of the snapshot. What became approved in memory is judged anew by what the file knows.
    """
    heard = dict(lists)
    if is_new_file:
        last_id = max((id_ for id_ in snapshot.ids() if id_ < FIRST_REMEMBERED_ID), default=0)
        _skip_ids(connection, last_id)
        for server in {key.server for key in (*snapshot.by_key, *snapshot.withheld)}:
            definitions = [json.loads(record.raw) for record in snapshot.collect_server_tools(server)]
            heard.setdefault(server, UnstoredServerList(prepare(server, definitions)))
        approvals.recall(connection, standing, _iterate_approvals(snapshot) if is_whole else (), now_s, seals)
    behind = update(meta).where(meta.c.key == "generation", meta.c.value < snapshot.generation)
    connection.execute(behind.values(value=snapshot.generation))
    for server, each in heard.items():
        names = [
            {"server_name": server, "name": record.key.tool, "listed_name": record.listed_name}
            for record in snapshot.collect_server_tools(server)
        ]
        if names:
            connection.execute(upsert(connection, listed_names).on_conflict_do_nothing(), names)
        written = store(connection, server, each.wanted, name_limit, seals, each.keep)
        approvals.settle(connection, server, each.wanted, each.review, seals, written=written, now_s=now_s)


def _iterate_approvals(snapshot: Snapshot) -> Iterator[tuple[ToolKey, str, str]]:
    """Tool, change hash and definition of everything that the snapshot knows to be approved."""
    for record in snapshot.by_id.values():
        yield record.key, record.change_hash, record.raw.decode()
    for each in snapshot.withheld.values():
        if each.approved is not None:
            yield each.record.key, each.approved_hash, each.approved.decode()


def _skip_ids(connection: Connection, last_id: int) -> None:
    """Marks all ids up to `last_id` as used."""
    known = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'tools'").scalar()
    if known is None:
        connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES ('tools', ?)", (last_id,))
    elif known < last_id:
        connection.exec_driver_sql("UPDATE sqlite_sequence SET seq = ? WHERE name = 'tools'", (last_id,))
