"""SQL of links: resources that servers' results lately linked to, by principal."""

import hashlib
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from smart_mcp_proxy.catalog.tables.schema import links

LINKS_PER_PRINCIPAL: Final = 1_000
"""The oldest leave first. Source: docs/design/wire-formats.md#links-in-results"""
LINK_LIFE_S: Final = 3_600.0
"""Source: docs/design/wire-formats.md#links-in-results"""
_PLAIN_BYTES: Final = 1_024
"""A longer URI is known by its hash: PostgreSQL indexes no text of 2,704 bytes, and an URI may hold a whole token."""


def store(
    connection: Connection, principal: str, server: str, uris: Sequence[str], now_s: float, life_s: float = LINK_LIFE_S
) -> None:
    """Keeps the links of one result for a while; the principal's oldest ones leave, and all that are over.

    Args:
        connection: In a transaction.
        principal: The one that got the result.
        server: The one that sent it.
        uris: As the server writes them, each once.
        now_s: Seconds since the epoch.
        life_s: How long they are kept.
    """
    own, names = links.c.principal == principal, [_name(uri) for uri in uris]
    connection.execute(delete(links).where(own, links.c.server_name == server, links.c.uri.in_(names)))
    expires_s = now_s + life_s
    rows = [{"principal": principal, "server_name": server, "uri": name, "expires_s": expires_s} for name in names]
    connection.execute(insert(links), rows)
    newest = select(links.c.id).where(own).order_by(links.c.id.desc()).limit(LINKS_PER_PRINCIPAL)
    connection.execute(delete(links).where(own, links.c.id.not_in(newest)))
    connection.execute(delete(links).where(links.c.expires_s <= now_s))


def find_servers(
    connection: Connection, principal: str, uri: str, now_s: float, life_s: float = LINK_LIFE_S
) -> tuple[str, ...]:
    """Servers that linked to a resource for this principal within the life of a link, latest first."""
    # A clock that was set back makes nothing last longer.
    is_alive = (links.c.expires_s > now_s) & (links.c.expires_s <= now_s + life_s)
    found = select(links.c.server_name).where(links.c.principal == principal, links.c.uri == _name(uri), is_alive)
    return tuple(connection.execute(found.order_by(links.c.id.desc())).scalars())


def _name(uri: str) -> str:
    """A URI as it is stored."""
    written = uri.encode("utf-8", "replace")
    return uri if len(written) <= _PLAIN_BYTES else f"sha256 {hashlib.sha256(written).hexdigest()}"
