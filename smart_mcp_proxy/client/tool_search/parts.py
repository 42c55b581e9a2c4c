"""Parts of models' answers: calls with their arguments, read liberally; names and texts of ours."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types

from smart_mcp_proxy.errors import RequestError

LIMIT: Final = 50
"""Tools that one search finds: the default of `MCPPROXY_TOP_K`."""
_DIGEST_CHARS: Final = 8


def members(value: Any) -> Mapping[str, Any]:
    """A part of an API's answer as a mapping, whether it came as JSON or from the API's SDK."""
    dumped = value.model_dump() if hasattr(value, "model_dump") else value
    if not isinstance(dumped, Mapping):
        kind = type(value).__name__
        raise RequestError(
            f"A part of an answer is an object, and this is a {kind}.", hint="Pass what the API answered."
        )
    return dumped


def no_call(part: Mapping[str, Any], expected: str) -> RequestError:
    """The error for a part that no call stands in."""
    return RequestError(
        f"{str(part.get('type'))[:80]!r} is no call that is answered here.", hint=f"Pass {expected} with its id."
    )


def parse_arguments(value: Any) -> Mapping[str, Any]:
    """Arguments as an object, or as JSON text of one.

    Raises:
        RequestError: They are neither.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError) as exc:
            raise RequestError("The arguments are no JSON.", hint="Send an object.") from exc
    return members(value if value is not None else {})


def read_query(arguments: Mapping[str, Any], *, is_required: bool = True) -> str:
    """The words to search for: `query`, else all texts, for schemas of another author.

    Raises:
        RequestError: There are none.
    """
    texts = [arguments["query"]] if "query" in arguments else list(arguments.values())
    words = [word for text in texts for word in (text if isinstance(text, list) else [text]) if isinstance(word, str)]
    query = " ".join(words).strip()
    if not query and is_required:
        raise RequestError("The search has no query.", hint="Say in a few words what the tool should do.")
    return query


def read_limit(arguments: Mapping[str, Any]) -> int | None:
    """The limit that the model asks for, brought into range: it is a wish, and no reason to find nothing."""
    limit = arguments.get("limit")
    return max(1, min(LIMIT, limit)) if isinstance(limit, int) and not isinstance(limit, bool) else None


def shorten_name(name: str, limit: int) -> str:
    """The name, or where it is too long its beginning and a digest of it."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: limit - _DIGEST_CHARS - 1]}_{digest}"


def as_text(part: mcp_types.ContentBlock) -> str:
    """A block of a tool's result as text; one of another kind as JSON."""
    return part.text if isinstance(part, mcp_types.TextContent) else part.model_dump_json(by_alias=True)
