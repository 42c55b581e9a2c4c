"""SQL of the activity log: appended in batches, read newest first, trimmed by age and number."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, select, update
from sqlalchemy.exc import DBAPIError

from smart_mcp_proxy.catalog.recovery.activity_chains import (
    ChainHead,
    Chains,
    SealedRecord,
    Values,
    check_chains,
    seal_place,
    seal_record,
)
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.tables.activity_days import PLACES, drop_days, make_days, uid_at
from smart_mcp_proxy.catalog.tables.schema import activity, activity_chains
from smart_mcp_proxy.catalog.tables.sealed import read_trust, replace_trust
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import Activity, ActivityKind

_SHORTEST_END_CHARS = 6
"""Least characters of an id given by its end: random hex digits, of which so many tell a day's records apart."""

FAILED = "failed"
"""As an outcome to filter by: whatever was neither answered, nor just found nothing, nor asked for input."""
_GOOD = ("ok", "empty", "input_required")

_NAMES = (
    *("uid", "kind", "principal", "session", "server", "tool", "subject", "digest", "outcome", "delivery"),
    *("duration_ms", "at_s", "detail", "arguments", "parent"),
)
_FIELDS = ("id", *_NAMES[1:])
"""Fields of a record, in the order of its columns."""
_read_fields = attrgetter(*_FIELDS)
_STORED = (*_NAMES, "chain", "link", "seal")
_COLUMNS = ", ".join(_STORED)
_ROWS = 64
"""Stored by one statement. Between two statements a thread has to wait for its turn with the event loop: with one for
each record it used two to four times the processor time, beside 64 callers (measured). SQLite before 3.32 took no more
than 999 values."""
_ROWS_IN_JSON = 1_000
"""Stored by one statement on PostgreSQL: some 500 kB."""
_KINDS = dict.fromkeys(("duration_ms", "at_s"), "double precision") | dict.fromkeys(("chain", "link"), "bigint")
_TYPED = ", ".join(f"{name} {_KINDS.get(name, 'text')}" for name in _STORED)
_FROM_JSON = (
    f"INSERT INTO activity ({_COLUMNS}) SELECT {_COLUMNS} FROM json_to_recordset(%s::json) AS line({_TYPED}) "
    "ON CONFLICT DO NOTHING"
)
"""All rows in one value: with one for each column of each row this process takes 15 times the processor time, 50
microseconds a record instead of 3.5 (measured), and holds up the event loop meanwhile."""
_AGAIN = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END $$"
"""Another gateway has stored some of the records at this moment: the transaction is run again, and finds them."""
_TAKEN = f"coalesce(pg_sequence_last_value(to_regclass('{PLACES}')), 0)"
_WRITERS = f"hashtext('writers of ' || to_regclass('{PLACES}')::oid)"
_BEGIN = f"SELECT pg_advisory_xact_lock_shared({_WRITERS}, {_TAKEN}::bit(32)::int)"
"""Said by each transaction that adds records before it takes places for them: behind which place they all are, but for
its higher bits. The lock keeps nobody waiting. Who takes places first may be the last one to commit."""
_LAG = f"""SELECT coalesce(max(lag), 0) FROM (SELECT (%s - objid::bigint) & x'ffffffff'::bigint AS lag FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid = {_WRITERS}::bit(32)::bigint::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS writers
  WHERE lag < x'80000000'::bigint"""
"""Distance from a place back to that of the writer that began first; those that began later are behind it."""
_ADD_CHAIN: Final = (
    'INSERT INTO activity_chains (id, day, first_link, first_seal, start, last_link, last_seal, "end") '
    "VALUES (?, ?, 0, '', ?, 0, '', ?)"
)
_STORE_END: Final = 'UPDATE activity_chains SET last_link = ?, last_seal = ?, "end" = ? WHERE id = ?'
_DAY_S: Final = 86_400.0
_DAY_MS: Final = 86_400_000
_EARLY_DAYS: Final = 1
"""Records of clocks that are further ahead are in no chain: they leave by their own time, and not with a day."""
_ONE_BY_ONE: Final = "LOCK TABLE meta IN SHARE UPDATE EXCLUSIVE MODE; SELECT pg_advisory_xact_lock(1835233378)"
"""Locks under which a chain gets its number: of ordered writes, because that number is noted among what those decide,
and the one by which earlier versions know it."""
_TIME = "SET LOCAL statement_timeout = '4500ms'"
"""A look at a log of millions of records ends before the store takes its server for lost, and makes others wait."""
_ENDED: Final = "57014"
"""Source: https://www.postgresql.org/docs/15/errcodes-appendix.html"""


class ActivityFilter(msgspec.Struct, frozen=True):
    """Filter of records; None leaves a question open.

    Attributes:
        kind: Only of this kind.
        server: Only about this server.
        tool: Only about this tool, by its own or its canonical name.
        outcome: Only with this outcome; `failed` is every one but `ok`, `empty` and `input_required`.
        principal: Only on this one's behalf.
        since_s: Only from then on, in seconds since the epoch.
        parent: Only parts of the record with this id.
    """

    kind: ActivityKind | None = None
    server: str | None = None
    tool: str | None = None
    outcome: str | None = None
    principal: str | None = None
    since_s: float | None = None
    parent: str | None = None


class StoredActivity(NamedTuple):
    """A record and its place: places grow in the order in which records were stored, over all processes."""

    place: int
    activity: Activity


@dataclass(eq=False)
class ChainWriter:
    """The chains of one process.

    Attributes:
        seals: Of the store.
        is_in_doubt: Whether nobody can say if the last transaction was committed.
    """

    seals: Seals
    is_in_doubt: bool = False
    _heads: dict[int, ChainHead] = field(default_factory=dict)
    """By day: as committed."""
    _next: dict[int, ChainHead] = field(default_factory=dict)
    """By day: as they will be once the transaction under way is committed."""

    def begin(self) -> None:
        """Begins a transaction: what one that was not committed would have added is forgotten."""
        self._next = {}

    def settle(self) -> None:
        """Counts what the last transaction has added as committed."""
        self._heads.update(self._next)
        self._next, self.is_in_doubt = {}, False

    def doubt(self) -> None:
        """Begin new chains: nobody can say whether the last transaction was committed."""
        self._heads, self._next, self.is_in_doubt = {}, {}, True

    def seal(self, connection: Connection, rows: Sequence[Values], now_s: float) -> list[Values]:
        """Return rows with their chain, link and seal behind their values; all are stored in this transaction.

        Args:
            connection: In a transaction that writes.
            rows: Values by column, the uid first.
            now_s: The store's time.
        """
        last_day = int(now_s * 1_000) // _DAY_MS + _EARLY_DAYS
        sealed = list[Values]()
        for day, group in groupby(rows, key=_day):
            if day > last_day or not self.seals.is_kept:
                sealed += [(*row, 0, 0, "") for row in group]
                continue
            head = self._next.get(day) or self._heads.get(day) or ChainHead(_add_chain(connection, self.seals, day))
            for row in group:
                head = ChainHead(head.chain, head.link + 1, seal_record(self.seals, head, row))
                sealed.append(row + head)
            self._next[day] = head
        return sealed

    def store_ends(self, connection: Connection) -> None:
        """Stores how far the chains of this transaction go, once all its records are sealed."""
        for head in self._next.values():
            end = seal_place(self.seals, "end", head)
            connection.exec_driver_sql(_bind(connection, _STORE_END), (head.link, head.seal, end, head.chain))


def _day(row: Values) -> int:
    """Day of a record by its uid, in days since the epoch."""
    try:
        return int(str(row[0])[:12], 16) // _DAY_MS
    except ValueError:  # of nobody who makes records
        return 0


def _add_chain(connection: Connection, seals: Seals, day: int) -> int:
    """Add a chain; return its number. Numbers have no holes, so that a chain that is removed is missed."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(_ONE_BY_ONE)
    newest = connection.exec_driver_sql("SELECT coalesce(max(id), 0) FROM activity_chains").scalar_one()
    trust = read_trust(connection, seals)
    head = ChainHead(max(newest, 0 if trust is None else trust.chains) + 1)
    marks = (seal_place(seals, kind, head) for kind in ("start", "end"))
    connection.exec_driver_sql(_bind(connection, _ADD_CHAIN), (head.chain, day, *marks))
    if trust is not None:
        replace_trust(connection, seals, trust._replace(chains=head.chain))
    return head.chain


def _leave_days(connection: Connection, seals: Seals, before_day: int) -> None:
    """Move the starts of earlier days' chains to their ends: their records are about to leave."""
    chains = activity_chains.c
    old = select(activity_chains).where(chains.day < before_day, chains.first_link < chains.last_link)
    for row in connection.execute(old).all():
        _move_start(connection, seals, ChainHead(row.id, row.last_link, row.last_seal))


def _leave_rows(connection: Connection, seals: Seals, until_place: int) -> None:
    """Move the beginning of chains past their records up to this place, which are about to be removed."""
    is_leaving = (activity.c.id <= until_place) & (activity.c.chain > 0)
    last = select(func.max(activity.c.id)).where(is_leaving).group_by(activity.c.chain)
    heads = select(activity.c.chain, activity.c.link, activity.c.seal).where(activity.c.id.in_(last))
    for row in connection.execute(heads).all():
        _move_start(connection, seals, ChainHead(*row))


def _move_start(connection: Connection, seals: Seals, head: ChainHead) -> None:
    moved = update(activity_chains).where(activity_chains.c.id == head.chain)
    start = seal_place(seals, "start", head)
    connection.execute(moved.values(first_link=head.link, first_seal=head.seal, start=start))


def forget_chains(connection: Connection) -> None:
    """Take all records out of their chains: another store's key has sealed them."""
    connection.execute(update(activity).where(activity.c.chain > 0).values(chain=0, link=0, seal=""))
    connection.execute(activity_chains.delete())


def read_chains(connection: Connection, seals: Seals) -> Chains:
    """Read the starts and ends of all chains."""
    rows, trust = (
        connection.execute(select(activity_chains).order_by(activity_chains.c.id)),
        read_trust(connection, seals),
    )
    return check_chains(seals, rows, None if trust is None else trust.chains)


def append(
    connection: Connection,
    batch: Sequence[Activity],
    chains: ChainWriter,
    now_s: float,
    limit_rows: int = 0,
    *,
    is_new: bool = False,
) -> None:
    """Append the records that the log lacks in their order; a journal may hold some that were stored.

    Args:
        connection: In a transaction that writes.
        batch: The records.
        chains: Seal them.
        now_s: The store's time, in seconds since the epoch.
        limit_rows: The oldest beyond so many are deleted; 0 is no limit.
        is_new: Whether none of the batch can be stored already, which need not be looked up then.
    """
    chains.begin()
    if connection.dialect.name == "sqlite":
        for start in range(0, len(batch), _ROWS):
            rows = [_row(line) for line in batch[start : start + _ROWS]]
            if new := rows if is_new else _select_new(connection, rows):
                sealed = chains.seal(connection, new, now_s)
                connection.exec_driver_sql(_insertion(len(sealed)), tuple(chain.from_iterable(sealed)))
    else:
        connection.exec_driver_sql(_BEGIN)
        for start in range(0, len(batch), _ROWS_IN_JSON):
            _append_json(connection, [_row(line) for line in batch[start : start + _ROWS_IN_JSON]], chains, now_s)
    chains.store_ends(connection)
    until = connection.exec_driver_sql("SELECT coalesce(max(id), 0) FROM activity").scalar_one() if limit_rows else 0
    if until > limit_rows:
        _leave_rows(connection, chains.seals, until - limit_rows)
        connection.execute(delete(activity).where(activity.c.id <= until - limit_rows))


def _bind(connection: Connection, statement: str) -> str:
    """Return a statement with the marks of the driver: a compiled one costs more than it takes to run."""
    return statement if connection.dialect.name == "sqlite" else statement.replace("?", "%s")


def _select_new(connection: Connection, rows: Iterable[Values]) -> list[Values]:
    """Return the rows whose uid is not stored, each once: a link that leads to no record would be a hole."""
    by_uid = {row[0]: row for row in rows}
    found = f"SELECT uid FROM activity WHERE uid IN ({', '.join('?' * len(by_uid))})"
    for uid in connection.exec_driver_sql(_bind(connection, found), tuple(by_uid)).scalars().all():
        del by_uid[uid]
    return list(by_uid.values())


def _append_json(connection: Connection, rows: Sequence[Values], chains: ChainWriter, now_s: float) -> None:
    """Append rows on PostgreSQL, which holds no character 0."""
    held = (tuple(one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in row) for row in rows)
    sealed = chains.seal(connection, _select_new(connection, held), now_s)
    text = msgspec.json.encode([dict(zip(_STORED, row, strict=True)) for row in sealed]).decode()
    if connection.exec_driver_sql(_FROM_JSON, (text,)).rowcount < len(sealed):
        connection.exec_driver_sql(_AGAIN)


@lru_cache(2 * _ROWS)
def _insertion(rows: int) -> str:
    """Build an insert statement by hand: a compiled one costs too much at thousands a second."""
    row = f"({', '.join('?' * len(_STORED))})"
    return f"INSERT INTO activity ({_COLUMNS}) VALUES {', '.join([row] * rows)}"


def trim(connection: Connection, seals: Seals, before_s: float) -> bool:
    """Remove the records of days (UTC) that were over at `before_s`, in seconds since the epoch.

    Returns:
        Whether there are more, for another transaction.
    """
    day = int(before_s // _DAY_S)
    _leave_days(connection, seals, day)
    if connection.dialect.name != "sqlite":
        return drop_days(connection, day * _DAY_S)
    old = select(activity_chains.c.id).where(activity_chains.c.day < day)
    is_old = (activity.c.chain == 0) & (activity.c.at_s < day * _DAY_S)
    connection.execute(delete(activity).where(is_old | activity.c.chain.in_(old)))
    return False


def read_sealed(connection: Connection, after: int, limit: int) -> tuple[SealedRecord, ...]:
    """Read the records stored behind a place, in their order, with their places in chains."""
    wanted = select(activity).where(activity.c.id > after).order_by(activity.c.id).limit(limit)
    return tuple(
        SealedRecord(
            row.id, ChainHead.read(row.chain, row.link, row.seal), tuple(row._mapping[name] for name in _NAMES)
        )
        for row in connection.execute(wanted)
    )


def prepare(connection: Connection, now_s: float) -> None:
    """Makes room for the coming days' records, where days have their own; see `activity_days`."""
    if connection.dialect.name != "sqlite":
        make_days(connection, now_s)


def page(
    connection: Connection,
    wanted: ActivityFilter,
    limit: int,
    *,
    before: int | None = None,
    after: int | None = None,
    until: int | None = None,
) -> tuple[StoredActivity, ...]:
    """Return up to `limit` records, newest first, or with `after` the next ones, oldest first."""
    query = _build_activity_query(connection, wanted)
    if before is not None:
        query = query.where(activity.c.id < before)
    if after is not None:
        query = query.where(activity.c.id > after)
    if until is not None:
        query = query.where(activity.c.id <= until)
    query = query.order_by(activity.c.id.desc() if after is None else activity.c.id).limit(limit)
    with in_time(connection):
        rows = connection.execute(query).all()
    return tuple(StoredActivity(row.id, _activity(row)) for row in rows)


def last_place(connection: Connection) -> int:
    """The place of the newest record, 0 where there is none.

    On PostgreSQL of the newest one that is behind no record to come: transactions that took their places earlier may
    commit later. Transactions that begin after this one see all records up to it.
    """
    newest = select(func.coalesce(func.max(activity.c.id), 0))
    if connection.dialect.name != "sqlite":
        taken = connection.exec_driver_sql(f"SELECT {_TAKEN}").scalar_one()  # first: who begins now is behind it
        lag = connection.exec_driver_sql(_LAG, (taken,)).scalar_one()
        newest = newest.where(activity.c.id <= taken - lag)
    return int(connection.execute(newest).scalar_one())


def find(connection: Connection, record_id: str) -> Activity | None:
    """Find a record by id, or the newest one whose id ends so (at least 6 characters)."""
    ends = activity.c.uid.endswith(record_id, autoescape=True)
    with in_time(connection):
        row = connection.execute(select(activity).where(activity.c.uid == record_id)).one_or_none()
        if row is None and len(record_id) >= _SHORTEST_END_CHARS:  # not one query: no index helps with an end
            row = connection.execute(select(activity).where(ends).order_by(activity.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else _activity(row)


@contextmanager
def in_time(connection: Connection) -> Iterator[None]:
    """Limit a query over many records to a few seconds on PostgreSQL.

    It may hold a month of many gateways there; on SQLite there is no limit.

    Raises:
        CatalogError: It took longer.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    connection.exec_driver_sql(_TIME)
    try:
        yield
    except DBAPIError as exc:
        if getattr(exc.orig, "sqlstate", "") != _ENDED:
            raise
        raise CatalogError(
            "The database took too long to look through the activity log.",
            hint="Ask for less of it, the last hour say, or keep less: MCPPROXY_ACTIVITY_DAYS, MCPPROXY_ACTIVITY_ROWS.",
        ) from exc


def build_since_condition(connection: Connection, since_s: float) -> ColumnElement[bool]:
    """The condition for records made from a moment on; on PostgreSQL it leaves earlier days alone."""
    is_since = activity.c.at_s >= since_s
    return (
        is_since if connection.dialect.name == "sqlite" else and_(is_since, activity.c.uid >= uid_at(since_s - _DAY_S))
    )


def _build_activity_query(connection: Connection, wanted: ActivityFilter) -> Select[Any]:
    query = select(activity)
    for column, value in (
        (activity.c.kind, wanted.kind),
        (activity.c.server, wanted.server),
        (activity.c.principal, wanted.principal),
        (activity.c.parent, wanted.parent),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.tool is not None:
        query = query.where((activity.c.tool == wanted.tool) | (activity.c.subject == wanted.tool))
    if wanted.outcome == FAILED:
        query = query.where(activity.c.outcome.not_in(_GOOD))
    elif wanted.outcome is not None:
        query = query.where(activity.c.outcome == wanted.outcome)
    if wanted.since_s is not None:
        query = query.where(build_since_condition(connection, wanted.since_s))
    return query


def _activity(row: Row[Any]) -> Activity:
    stored = {field: row._mapping[name] for field, name in zip(_FIELDS, _NAMES, strict=True)}
    arguments = None if row.arguments is None else json.loads(row.arguments)
    return Activity(**stored | {"detail": json.loads(row.detail), "arguments": arguments})


def _row(line: Activity) -> tuple[object, ...]:
    *texts, duration_ms, at_s, detail, arguments, parent = _read_fields(line)
    kept = None if arguments is None else _json(arguments)
    return (*map(_text, texts), float(duration_ms), float(at_s), _json(detail), kept, parent)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half a character, or an integer too long for it
        return json.dumps(value)


def _text(text: str) -> str:
    """`text` with a question mark for what UTF-8 cannot hold: callers choose queries and names freely."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
