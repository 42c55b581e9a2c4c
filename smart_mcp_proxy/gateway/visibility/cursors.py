"""The marks from which long lists go on; a client keeps one and sends it back."""

from typing import Final

import msgspec

from smart_mcp_proxy.errors import RequestError

Position = tuple[str, int]
"""Where an item stands in its list: its server and id."""


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


_places: Final[msgspec.json.Decoder[Position]] = msgspec.json.Decoder(Position)
