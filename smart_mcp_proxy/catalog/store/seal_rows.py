"""Sealing of what stands in a store: once, at its migration, and where its user says so."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sqlalchemy import Connection, Table, bindparam, func, select, update

from smart_mcp_proxy.catalog.recovery.seals import SealedTrust, Seals, has_hash
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import SEALED_FROM, TOKENS_SEALED_FROM
from smart_mcp_proxy.catalog.store.store import StorageError
from smart_mcp_proxy.catalog.tables.activity import forget_chains
from smart_mcp_proxy.catalog.tables.agent_tokens import TOKEN_COLUMNS
from smart_mcp_proxy.catalog.tables.schema import (
    agent_tokens,
    approvals,
    baselines,
    former_approvals,
    tools,
    unconfined,
)
from smart_mcp_proxy.catalog.tables.sealed import gateway_key, read_trust, store_trust
from smart_mcp_proxy.catalog.tables.tools import SEALED, mark_all_changed, seal_program
from smart_mcp_proxy.catalog.tables.upsert import parts
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import get_logger

_KEY_NAME: Final = "approvals"
"""Name of the key in the store."""
_TOKENS: Final = (("token", agent_tokens, TOKEN_COLUMNS),)
_DECISIONS: Final = (
    ("decision", approvals, ("server_name", "name", "state", "hash")),
    ("former", former_approvals, ("server_name", "name", "hash")),
    *_TOKENS,
)
"""Kind of seal, table, and the columns that the seal covers."""

_log = get_logger("catalog")


def bring_up(
    connection: Connection, migrate: Callable[[Connection], None], seals: Seals, *, is_trial: bool = False
) -> None:
    """Bring a store to the latest version, load its key, and seal what an earlier program has left.

    Args:
        connection: In a transaction that writes.
        migrate: Brings the tables to the latest version.
        seals: Of the store.
        is_trial: Whether the transaction will be rolled back, so that its key need not be kept.

    Raises:
        StorageError: The key of what has to be sealed cannot be kept.
    """
    version = versions.read_version(connection)
    migrate(connection)
    is_new = seals.load(partial(gateway_key, connection, _KEY_NAME))
    if version < SEALED_FROM and not is_trial:
        try:
            seals.require_kept()
        except CatalogError as exc:  # it is tried again, and what stands is served meanwhile
            raise StorageError(exc.message, hint=exc.hint) from exc
    if version == 0:
        store_trust(connection, seals, SealedTrust(revoked={}))
    elif version < SEALED_FROM and is_new:
        count = seal_rows(connection, seals)
        _log.info("%d decisions about tools were sealed, so that nobody else can change them", count)
    elif version < TOKENS_SEALED_FROM:
        # Once under a key: the record that says so has editions, so that no earlier table brings tokens to be sealed.
        trust = read_trust(connection, seals)
        if trust is not None and trust.revoked is None:
            _seal_decisions(connection, _TOKENS, seals)
            store_trust(connection, seals, trust._replace(revoked=_read_revoked(connection)))


def seal_rows(connection: Connection, seals: Seals, former: Seals | None = None) -> int:
    """Seal all decisions and tokens as they stand; return how many decisions.

    Args:
        connection: In a transaction that writes.
        seals: Of the store.
        former: Only what carries these is sealed; else all, but for definitions that do not have their hash.
    """
    trust = None if former is None else read_trust(connection, former)
    if trust is None:
        blocked = select(approvals.c.server_name, approvals.c.name).where(approvals.c.state == "blocked")
        heard = frozenset(connection.scalars(select(baselines.c.server_name)))
        keys = frozenset(ToolKey(*row) for row in connection.execute(blocked))
        trust = SealedTrust(heard, keys, revoked=_read_revoked(connection))
    store_trust(connection, seals, trust._replace(chains=0))  # of those another key has sealed none counts
    _seal_decisions(connection, _DECISIONS, seals, former)
    definitions = []
    for id_, own, *values, text in connection.execute(select(tools.c.id, tools.c.seal, *SEALED)):
        server, _, _, hash_, _ = values
        is_believed = has_hash(server, text, hash_) if former is None else former.fits(own, "tool", *values, text=text)
        definitions.append((seals.seal("tool", *values, text=text) if is_believed else "", id_))
    _store_seals(connection, tools, ["id"], definitions)
    for name, program in connection.execute(select(unconfined)).all():
        sealed_program = seal_program(seals, name, program, former)
        connection.execute(update(unconfined).where(unconfined.c.server_name == name).values(program=sealed_program))
    if former is None:
        mark_all_changed(connection)
    return connection.execute(select(func.count()).select_from(approvals)).scalar_one()


def _seal_decisions(
    connection: Connection,
    kinds: Iterable[tuple[str, Table, tuple[str, ...]]],
    seals: Seals,
    former: Seals | None = None,
) -> None:
    """Seal all rows of these kinds; with `former` only those that carry these seals."""
    for kind, table, columns in kinds:
        keys = [column.name for column in table.primary_key]
        sealed = []
        for own, *values in connection.execute(select(table.c.seal, *(table.c[name] for name in columns))):
            is_believed = former is None or former.fits(own, kind, *values)
            named = dict(zip(columns, values, strict=True))
            sealed.append((seals.seal(kind, *values) if is_believed else "", *(named[key] for key in keys)))
        _store_seals(connection, table, keys, sealed)


def _read_revoked(connection: Connection) -> dict[int, float | None]:
    """Ends of revoked tokens by id."""
    revoked = select(agent_tokens.c.id, agent_tokens.c.expires_s).where(agent_tokens.c.revoked_s.is_not(None))
    return {row.id: row.expires_s for row in connection.execute(revoked)}


def pass_on(reading: Connection, writing: Connection, source: Seals, target: Seals) -> None:
    """Give rows that carry the seals of a copy's source those of its target; others stay as they are.

    Args:
        reading: To the source.
        writing: To the copy.
        source: Of the source.
        target: Of the copy.
    """
    source.load(partial(gateway_key, reading, _KEY_NAME))
    target.load(partial(gateway_key, writing, _KEY_NAME))
    if source.seal("key") != target.seal("key"):
        forget_chains(writing)
    if read_trust(writing, target) is None and read_trust(writing, source) is not None:
        seal_rows(writing, target, source)


def accept_put_back(connection: Connection, seals: Seals) -> None:
    """Make a record that a person has put back the latest, if it carries these seals."""
    seals.load(partial(gateway_key, connection, _KEY_NAME))
    if (trust := read_trust(connection, seals, is_put_back=True)) is not None:
        store_trust(connection, seals, trust)


def _store_seals(connection: Connection, table: Table, keys: list[str], sealed: Iterable[tuple[object, ...]]) -> None:
    statement = update(table).where(*(table.c[key] == bindparam(f"its_{key}") for key in keys))
    statement = statement.values(seal=bindparam("made"))
    names = ["made", *(f"its_{key}" for key in keys)]
    for some in parts(sealed):
        connection.execute(statement, [dict(zip(names, row, strict=True)) for row in some])
