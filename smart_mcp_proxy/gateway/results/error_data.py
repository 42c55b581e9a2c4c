"""Data of JSON-RPC errors under fences: what the protocol defines stays data."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
)

_RESOURCE_NOT_FOUND: Final = -32002
"""Up to 2025-11-25; -32602 from 2026-07-28 on."""
_DEFINED: Final[Mapping[int, frozenset[str]]] = {
    MISSING_REQUIRED_CLIENT_CAPABILITY: frozenset({"requiredCapabilities"}),
    UNSUPPORTED_PROTOCOL_VERSION: frozenset({"supported", "requested"}),
    URL_ELICITATION_REQUIRED: frozenset({"elicitations"}),
    _RESOURCE_NOT_FOUND: frozenset({"uri"}),
    INVALID_PARAMS: frozenset({"uri"}),
}
"""By code, the members by which a client decides what to do.

Source: https://modelcontextprotocol.io/specification/2025-11-25/schema;
https://modelcontextprotocol.io/specification/2026-07-28/schema"""
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,127}")
"""A name, version or id."""
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,4096}")
"""What a URI may not hold unencoded, blanks above all, makes free text of it. Source: RFC 3986"""

Fence = Callable[[Any], Any]


def fence_error_data(code: int, data: Any, fence: Fence) -> Any:
    """The data with all text fenced but what the protocol defines for this code and is no free text.

    Args:
        code: The error's.
        data: Any JSON value.
        fence: Makes fenced text of a value.
    """
    defined = _DEFINED.get(code, frozenset())
    if not isinstance(data, dict) or defined.isdisjoint(data) or not all(map(_WORD.fullmatch, data)):
        return fence(data)
    return {name: _fence_free_text(value, fence) if name in defined else fence(value) for name, value in data.items()}


def _fence_free_text(value: Any, fence: Fence) -> Any:
    """Fence a value's free text: all but words and URIs; an object with such a name as a whole."""
    if isinstance(value, dict):
        if not all(map(_WORD.fullmatch, value)):
            return fence(value)
        return {name: _fence_free_text(each, fence) for name, each in value.items()}
    if isinstance(value, list):
        return [_fence_free_text(each, fence) for each in value]
    is_free = isinstance(value, str) and not (_WORD.fullmatch(value) or _URI.fullmatch(value))
    return fence(value) if is_free else value
