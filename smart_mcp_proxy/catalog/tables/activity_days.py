"""SQL of daily partitions of the activity log on PostgreSQL: old days are dropped, not deleted.

A record's uid begins with the millisecond in which it was made, so days are ranges of it. That it is the partitions'
key keeps it unique over all of them: what a journal tells again after a crash is recognized on any day. Programs read
and write `activity`, as before there were days.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection

_PREFIX: Final = "activity_until_"
"""Prefix of a partition's name; behind it stands the day at whose midnight (UTC) it ends."""
_REST: Final = "activity_rest"
"""Takes what no day's partition takes: nothing is refused where none was made in time."""
PLACES: Final = "activity_places"
"""The sequence that numbers records over all partitions."""
_AHEAD_DAYS: Final = 3
"""Partitions that stand ready beside today's: the gateways may be stopped, or earlier programs run alone, meanwhile."""
_LOCK: Final = 0x6D637061
"""Key of the lock that the one gateway holds that makes or drops partitions."""

_MAY_CHANGE: Final = """SELECT bool_and(has_schema_privilege(relnamespace, 'CREATE')
  AND pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid = 'activity'::regclass
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'activity'::regclass)"""
_GO_HOME: Final = """SELECT set_config('search_path', relnamespace::regnamespace::text, true)
  FROM pg_class WHERE oid = 'activity'::regclass"""
"""Days lie beside their table, whatever schema is looked into first."""
_BATCH_ROWS: Final = 50_000
"""Are deleted in a second or so: what takes longer counts as a lost database."""

RECORD_COLUMNS: Final = """kind        TEXT NOT NULL,
      principal   TEXT NOT NULL,
      subject     TEXT NOT NULL,
      outcome     TEXT NOT NULL,
      duration_ms DOUBLE PRECISION NOT NULL,
      at_s        DOUBLE PRECISION NOT NULL,
      detail      TEXT NOT NULL,
      session     TEXT NOT NULL,
      server      TEXT NOT NULL,
      tool        TEXT NOT NULL,
      digest      TEXT NOT NULL,
      delivery    TEXT NOT NULL,
      parent      TEXT NOT NULL,
      arguments   TEXT"""
"""Columns that the log has for each record, before it lay in days and since."""

ACTIVITY_DAYS: Final = (
    "ALTER TABLE activity RENAME TO activity_whole",
    "CREATE SEQUENCE activity_places AS BIGINT",
    f"""CREATE TABLE activity (
      id          BIGINT NOT NULL DEFAULT nextval('activity_places'),
      uid         TEXT COLLATE "C" NOT NULL,
      {RECORD_COLUMNS},
      UNIQUE (uid)
    ) PARTITION BY RANGE (uid)""",
    "ALTER SEQUENCE activity_places OWNED BY activity.id",
    "CREATE INDEX idx_activity_place ON activity(id)",
    f"CREATE TABLE {_REST} PARTITION OF activity DEFAULT",
    # Everything until the end of today, which the next days follow.
    f"""DO $$
      DECLARE
        ends TIMESTAMP := date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + interval '1 day';
        bound TEXT := lpad(to_hex(extract(epoch FROM ends)::bigint * 1000), 12, '0');
      BEGIN
        EXECUTE 'CREATE TABLE {_PREFIX}' || to_char(ends, 'YYYYMMDD')
          || ' PARTITION OF activity FOR VALUES FROM (MINVALUE) TO (' || quote_literal(bound) || ')';
      END $$""",
    """INSERT INTO activity (id, uid, kind, principal, subject, outcome, duration_ms, at_s, detail, session, server,
        tool, digest, delivery, parent, arguments)
      SELECT id, uid, kind, principal, subject, outcome, duration_ms, at_s, detail, session, server,
        tool, digest, delivery, parent, arguments FROM activity_whole""",
    "SELECT setval('activity_places', last_value, is_called) FROM activity_id_seq",
    "DROP TABLE activity_whole",
)
"""The table's change into partitions, in one transaction; whoever writes meanwhile waits and finds the new one."""


def uid_at(at_s: float) -> str:
    """The beginning of the uids of records that were made from this moment on, in seconds since the epoch."""
    return f"{max(0, int(at_s * 1000)):012x}"


def make_days(connection: Connection, now_s: float) -> None:
    """Let partitions stand ready for the coming days; another gateway that does so already is left alone.

    A user who may not make tables leaves that to one who may: meanwhile `activity_rest` takes the records.
    """
    today = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    wanted = [today + timedelta(days=number + 1) for number in range(_AHEAD_DAYS + 1)]
    if not _select_missing_days(connection, wanted) or not _may_change(connection) or not _is_alone(connection):
        return
    connection.exec_driver_sql(_GO_HOME)
    for ends in _select_missing_days(connection, wanted):  # another gateway may have made some before it let us
        _make_day(connection, ends)


def drop_days(connection: Connection, before_s: float) -> bool:
    """Drop each day that was over at `before_s`; another gateway that does so already is left alone.

    A user who may drop no table deletes the records instead.

    Returns:
        Whether there are more records to delete.
    """
    if not _is_alone(connection):
        return False
    may_change = _may_change(connection)
    if _delete_old(connection, _REST if may_change else "activity", before_s):
        return True
    if not may_change:
        return False
    connection.exec_driver_sql(_GO_HOME)
    for ends in [ends for ends in _days(connection) if ends.timestamp() <= before_s]:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_name(ends)}")
    return False


def _delete_old(connection: Connection, table: str, before_s: float) -> bool:
    """Delete a batch of the records that are older; returns whether there may be more."""
    # Records of clocks that were ahead lie in the rest alone.
    is_old = "at_s < %(before_s)s" + ("" if table == _REST else " AND uid < %(uid)s")
    old = f"SELECT uid FROM {table} WHERE {is_old} LIMIT {_BATCH_ROWS}"
    found = {"before_s": before_s, "uid": uid_at(before_s)}
    return connection.exec_driver_sql(f"DELETE FROM {table} WHERE uid IN ({old})", found).rowcount == _BATCH_ROWS


def _make_day(connection: Connection, ends: datetime) -> None:
    name, first, last = _name(ends), uid_at((ends - timedelta(days=1)).timestamp()), uid_at(ends.timestamp())
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE activity INCLUDING DEFAULTS INCLUDING INDEXES)")
    # Locked before it is looked through: attaching fails if it holds a record of that day.
    connection.exec_driver_sql(f"LOCK TABLE {_REST} IN ACCESS EXCLUSIVE MODE")
    connection.exec_driver_sql(
        f"WITH late AS (DELETE FROM {_REST} WHERE uid >= '{first}' AND uid < '{last}' RETURNING *) "
        f"INSERT INTO {name} SELECT * FROM late"
    )
    # Unlike `CREATE TABLE ... PARTITION OF` it lets the other partitions be written meanwhile.
    connection.exec_driver_sql(
        f"ALTER TABLE activity ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{last}')"
    )


def _select_missing_days(connection: Connection, wanted: list[datetime]) -> list[datetime]:
    """Return the days of `wanted` without a partition; those before the first belong to it."""
    found = _days(connection)
    return [ends for ends in wanted if ends not in found and (not found or ends > min(found))]


def _days(connection: Connection) -> list[datetime]:
    """The ends of all partitions."""
    names = connection.exec_driver_sql(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        f"WHERE inhparent = 'activity'::regclass AND relname ~ '^{_PREFIX}[0-9]{{8}}$'"  # others are not ours
    ).scalars()
    return [datetime.strptime(name.removeprefix(_PREFIX), "%Y%m%d").replace(tzinfo=UTC) for name in names]


def _name(ends: datetime) -> str:
    return f"{_PREFIX}{ends:%Y%m%d}"


def _may_change(connection: Connection) -> bool:
    """Whether this user may make and drop days."""
    return bool(connection.exec_driver_sql(_MAY_CHANGE).scalar_one())


def _is_alone(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})").scalar_one())
