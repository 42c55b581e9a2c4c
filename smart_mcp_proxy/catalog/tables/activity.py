"""SQL of the activity log: appended in batches, read newest first, trimmed by age and number."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, select
from sqlalchemy.exc import DBAPIError

from smart_mcp_proxy.catalog.tables.activity_days import PLACES, drop_days, make_days, uid_at
from smart_mcp_proxy.catalog.tables.schema import activity
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import Activity, ActivityKind

_SHORTEST_END_CHARS = 6
"""Of an id that is given by its end: random hex digits, of which so many tell a day's records apart."""

FAILED = "failed"
"""As an outcome to filter by: whatever was neither answered, nor just found nothing, nor asked for input."""
_GOOD = ("ok", "empty", "input_required")

_NAMES = (
    *("uid", "kind", "principal", "session", "server", "tool", "subject", "digest", "outcome", "delivery"),
    *("duration_ms", "at_s", "detail", "arguments", "parent"),
)
_FIELDS = ("id", *_NAMES[1:])
"""Of a record, in the order of its columns."""
_read_fields = attrgetter(*_FIELDS)
_COLUMNS = ", ".join(_NAMES)
_ROWS = 64
"""Stored by one statement. Between two statements a thread has to wait for its turn with the event loop: with one for
each record it used two to four times the processor time, beside 64 callers (measured). SQLite before 3.32 took no more
than 999 values."""
_ROWS_IN_JSON = 1_000
"""Stored by one statement on PostgreSQL: some 500 kB."""
_REAL = ("duration_ms", "at_s")
_TYPED = ", ".join(f"{name} {'double precision' if name in _REAL else 'text'}" for name in _NAMES)
_FROM_JSON = (
    f"INSERT INTO activity ({_COLUMNS}) SELECT {_COLUMNS} FROM json_to_recordset(%s::json) AS line({_TYPED}) "
    "ON CONFLICT DO NOTHING"
)
"""All rows in one value: with one for each column of each row this process takes 15 times the processor time, 50
microseconds a record instead of 3.5 (measured), and holds up the event loop meanwhile."""
_TAKEN = f"coalesce(pg_sequence_last_value(to_regclass('{PLACES}')), 0)"
_WRITERS = f"hashtext('writers of ' || to_regclass('{PLACES}')::oid)"
_BEGIN = f"SELECT pg_advisory_xact_lock_shared({_WRITERS}, {_TAKEN}::bit(32)::int)"
"""Said by each transaction that adds records before it takes places for them: behind which place they all are, but for
its higher bits. The lock keeps nobody waiting. Who takes places first may be the last one to commit."""
_LAG = f"""SELECT coalesce(max(lag), 0) FROM (SELECT (%s - objid::bigint) & x'ffffffff'::bigint AS lag FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid = {_WRITERS}::bit(32)::bigint::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS writers
  WHERE lag < x'80000000'::bigint"""
"""How far that is before a place, of the writer that began first; those that began later are behind it."""
_DAY_S: Final = 86_400.0
_TIME = "SET LOCAL statement_timeout = '4500ms'"
"""A look at a log of millions of records ends before the store takes its server for lost, and makes others wait."""
_ENDED: Final = "57014"
"""Source: https://www.postgresql.org/docs/15/errcodes-appendix.html"""


@dataclass(frozen=True, slots=True)
class ActivityFilter:
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


def append(connection: Connection, batch: Sequence[Activity], limit_rows: int = 0) -> None:
    """Append new records in order, and delete the oldest beyond `limit_rows`; 0 is no limit."""
    if connection.dialect.name == "sqlite":
        for start in range(0, len(batch), _ROWS):
            rows = [_row(line) for line in batch[start : start + _ROWS]]
            connection.exec_driver_sql(_insertion(len(rows)), tuple(chain.from_iterable(rows)))
    else:
        connection.exec_driver_sql(_BEGIN)
        for start in range(0, len(batch), _ROWS_IN_JSON):
            rows = [_row(line) for line in batch[start : start + _ROWS_IN_JSON]]
            connection.exec_driver_sql(_FROM_JSON, (_encode_rows(rows),))
    if limit_rows:
        newest = select(func.max(activity.c.id)).scalar_subquery()
        connection.execute(delete(activity).where(activity.c.id <= newest - limit_rows))


@lru_cache(2 * _ROWS)
def _insertion(rows: int) -> str:
    """Build an insert statement by hand: a compiled one costs too much at thousands a second.

    One that is there already is left alone: after a crash the journal may hold records that were stored.
    """
    row = f"({', '.join('?' * len(_NAMES))})"
    return f"INSERT INTO activity ({_COLUMNS}) VALUES {', '.join([row] * rows)} ON CONFLICT DO NOTHING"


def _encode_rows(rows: Sequence[tuple[object, ...]]) -> str:
    """Rows as a JSON array; PostgreSQL holds no character 0."""
    text = msgspec.json.encode([dict(zip(_NAMES, row, strict=True)) for row in rows]).decode()
    if "\\u0000" not in text:
        return text
    whole = [[one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in row] for row in rows]
    return msgspec.json.encode([dict(zip(_NAMES, row, strict=True)) for row in whole]).decode()


def trim(connection: Connection, before_s: float) -> bool:
    """Remove records older than `before_s`, in seconds since the epoch; on PostgreSQL whole days (UTC).

    Returns:
        Whether there are more, for another transaction.
    """
    if connection.dialect.name != "sqlite":
        return drop_days(connection, before_s)
    connection.execute(delete(activity).where(activity.c.at_s < before_s))
    return False


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
    *plain, detail, arguments, parent = _read_fields(line)
    texts = (_text(value) if isinstance(value, str) else value for value in plain)
    return (*texts, _json(detail), None if arguments is None else _json(arguments), parent)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half a character, or an integer too long for it
        return json.dumps(value)


def _text(text: str) -> str:
    """`text` with a question mark for what UTF-8 cannot hold: callers choose queries and names freely."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
