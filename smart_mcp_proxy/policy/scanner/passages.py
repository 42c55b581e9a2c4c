"""Every string of a definition that an agent can see, with its place."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from smart_mcp_proxy.policy.scanner.findings import Passage

MOST_CHARS = 100_000
"""More text than any real definition has (the longest of 4,975: 36,082); the rest is not read, and that is said."""
MOST_DEPTH = 64
"""More levels than any real one has (the deepest of 6,797: 20); what is below is not read, and that is said."""
_KEY_CHARS = 60
"""Of a key that a place shows: it stands in the places of all that is below it."""
_PLAIN_KEY = re.compile(rf"[A-Za-z_$][\w$-]{{0,{_KEY_CHARS - 1}}}", re.ASCII)
_PLAIN_VALUES = (bool, int, float, type(None))
_SCHEMA_WORDS = frozenset(
    [
        "type",
        "properties",
        "required",
        "description",
        "title",
        "items",
        "enum",
        "default",
        "examples",
        "const",
        "format",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "definitions",
        "additionalProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "$schema",
        "inputSchema",
        "outputSchema",
        "annotations",
        "name",
        "icons",
        "_meta",
        "src",
        "mimeType",
        "sizes",
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ]
)
"""Keys that the protocol and JSON Schema give; what is written in them says nothing of the server."""


def passages(definition: Mapping[str, Any]) -> tuple[tuple[Passage, ...], bool]:
    """The strings of a definition, keys of the server's own included, and whether that is all of them."""
    found: list[Passage] = []
    is_all = _read("$", definition, MOST_CHARS, MOST_DEPTH, found) >= 0
    return tuple(found), is_all


def _read(place: str, value: Any, room: int, depth: int, found: list[Passage]) -> int:
    """Read an object or array; returns the characters left to read, negative if none.

    What is too deep takes all of it.

    Args:
        place: Of the value.
        value: Read into `found`, keys of the server's own before their values; anything else holds nothing.
        room: Characters.
        depth: Of objects and arrays that are read.
        found: All strings so far.
    """
    for below, inner in _members(place, value):
        if isinstance(inner, str):
            room -= len(inner)
            if room >= 0:
                found.append(Passage(below, inner))
        elif not isinstance(inner, _PLAIN_VALUES):
            room = _read(below, inner, room, depth - 1, found) if depth > 1 else -1
        if room < 0:
            break
    return room


def _members(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, Mapping)):
        for key, inner in value.items():
            if key in _SCHEMA_WORDS:
                yield f"{place}.{key}", inner
                continue
            below = f"{place}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{place}[{ascii(key)[:_KEY_CHARS]}]"
            yield below + "~", key
            yield below, inner
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield f"{place}[{position}]", inner
