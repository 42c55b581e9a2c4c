"""Edge to PostgreSQL's driver: address, connection, words of errors, databases that are refused."""

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrDumper
from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import VERSION_TABLE
from smart_mcp_proxy.catalog.tables.activity_days import PLACES
from smart_mcp_proxy.errors import ConfigError

CONNECT_S: Final = 5
"""Longest that one attempt to connect to one host takes."""
OLDEST: Final = 150_000
"""PostgreSQL 15. Source: docs/design/processes.md#the-catalog"""
_ALIVE: Final = {
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""A host that is gone without a word is noticed within half a minute."""
_PREAMBLE = re.compile(r"^(?:connection failed: )?(?:connection to server .*? failed: )?(?:FATAL: +|ERROR: +)?")
_NAMED_TABLES = 3
_SCHEMA = f"""coalesce(
    (SELECT relnamespace FROM pg_class WHERE relname = '{VERSION_TABLE}' AND pg_table_is_visible(oid)),
    quote_ident(current_schema())::regnamespace
  )"""
"""Schema of the tables; before there are any, the one to come: a schema in front of it may have been made since."""
_CLOSED_TABLES = f"""SELECT relname FROM pg_class
  WHERE relnamespace = {_SCHEMA} AND relname = ANY(%s) AND NOT CASE relkind
    WHEN 'S' THEN has_sequence_privilege(oid, 'USAGE')
    ELSE has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
      AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
  END ORDER BY relkind = 'S', relname"""

NOT_WHOLE_HINT: Final = "Restore it from a backup, or begin with an empty one."
_HINT = "Check MCPPROXY_DATABASE_URL and the database."
_GRANT_HINT = (
    "Grant SELECT, INSERT, UPDATE and DELETE on its tables and USAGE on its sequences, or connect as their owner."
)


class _StorableText(StrDumper):
    """Text for PostgreSQL, which takes all of Unicode but the character with the number 0."""

    oid = 0  # as the driver's own default: the server decides which type it is

    def dump(self, obj: str) -> bytes | bytearray | memoryview | None:
        """Encode text."""
        return super().dump(obj.replace("\0", "\ufffd"))


class DatabaseAddress:
    """Address of a database.

    Args:
        url: For libpq; what it leaves open is taken from libpq's own variables and files.

    Raises:
        ConfigError: Nothing can be made of it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
        except psycopg.Error:
            parts = {}
        if not parts:  # outside the handler: the cause would carry the password
            raise ConfigError(
                "MCPPROXY_DATABASE_URL cannot be read (not shown).",
                hint="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters as %XX.",
            )
        self._password = parts.get("password", "")
        host = parts.get("host", "") + (f":{parts['port']}" if "port" in parts else "")
        user = f"{parts['user']}@" if "user" in parts else ""
        self.label = f"postgresql://{user}{host}/{parts.get('dbname', '')}"

    def __repr__(self) -> str:
        return f"<DatabaseAddress {self.label}>"

    def dial(self) -> psycopg.Connection:
        """Open a connection.

        Raises:
            psycopg.Error: It cannot be opened.
        """
        try:
            wire = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_S,
                application_name="smart-mcp-proxy",
                client_encoding="UTF8",  # whatever a user's or the database's own settings say
                **_ALIVE,  # type: ignore[arg-type]
            )
        except UnicodeError as exc:  # a part of the host's name is empty, or too long
            raise psycopg.OperationalError(f"the host's name cannot be looked up: {exc}") from exc
        wire.adapters.register_dumper(str, _StorableText)
        return wire

    def unusable(self, exc: BaseException | None, hint: str = _HINT) -> ConfigError:
        """The error for a database that cannot be used, in one line and without the password."""
        origin = exc.orig if isinstance(exc, DBAPIError) else exc
        lines = [line.strip() for line in str(origin).splitlines() if line.strip()]
        reason = _PREAMBLE.sub("", lines[0] if lines else "the connection was lost").rstrip(".")
        if self._password:
            reason = reason.replace(self._password, "***")
        return ConfigError(f"The database '{self.label}' cannot be used: {reason}.", hint=hint)


def postgres_engine(dial: Callable[[], Any]) -> Engine:
    """The engine of a server. Callers write BEGIN out, with what belongs to it.

    Args:
        dial: Opens a connection of the driver.
    """
    return create_engine(
        "postgresql+psycopg://",
        creator=dial,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        use_native_hstore=False,
    )


def hang_up(wire: psycopg.Connection) -> None:
    """Ends a connection from another thread than the one that waits for it."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(wire.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def refuse_unusable(connection: Connection, label: str) -> None:
    """Passes if the catalog lies in this database, or can be begun in it.

    Args:
        connection: To it.
        label: Its address.

    Raises:
        ConfigError: It is too old, cannot be written, belongs to another program, or is not whole.
    """
    query = """SELECT current_setting('server_version_num')::int, current_setting('server_version'),
      pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
      current_setting('server_encoding'), current_schema()"""
    number, version, is_read_only, encoding, schema = connection.exec_driver_sql(query).one()
    if number < OLDEST:
        raise _build_refusal(label, f"is PostgreSQL {version}; 15 or newer is needed.", "Upgrade the server.")
    if is_read_only:
        raise _build_refusal(
            label, "can only be read.", "Name the primary server: target_session_attrs=read-write finds it."
        )
    if encoding != "UTF8":
        raise _build_refusal(label, f"has the encoding {encoding}.", "Create the database with ENCODING 'UTF8'.")
    if schema is None:
        raise _build_refusal(label, "has no schema that its user may use.", "Create one, or set its search_path.")
    # What an extension has brought belongs to no program.
    tables = set(
        connection.exec_driver_sql(
            f"""SELECT relname FROM pg_class WHERE relnamespace = {_SCHEMA}
              AND relkind IN ('r', 'p') AND NOT EXISTS (
                SELECT 1 FROM pg_depend WHERE objid = pg_class.oid AND classid = 'pg_class'::regclass AND deptype = 'e'
              )"""
        ).scalars()
    )
    if VERSION_TABLE not in tables:
        if tables:
            named = ", ".join(sorted(tables)[:_NAMED_TABLES])
            reason = f"belongs to another program: schema '{schema}' holds {named}."
            raise _build_refusal(label, reason, "Give the gateway a database of its own.")
        return
    found = connection.exec_driver_sql(f"SELECT version FROM {VERSION_TABLE}").scalars().all()
    missing = (
        sorted(versions.tables_at(found[0]) - tables) if len(found) == 1 and found[0] <= versions.LATEST_VERSION else []
    )
    if missing or len(found) != 1:
        named = ", ".join(missing[:_NAMED_TABLES]) or f"the row of {VERSION_TABLE}"
        raise _build_refusal(label, f"is not whole: it lacks {named}.", NOT_WHOLE_HINT)
    used = [*sorted(versions.tables_at(found[0]) & tables - {VERSION_TABLE}), PLACES]
    if closed := connection.exec_driver_sql(_CLOSED_TABLES, (used,)).scalars().all():
        reason = f"does not let its user read and write {', '.join(closed[:_NAMED_TABLES])}."
        raise _build_refusal(label, reason, _GRANT_HINT)


def _build_refusal(label: str, reason: str, hint: str) -> ConfigError:
    return ConfigError(f"The database '{label}' {reason}", hint=hint)
