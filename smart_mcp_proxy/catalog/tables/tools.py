"""The SQL of tools: what a server's list changes."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, and_, bindparam, delete, func, insert, select, update

from smart_mcp_proxy.catalog.hashing import approval_digest
from smart_mcp_proxy.catalog.recovery.rollback_guard import GENERATION_KEY
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.tables.following import forget_gone
from smart_mcp_proxy.catalog.tables.prepared_tools import PreparedTool, Wanted
from smart_mcp_proxy.catalog.tables.schema import listed_names, meta, servers, tools, unconfined
from smart_mcp_proxy.catalog.tables.sealed import read_trust
from smart_mcp_proxy.catalog.tables.upsert import parts, replace_columns
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import build_listed_name
from smart_mcp_proxy.telemetry import get_logger

_log = get_logger("catalog")

Keep = Callable[[Connection | None, set[str]], set[str]]
"""Names that stay, of those that a list lacks: others were listed them. Without a connection by what is known here."""
KEEP_NONE: Keep = lambda connection, gone: set()  # noqa: E731  (its type is said once)


# Made once: to put a statement together takes longer than to run it.
SEALED = tuple(tools.c[name] for name in ("server_name", "name", "listed_name", "hash", "annotations", "definition"))
"""The columns that a tool's seal covers, in its order: all that is shown, or called by."""
_STORED = select(tools.c.id, tools.c.seal, *SEALED).where(tools.c.server_name == bindparam("server"))
_GIVEN = select(listed_names.c.name, listed_names.c.listed_name).where(
    listed_names.c.server_name == bindparam("server")
)
_NEXT_GENERATION = (
    update(meta).where(meta.c.key == GENERATION_KEY).values(value=meta.c.value + 1).returning(meta.c.value)
)
_NUMBER_VECTORS = update(tools).where(tools.c.faiss_vector_id.is_(None)).values(faiss_vector_id=tools.c.id)


class _Plan(msgspec.Struct, frozen=True):
    """The writes that make the stored tools of one server equal to its list."""

    added: tuple[PreparedTool, ...]
    changed: tuple[tuple[int, str, PreparedTool], ...]
    removed: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def is_unstored(connection: Connection, server: str, wanted: Wanted, seals: Seals, keep: Keep) -> bool:
    """Whether the stored tools of `server` differ from `wanted`, or have another seal."""
    return bool(_plan(connection, server, wanted, seals, keep))


def _plan(connection: Connection, server: str, wanted: Wanted, seals: Seals, keep: Keep) -> _Plan:
    stored: dict[str, tuple[int, str, str | None]] = {}
    is_ours = read_trust(connection, seals) is not None  # else gateways with another key would seal in turns
    for id_, seal, *sealed, text in connection.execute(_STORED, {"server": server}):
        _, name, listed, hash_, _ = sealed
        is_kept = not is_ours or seals.fits(seal, "tool", *sealed, text=text)
        stored[name] = (id_, listed, hash_ if is_kept else None)
    gone = stored.keys() - wanted.keys()
    gone -= keep(connection, gone)
    return _Plan(
        added=tuple(tool for name, tool in wanted.items() if name not in stored),
        changed=tuple(
            (*stored[name][:2], tool)
            for name, tool in wanted.items()
            if name in stored and stored[name][2] != tool.hash
        ),
        removed=tuple(stored[name][0] for name in sorted(gone)),
    )


def store(
    connection: Connection, server: str, wanted: Wanted, name_limit: int, seals: Seals, keep: Keep
) -> frozenset[str]:
    """Make the stored tools of `server` equal to `wanted` and those kept; returns new and changed names."""
    plan = _plan(connection, server, wanted, seals, keep)
    if not plan:
        return frozenset()  # another process was faster
    generation = _next_generation(connection)
    if plan.removed:
        connection.execute(
            delete(tools).where(tools.c.id == bindparam("row_id")), [{"row_id": id_} for id_ in plan.removed]
        )
        forget_gone(connection, generation)
    if plan.changed:
        connection.execute(
            update(tools).where(tools.c.id == bindparam("row_id")),
            [{"row_id": id_, **_columns(tool, listed, generation, seals)} for id_, listed, tool in plan.changed],
        )
    if plan.added:
        names = _assign_listed_names(connection, server, [tool.key.tool for tool in plan.added], name_limit)
        for some in parts(plan.added):  # as rows they take several times as much memory
            rows = [
                {
                    "server_name": server,
                    "name": tool.key.tool,
                    "listed_name": names[tool.key.tool],
                    **_columns(tool, names[tool.key.tool], generation, seals),
                }
                for tool in some
            ]
            connection.execute(insert(tools), rows)
        connection.execute(_NUMBER_VECTORS)
    return frozenset(tool.key.tool for tool in (*plan.added, *(tool for *_, tool in plan.changed)))


def _columns(tool: PreparedTool, listed: str, generation: int, seals: Seals) -> dict[str, Any]:
    return {
        "description": tool.description,
        "hash": tool.hash,
        "definition": tool.definition,
        "digest": approval_digest(tool.hash),
        "annotations": tool.annotations,
        "generation": generation,
        "seal": seals.seal("tool", *tool.key, listed, tool.hash, tool.annotations, text=tool.raw),
    }


def _next_generation(connection: Connection) -> int:
    return int(connection.execute(_NEXT_GENERATION).scalar_one())


def _assign_listed_names(connection: Connection, server: str, names: Sequence[str], limit: int) -> dict[str, str]:
    """Listed names of a server's tools: their old ones, new ones for the rest, kept for good."""
    given: dict[str, str] = dict(connection.execute(_GIVEN, {"server": server}).all())
    unnamed = [name for name in names if name not in given]
    if unnamed:
        taken = _Taken(connection, [build_listed_name(ToolKey(server, name), limit) for name in unnamed])
        for name in unnamed:
            given[name] = build_listed_name(ToolKey(server, name), limit, taken)
            taken.add(given[name])
        rows = [{"server_name": server, "name": name, "listed_name": given[name]} for name in unnamed]
        connection.execute(insert(listed_names), rows)
    return given


class _Taken(Container[str]):
    """Listed names that were given away, looked up when they are asked for.

    Args:
        connection: In a transaction.
        likely: Those that will be asked for, looked up together.
    """

    def __init__(self, connection: Connection, likely: Collection[str]) -> None:
        self._connection = connection
        self._known = dict.fromkeys(likely, False)
        for some in parts(likely):
            self._look_up(some)

    def __contains__(self, name: object) -> bool:
        if name not in self._known:
            self._look_up([str(name)])
        return self._known.get(str(name), False)

    def add(self, name: str) -> None:
        """Notes that `name` is given away now."""
        self._known[name] = True

    def _look_up(self, names: Collection[str]) -> None:
        self._known.update(dict.fromkeys(names, False))
        given = select(listed_names.c.listed_name).where(listed_names.c.listed_name.in_(names))
        self._known.update(dict.fromkeys(self._connection.scalars(given), True))


def shorten_listed_names(connection: Connection, limit: int, seals: Seals) -> None:
    """Gives names within `limit` to the tools whose stored one is longer; shorter ones stay as they are."""
    too_long = connection.execute(select(listed_names).where(func.length(listed_names.c.listed_name) > limit)).all()
    if not too_long:
        return
    generation = _next_generation(connection)
    taken = set(connection.scalars(select(listed_names.c.listed_name)).all())
    for row in too_long:
        name = build_listed_name(ToolKey(row.server_name, row.name), limit, taken)
        taken.add(name)
        seal = ""
        for own, *sealed, text in connection.execute(select(tools.c.seal, *SEALED).where(_is_one(tools, row))):
            is_intact = seals.fits(own, "tool", *sealed, text=text)
            seal = seals.seal("tool", *sealed[:2], name, *sealed[3:], text=text) if is_intact else ""
        for table, extra in ((listed_names, {}), (tools, {"generation": generation, "seal": seal})):
            connection.execute(update(table).where(_is_one(table, row)).values(listed_name=name, **extra))


def _is_one(table: Table, row: Row[Any]) -> ColumnElement[bool]:
    return and_(table.c.server_name == row.server_name, table.c.name == row.name)


def mark_changed(connection: Connection, keys: Collection[ToolKey]) -> None:
    """Lets every process read these tools anew."""
    if not keys:
        return
    generation = _next_generation(connection)
    is_one = (tools.c.server_name == bindparam("server")) & (tools.c.name == bindparam("tool"))
    rows = [{"server": server, "tool": name} for server, name in keys]
    connection.execute(update(tools).where(is_one).values(generation=generation), rows)


def mark_all_changed(connection: Connection) -> None:
    """Lets every process read all tools anew."""
    connection.execute(update(tools).values(generation=_next_generation(connection)))


def clear(connection: Connection) -> None:
    """Forgets all tools and servers, also who ran unconfined; listed names and used ids stay."""
    connection.execute(delete(tools))
    connection.execute(delete(servers))
    if connection.execute(delete(unconfined)).rowcount:
        _log.warning("no server counts as known any more: the next starts are held as MCPPROXY_ISOLATION says")
    forget_gone(connection, _next_generation(connection))


def read_known_servers(connection: Connection) -> set[str]:
    """Names of the servers that have tools or were ever listed."""
    named = select(servers.c.name).union(select(tools.c.server_name))
    return set(connection.scalars(named))


def delete_servers(connection: Connection, names: Collection[str]) -> None:
    """Forgets these servers and their tools."""
    if connection.execute(delete(tools).where(tools.c.server_name.in_(names))).rowcount:
        forget_gone(connection, _next_generation(connection))
    connection.execute(delete(servers).where(servers.c.name.in_(names)))
    connection.execute(delete(unconfined).where(unconfined.c.server_name.in_(names)))


def note_syncs(connection: Connection, at_s: Mapping[str, float]) -> None:
    """Stores when these servers were last listed, with the number of tools they have."""
    if not at_s:
        return
    counted = (
        select(tools.c.server_name, func.count()).where(tools.c.server_name.in_(at_s)).group_by(tools.c.server_name)
    )
    counts: dict[str, int] = dict(connection.execute(counted).all())
    connection.execute(
        replace_columns(connection, servers, "last_sync_s", "tool_count"),
        [{"name": name, "last_sync_s": at, "tool_count": counts.get(name, 0)} for name, at in sorted(at_s.items())],
    )


def bind_unconfined(connection: Connection, programs: Mapping[str, str], seals: Seals) -> dict[str, str]:
    """The programs by server; those that are not bound yet become what `programs` names, or are left out.

    Args:
        connection: To the store.
        programs: Digest of the program that each configured server has.
        seals: Of the store; what has none of theirs is left out.
    """
    found: dict[str, str] = {}
    for name, sealed in connection.execute(select(unconfined.c.server_name, unconfined.c.program)).all():
        program, _, seal = sealed.partition(" ")
        if not seals.fits(seal, "unconfined", name, program):
            continue
        if not program and name not in programs:
            continue  # whatever is called so next is another program
        if not program:
            program = programs[name]
            bound = update(unconfined).where(unconfined.c.server_name == name)
            connection.execute(bound.values(program=seal_program(seals, name, program)))
        found[name] = program
    return found


def find_altered_programs(connection: Connection, seals: Seals) -> frozenset[str]:
    """Servers of which something else than a gateway has written that they ran before there was a sandbox."""
    if read_trust(connection, seals) is None:
        return frozenset()  # nothing counts then, which is told by itself
    rows = connection.execute(select(unconfined.c.server_name, unconfined.c.program)).all()
    parted = ((name, *stored.partition(" ")) for name, stored in rows)
    return frozenset(name for name, program, _, seal in parted if not seals.fits(seal, "unconfined", name, program))


def seal_program(seals: Seals, server: str, stored: str, former: Seals | None = None) -> str:
    """Seal the program of a server that ran before there was a sandbox, behind a blank.

    Args:
        seals: Of the store.
        server: Its name.
        stored: Its program, and a seal if it has one.
        former: Without this one's seal none is given.
    """
    program, _, seal = stored.partition(" ")
    is_believed = former is None or former.fits(seal, "unconfined", server, program)
    return f"{program} {seals.seal('unconfined', server, program)}" if is_believed else program
