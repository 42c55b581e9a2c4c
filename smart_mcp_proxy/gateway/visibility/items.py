"""Listed prompts, resources and templates, their cursors, and the one that a name or URI means."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.proxying.metadata import ProxyType
from smart_mcp_proxy.proxying.query import ambiguous

Position = tuple[str, int]
"""Position of an item in its list: its server and id."""
_places: Final[msgspec.json.Decoder[Position]] = msgspec.json.Decoder(Position)


class Item(NamedTuple):
    """Prompt, resource or template as it is listed.

    Attributes:
        server: Its server.
        name: Its own name or URI there.
        record: As the catalog holds it.
        shown: The name or URI that agents see.
        definition: As agents see it.
    """

    server: str
    name: str
    record: ToolRecord
    shown: str
    definition: Mapping[str, Any]

    @property
    def place(self) -> Position:
        """Place in its list."""
        return self.server, self.record.id


class Target(NamedTuple):
    """Target of an agent's name or URI.

    Attributes:
        server: Which server is asked.
        name: The name or URI that it knows.
        record: The approved definition that this goes by; None for a URI that the server does not list.
        is_linked: Whether it goes by a link in a result, which opens what is new to the server's lists.
    """

    server: str
    name: str
    record: ToolRecord | None
    is_linked: bool = False


def only_one(type: ProxyType, name: str, found: Sequence[tuple[Item, str]]) -> Item | None:
    """The one item that was found, or None.

    Args:
        type: Of what.
        name: As it was asked for.
        found: Items, each with the name or URI that means it alone.

    Raises:
        RequestError: There are several.
    """
    if len(found) > 1:
        raise ambiguous(type, name, [(item.server, shown) for item, shown in found])
    return found[0][0] if found else None


def by_shown(items: Iterator[Item]) -> Mapping[str, Item]:
    """Items by shown name or URI, in order; of two with one web URI the first listed."""
    found: dict[str, Item] = {}
    for item in items:
        known = found.get(item.shown)
        if known is None or item.record.id < known.record.id:
            found.pop(item.shown, None)
            found[item.shown] = item
    return found


def cursor_after(place: Position) -> str:
    """The cursor of the page that begins after the item in this place."""
    return msgspec.json.encode(place).hex()


def decode_cursor(cursor: str) -> Position:
    """The place after which a page begins.

    Raises:
        RequestError: No list has given this cursor.
    """
    try:
        return _places.decode(bytes.fromhex(cursor))
    except (ValueError, msgspec.MsgspecError) as exc:
        raise unknown_cursor() from exc


def unknown_cursor() -> RequestError:
    """The error for a page that no list has led to.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination
    """
    return RequestError("The cursor is not one that this list gave.", hint="Leave it out to begin with the first page.")
