"""SQL of toolsets: found tools under a handle that any process on the catalog can look up."""

import json
from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from smart_mcp_proxy.catalog.tables.schema import toolsets

KEPT_PER_PRINCIPAL: Final = 256
"""The oldest leave first: an agent that searches all day makes a few hundred an hour and goes back to none of them."""
_FORGOTTEN_AFTER_S: Final = 2 * 86_400.0
"""Rows stay for longer than they are served: a wall clock that jumps by a day must not drop what is in use."""


class Toolset(msgspec.Struct, frozen=True):
    """A list of found tools.

    Attributes:
        handle: What it is known by.
        principal: For whom it was made; nobody else may use it.
        profile: The profile it was made in; empty for the whole catalog.
        tools: Id and approval digest of each tool, in the order of the list.
        expires_s: When it ends, in seconds since the epoch.
    """

    handle: str
    principal: str
    profile: str
    tools: tuple[tuple[int, str], ...]
    expires_s: float


def store(connection: Connection, toolset: Toolset, now_s: float) -> None:
    """Adds a toolset; the principal's oldest ones leave, and what ended days ago."""
    connection.execute(insert(toolsets), msgspec.structs.asdict(toolset) | {"tools": json.dumps(toolset.tools)})
    is_own = toolsets.c.principal == toolset.principal
    newest = select(toolsets.c.id).where(is_own).order_by(toolsets.c.id.desc()).limit(KEPT_PER_PRINCIPAL)
    connection.execute(delete(toolsets).where(is_own, toolsets.c.id.not_in(newest)))
    connection.execute(delete(toolsets).where(func.abs(toolsets.c.expires_s - now_s) > _FORGOTTEN_AFTER_S))


def find(connection: Connection, handle: str) -> Toolset | None:
    """The toolset of that handle, whoever asks and whether or not its time is over; None if none is kept."""
    row = connection.execute(select(toolsets).where(toolsets.c.handle == handle)).one_or_none()
    if row is None:
        return None
    tools = tuple((int(id_), str(digest)) for id_, digest in json.loads(row.tools))
    return Toolset(row.handle, row.principal, row.profile, tools, row.expires_s)


def filter_stored(connection: Connection, handles: Collection[str]) -> frozenset[str]:
    """Return those of the handles whose toolsets are kept."""
    return frozenset(connection.execute(select(toolsets.c.handle).where(toolsets.c.handle.in_(handles))).scalars())
