"""Every string of a definition that an agent can see, with its place."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from smart_mcp_proxy.policy.scanner.findings import Passage

__all__ = ["MOST_CHARS", "passages"]

MOST_CHARS = 100_000
"""More text than any real definition has (the longest of 4,975: 36,082); the rest is not read, and that is said."""
_MOST_DEPTH = 64
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)
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
    room = MOST_CHARS
    for passage in _walk(definition, "$", 0):
        room -= len(passage.text)
        if room < 0:
            return tuple(found), False
        found.append(passage)
    return tuple(found), True


def _walk(value: Any, place: str, depth: int) -> Iterator[Passage]:
    if isinstance(value, str):
        yield Passage(place, value)
    elif depth >= _MOST_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            below = f"{place}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{place}[{ascii(key)[:60]}]"
            if key not in _SCHEMA_WORDS:
                yield Passage(below + "~", key)
            yield from _walk(inner, below, depth + 1)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _walk(inner, f"{place}[{position}]", depth + 1)
