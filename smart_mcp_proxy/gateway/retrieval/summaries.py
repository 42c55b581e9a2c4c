"""Tools in a few words: how to call one, its first sentence and its signature."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.gateway.retrieval.signature import first_sentence, signature_of
from smart_mcp_proxy.models import ToolRecord

__all__ = ["heading", "summary_of", "ways_to_call"]

SHORT_FORMS_LIMIT = 2_048
"""Definitions whose first sentence and signature are remembered, about 1 MB; popular tools come up in every search."""


def summary_of(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """One tool as a compact answer holds it: how to call it, its first sentence and its signature."""
    description, signature = _short_form(record.raw)
    return {
        **heading(record),
        "description": description,
        "signature": signature,
        **ways_to_call(record, is_stale=is_stale),
    }


@lru_cache(maxsize=SHORT_FORMS_LIMIT)
def _short_form(raw: bytes) -> tuple[str, str]:
    """The first sentence and the signature of a definition."""
    definition: Mapping[str, Any] = msgspec.json.decode(raw)
    text = str(definition.get("description") or definition.get("title") or "")
    return first_sentence(text), signature_of(definition.get("inputSchema"))


def heading(record: ToolRecord) -> dict[str, Any]:
    """A tool's names and its server."""
    return {"name": str(record.key), "listed_name": record.listed_name, "server": record.key.server}


def ways_to_call(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """Hints and call tool of a tool, its digest, and whether it is of the last session."""
    return {
        "annotations": dict(record.annotations),
        "call_with": f"call_tool_{policy.call_with(record.annotations)}",
        "digest": record.digest,
        "stale": is_stale,
    }
