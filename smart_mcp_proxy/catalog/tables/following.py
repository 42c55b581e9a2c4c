"""SQL by which a process follows the others: all that changed since its snapshot, in three statements.

A replica among many reads every decision about a tool, so what it takes is counted: `tests/catalog/test_costs.py`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, LargeBinary, Select, bindparam, case, cast, delete, func, select
from sqlalchemy.exc import NoResultFound

from smart_mcp_proxy.catalog.hashing import approval_digest, canonical_json
from smart_mcp_proxy.catalog.recovery import rollback_guard
from smart_mcp_proxy.catalog.recovery.seals import SealedTrust, Seals, has_hash
from smart_mcp_proxy.catalog.snapshot import Snapshot
from smart_mcp_proxy.catalog.tables.feedback import USES_NEEDED
from smart_mcp_proxy.catalog.tables.schema import approvals, gone, tools
from smart_mcp_proxy.models import ToolKey, ToolRecord, Withheld, WithheldState
from smart_mcp_proxy.telemetry import get_logger

UNSEALED = (
    "what was decided about tools does not carry this gateway's seal: the key was lost or is another "
    "(approvals.key, or MCPPROXY_SECRET_KEY), or the record was changed or put back from an earlier copy. Every tool "
    "waits, and tokens of agents open nothing: mcpproxy approve --reseal"
)

_log = get_logger("catalog")

_ROWS = 1_000
"""Tools read at a time: of what is read and thrown away again, the process keeps the memory."""
_TOLD = 20
"""Names in a message; `mcpproxy approve --list` has all."""
_HINT_COMBINATIONS = 81
"""Each of the four hints is true, false or absent."""
_GONE_KEPT = 1_000
"""Generations for which it is kept which ids left; who is further behind compares all ids."""

_BESIDE = f"""SELECT 'heard', name, NULL, last_sync_s FROM servers
  UNION ALL SELECT 'first', server_name, NULL, 0 FROM baselines
  UNION ALL SELECT 'blocked', server_name, name, 0 FROM approvals WHERE state = 'blocked'
  UNION ALL SELECT 'trust', content, seal, 0 FROM seals WHERE name = 'trust'
  UNION ALL SELECT 'gone', NULL, NULL, id FROM gone WHERE generation > {{seen:d}}
  UNION ALL SELECT 'learned', words, question, tools.id FROM tools
    JOIN examples ON examples.server_name = tools.server_name AND examples.name = tools.name
    WHERE tools.generation > {{seen:d}} AND uses >= {USES_NEEDED}"""
"""A kind, two texts and a number, each. One statement: by itself each of the six costs a process 0.3 ms."""


class ApprovalStanding(msgspec.Struct, frozen=True):
    """State of servers and of the user's blocks as a whole.

    Attributes:
        baselined: Servers whose first list was heard.
        blocked: Tools that the user switched off.
        is_closed: Whether the record of approvals was lost: no first list is trusted before the user says so.
        checkpoint: Which file this was read from, and how far it had come.
        is_sealed: Whether a gateway with this one's key has sealed what first lists go by; else it is closed.
    """

    baselined: frozenset[str] = frozenset()
    blocked: frozenset[ToolKey] = frozenset()
    is_closed: bool = False
    checkpoint: rollback_guard.Checkpoint = rollback_guard.NO_CHECKPOINT
    is_sealed: bool = True

    def trusts_first_list(self, server: str) -> bool:
        """Whether the next list of `server` is its first, agreed to with its server unless its policy doubts."""
        return not self.is_closed and server not in self.baselined


class Followed(NamedTuple):
    """The catalog as the store has it now.

    Attributes:
        snapshot: Its tools.
        standing: What was decided.
        last_sync_s: When each server was last listed, in seconds since the epoch.
    """

    snapshot: Snapshot
    standing: ApprovalStanding
    last_sync_s: dict[str, float]


class _Beside(msgspec.Struct):
    """Rows of `_BESIDE` by kind."""

    heard: dict[str, float] = msgspec.field(default_factory=dict)
    first: set[str] = msgspec.field(default_factory=set)
    blocked: set[ToolKey] = msgspec.field(default_factory=set)
    gone: set[int] = msgspec.field(default_factory=set)
    learned: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    trust: SealedTrust | None = None

    @property
    def lifted(self) -> frozenset[ToolKey]:
        """Tools whose block no gateway has lifted, though no row says any more that they are blocked."""
        return self.trust.blocked - self.blocked if self.trust is not None else frozenset()


def follow(connection: Connection, snapshot: Snapshot, standing: ApprovalStanding, seals: Seals) -> Followed | None:
    """Read the catalog as it is now; None if no process has written a tool or an approval since.

    Here, where a tool enters the memory, it is decided whether agents may see it: only if its definition and the
    approved one have the same full hash, and both rows are as a gateway has sealed them. Anything else about it, be it
    in doubt, leads to `withheld`.
    """
    counters = rollback_guard.read_meta(connection)
    if (generation := counters.get(rollback_guard.GENERATION_KEY)) is None:
        raise NoResultFound("the database does not count its changes")
    checkpoint = rollback_guard.build_checkpoint(connection, counters)
    # An empty list is a first one, too, and moves no generation.
    if generation == snapshot.generation and checkpoint == standing.checkpoint:
        return None
    if generation < snapshot.generation:  # what was written last is lost, and memory must not hide it
        snapshot = Snapshot()
    beside = _read_beside(connection, snapshot.generation, seals)
    trust, is_sealed = beside.trust or SealedTrust(), beside.trust is not None
    decided = ApprovalStanding(
        trust.heard | beside.first,
        trust.blocked | beside.blocked,
        rollback_guard.CLOSED_KEY in counters or not is_sealed,
        checkpoint,
        is_sealed,
    )
    if standing.is_sealed and not is_sealed:
        _log.warning("%s", UNSEALED)
    if generation != snapshot.generation:
        snapshot = _advance(connection, snapshot, generation, beside, seals)
    return Followed(snapshot, decided, beside.heard)


def _read_beside(connection: Connection, seen: int, seals: Seals) -> _Beside:
    found, learned = _Beside(), []
    for kind, first, second, number in connection.exec_driver_sql(_BESIDE.format(seen=seen)).all():
        if kind == "heard":
            found.heard[first] = number
        elif kind == "first":
            found.first.add(first)
        elif kind == "blocked":
            found.blocked.add(ToolKey(first, second))
        elif kind == "trust":
            found.trust = seals.open_trust(first, second)
            if found.trust is not None:  # committed: what is read here is written by nobody who may roll it back
                seals.see_edition(found.trust.edition)
        elif kind == "gone":
            found.gone.add(int(number))
        else:
            learned.append((first, second, int(number)))
    for _, question, id_ in sorted(learned):
        found.learned[id_] = (*found.learned.get(id_, ()), question)
    return found


def _advance(connection: Connection, snapshot: Snapshot, generation: int, beside: _Beside, seals: Seals) -> Snapshot:
    changed = _build_changes_query(connection.dialect.name)
    if not snapshot.generation:
        changed = changed.execution_options(yield_per=_ROWS)  # by a cursor at the server: there may be many
    records, withheld = [], []
    for row in connection.execute(changed, {"seen": snapshot.generation}):
        judged = _judge(row, beside, seals)
        if isinstance(judged, ToolRecord):
            records.append(judged)
        else:
            withheld.append(judged)
    # Sorted here: SQLite would walk all ids instead of the index of generations.
    records.sort(key=attrgetter("id"))
    withheld.sort(key=attrgetter("record.id"))
    altered = [str(each.record.key) for each in withheld if each.state is WithheldState.ALTERED]
    if altered and beside.trust is not None:
        _log.warning(
            "changed in the catalog by something else than a gateway, and withheld: %s", ", ".join(altered[:_TOLD])
        )
    removed = beside.gone
    if not snapshot.generation:
        removed = set()
    elif generation - snapshot.generation >= _GONE_KEPT:
        removed = snapshot.ids() - set(connection.scalars(select(tools.c.id)))
    return snapshot.replace_records(generation, records, removed, withheld)


@lru_cache
def _build_changes_query(dialect: str) -> Select[Any]:
    """Query of the tools that changed since a generation; made once, which takes longer than to run it."""
    # Definitions as bytes: as text each would be in memory twice.
    is_sqlite = dialect == "sqlite"
    definition = cast(tools.c.definition, LargeBinary) if is_sqlite else func.convert_to(tools.c.definition, "UTF8")
    is_same = (approvals.c.server_name == tools.c.server_name) & (approvals.c.name == tools.c.name)
    return (
        select(
            tools.c.id,
            tools.c.server_name,
            tools.c.name,
            tools.c.listed_name,
            tools.c.hash,
            tools.c.annotations,
            definition,
            tools.c.seal,
            approvals.c.state,
            approvals.c.hash,
            approvals.c.seal,
            # Most are equal: the text need not be read twice.
            case((approvals.c.hash != tools.c.hash, approvals.c.definition)),
        )
        .join(approvals, is_same, isouter=True)
        .where(tools.c.generation > bindparam("seen"))
    )


def forget_gone(connection: Connection, generation: int) -> None:
    """Drops ids that left long before `generation`."""
    connection.execute(delete(gone).where(gone.c.generation <= generation - _GONE_KEPT))


def _judge(row: Sequence[Any], beside: _Beside, seals: Seals) -> ToolRecord | Withheld:
    """Decide whether agents may see a tool; of an altered row nothing but its names is taken."""
    *told, seal, state, approved_hash, approval_seal, approved = row
    if not seals.fits(seal, "tool", *told[1:6], text=told[6]):
        told[5:] = "{}", canonical_json({"name": told[2]})
        return Withheld(_record(told, beside.learned), WithheldState.ALTERED)
    record = _record(told, beside.learned)
    if state is None:
        is_lifted = record.key in beside.lifted
        return Withheld(record, WithheldState.ALTERED if is_lifted else WithheldState.PENDING)
    is_decided = seals.fits(approval_seal, "decision", *record.key, state, approved_hash)
    is_same = approved_hash == record.change_hash
    if is_decided and not is_same and approved is not None:
        is_decided = has_hash(record.key.server, approved, approved_hash)
    if state == "blocked":  # whoever says so
        if not is_decided or approved_hash is None:
            return Withheld(record, WithheldState.BLOCKED)
        shown = record.raw if is_same or approved is None else approved.encode()
        return Withheld(record, WithheldState.BLOCKED, shown, approved_hash)
    if not is_decided or beside.trust is None or record.key in beside.lifted or not (is_same or approved):
        return Withheld(record, WithheldState.ALTERED)
    return record if is_same else Withheld(record, WithheldState.CHANGED, approved.encode(), approved_hash)


def _record(told: Sequence[Any], learned: Mapping[int, tuple[str, ...]]) -> ToolRecord:
    id_, server, name, listed, hash_, annotations, definition = told
    return ToolRecord(
        id=id_,
        key=ToolKey(sys.intern(str(server)), str(name)),
        listed_name=listed,
        raw=definition,
        change_hash=hash_,
        digest=approval_digest(hash_),
        annotations=parse_hints(annotations),
        examples=learned.get(id_, ()),
    )


@lru_cache(maxsize=_HINT_COMBINATIONS)
def parse_hints(text: str) -> Mapping[str, bool]:
    """The hints that `text` holds: one shared object per combination, of which there are few."""
    return MappingProxyType(json.loads(text))
