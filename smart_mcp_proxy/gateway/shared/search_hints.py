"""Search hints: words by which a client's own tool search finds a tool that the client defers.

Claude Code defers the tools of MCP servers behind a search of its own, and reads a hint in `_meta` for it. How much it
weighs it is not documented; where it stands for the description it has to hold the words that matter, so it does.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

SEARCH_HINT: Final = "anthropic/searchHint"
"""Key of `_meta` that the Claude Agent SDK sets with `searchHint`."""
HINT_CHARS: Final = 200
"""Short, as the definitions of thousands of deferred tools are kept by the client."""
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE_END: Final = re.compile(r"[.!?](?:\s|$)|\n")


def add_search_hint(definition: dict[str, Any], server: str) -> dict[str, Any]:
    """The definition with a hint; with its server's own where it has one."""
    meta = definition.get("_meta")
    if meta is not None and (not isinstance(meta, dict) or SEARCH_HINT in meta):
        return definition
    return {**definition, "_meta": {**(meta or {}), SEARCH_HINT: _hint(definition, server)}}


def _hint(definition: Mapping[str, Any], server: str) -> str:
    """Server, words of the name, first sentence and names of parameters, each word once."""
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    text = str(definition.get("description") or definition.get("title") or "")
    parts = (server, str(definition.get("name", "")), _SENTENCE_END.split(text, maxsplit=1)[0], *(properties or ()))
    words = dict.fromkeys(word.lower() for part in parts for word in _WORD.findall(_CAMEL.sub(" ", part)))
    hint = " ".join(words)
    return hint if len(hint) <= HINT_CHARS else hint[:HINT_CHARS].rpartition(" ")[0] or hint[:HINT_CHARS]
