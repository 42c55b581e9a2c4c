"""The SQL of tools: what a server's list changes."""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from smart_mcp_proxy.catalog.hashing import approval_digest
from smart_mcp_proxy.catalog.recovery.rollback_guard import GENERATION_KEY
from smart_mcp_proxy.catalog.tables.following import forget_gone
from smart_mcp_proxy.catalog.tables.prepared_tools import PreparedTool
from smart_mcp_proxy.catalog.tables.schema import listed_names, meta, servers, tools, unconfined
from smart_mcp_proxy.catalog.tables.upsert import parts, replace_columns
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import build_listed_name
from smart_mcp_proxy.telemetry import get_logger

_log = get_logger("catalog")


# Made once: to put a statement together takes longer than to run it.
_STORED = select(tools.c.name, tools.c.id, tools.c.hash).where(tools.c.server_name == bindparam("server"))
_GIVEN = select(listed_names.c.name, listed_names.c.listed_name).where(
    listed_names.c.server_name == bindparam("server")
)
_NEXT_GENERATION = (
    update(meta).where(meta.c.key == GENERATION_KEY).values(value=meta.c.value + 1).returning(meta.c.value)
)
_NUMBER_VECTORS = update(tools).where(tools.c.faiss_vector_id.is_(None)).values(faiss_vector_id=tools.c.id)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The writes that make the stored tools of one server equal to its list."""

    added: tuple[PreparedTool, ...]
    changed: tuple[tuple[int, PreparedTool], ...]
    removed: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def is_unstored(connection: Connection, server: str, wanted: Mapping[str, PreparedTool]) -> bool:
    """Whether the stored tools of `server` differ from `wanted`."""
    return bool(_plan(connection, server, wanted))


def _plan(connection: Connection, server: str, wanted: Mapping[str, PreparedTool]) -> _Plan:
    rows = connection.execute(_STORED, {"server": server}).all()
    stored = {name: (id_, hash_) for name, id_, hash_ in rows}
    return _Plan(
        added=tuple(tool for name, tool in wanted.items() if name not in stored),
        changed=tuple(
            (stored[name][0], tool) for name, tool in wanted.items() if name in stored and stored[name][1] != tool.hash
        ),
        removed=tuple(id_ for name, (id_, _) in stored.items() if name not in wanted),
    )


def store(connection: Connection, server: str, wanted: Mapping[str, PreparedTool], name_limit: int) -> frozenset[str]:
    """Make the stored tools of `server` equal to `wanted`; returns new and changed names."""
    plan = _plan(connection, server, wanted)
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
            [{"row_id": id_, **_columns(tool, generation)} for id_, tool in plan.changed],
        )
    if plan.added:
        names = _assign_listed_names(connection, server, [tool.key.tool for tool in plan.added], name_limit)
        for some in parts(plan.added):  # as rows they take several times as much memory
            rows = [
                {
                    "server_name": server,
                    "name": tool.key.tool,
                    "listed_name": names[tool.key.tool],
                    **_columns(tool, generation),
                }
                for tool in some
            ]
            connection.execute(insert(tools), rows)
        connection.execute(_NUMBER_VECTORS)
    return frozenset(tool.key.tool for tool in (*plan.added, *(tool for _, tool in plan.changed)))


def _columns(tool: PreparedTool, generation: int) -> dict[str, Any]:
    return {
        "description": tool.description,
        "hash": tool.hash,
        "definition": tool.definition,
        "digest": approval_digest(tool.hash),
        "annotations": tool.annotations,
        "generation": generation,
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


def shorten_listed_names(connection: Connection, limit: int) -> None:
    """Gives names within `limit` to the tools whose stored one is longer; shorter ones stay as they are."""
    too_long = connection.execute(select(listed_names).where(func.length(listed_names.c.listed_name) > limit)).all()
    if not too_long:
        return
    generation = _next_generation(connection)
    taken = set(connection.scalars(select(listed_names.c.listed_name)).all())
    for row in too_long:
        name = build_listed_name(ToolKey(row.server_name, row.name), limit, taken)
        taken.add(name)
        for table, extra in ((listed_names, {}), (tools, {"generation": generation})):
            same_tool = (table.c.server_name == row.server_name) & (table.c.name == row.name)
            connection.execute(update(table).where(same_tool).values(listed_name=name, **extra))


def mark_changed(connection: Connection, keys: Collection[ToolKey]) -> None:
    """Lets every process read these tools anew."""
    if not keys:
        return
    generation = _next_generation(connection)
    is_one = (tools.c.server_name == bindparam("server")) & (tools.c.name == bindparam("tool"))
    rows = [{"server": server, "tool": name} for server, name in keys]
    connection.execute(update(tools).where(is_one).values(generation=generation), rows)


def clear(connection: Connection) -> None:
    """Forgets all tools and servers; listed names and used ids stay."""
    connection.execute(delete(tools))
    connection.execute(delete(servers))
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


def bind_unconfined(connection: Connection, programs: Mapping[str, str]) -> dict[str, str]:
    """The programs by server; those that are not bound yet become what `programs` names.

    Args:
        connection: To the store.
        programs: Digest of the program that each configured server has.
    """
    rows = connection.execute(select(unconfined.c.server_name, unconfined.c.program)).all()
    found: dict[str, str] = {row.server_name: row.program for row in rows}
    for name in programs.keys() & {name for name, program in found.items() if not program}:
        bound = update(unconfined).where(unconfined.c.server_name == name).values(program=programs[name])
        connection.execute(bound)
        found[name] = programs[name]
    return found
