"""Hashes of tool definitions: equal exactly when the definitions say the same."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGEST_CHARS = 16
"""Hex characters of the digest that travels to agents and back.

Source: docs/design/wire-formats.md#answers-to-a-search"""

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_AS_SENT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted by code point, no white space, UTF-8, `1` distinct from `1.0`.

    Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes, so the bytes are valid and still unique.

    Raises:
        TypeError: The value is not plain JSON.
        ValueError: It holds a number that JSON has no word for.
        RecursionError: It is nested beyond the interpreter's limit.
    """
    return _CANONICAL.encode(value).encode("utf-8", "backslashreplace")


def json_text(value: Any) -> str:
    """Compact JSON with keys in their order, encodable as UTF-8; raises as `canonical_json`."""
    return _AS_SENT.encode(value).encode("utf-8", "backslashreplace").decode()


def change_hash(server: str, definition: Mapping[str, Any]) -> str:
    """Hex SHA-256 of a tool's whole definition on its server.

    The whole definition, because all of it is shown to agents: a field left out could change unnoticed. One JSON
    object frames server and fields, so no text can move from one into another and leave the hash as it was.

    Raises:
        TypeError, ValueError, RecursionError: The definition is not plain JSON, as for `canonical_json`.

    Source: docs/design/processes.md#two-hashes
    """
    return hashlib.sha256(canonical_json({"server": server, "tool": dict(definition)})).hexdigest()


def approval_digest(full_hash: str) -> str:
    """`"sha256:"` and the first 16 hex characters of a change hash, short enough to send back.

    64 bits tell an agent that a definition moved. A server could prepare two definitions that share them, so
    whatever grants trust compares the full hash.
    """
    return f"sha256:{full_hash[:_DIGEST_CHARS]}"
