"""Tools in a few words (first sentence and signature) or whole, and how to call one."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.gateway.results.cleaning import clean
from smart_mcp_proxy.gateway.retrieval.signature import first_sentence, format_signature
from smart_mcp_proxy.gateway.visibility.links import relink_tool
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.models import ToolRecord

SHORT_FORMS_LIMIT = 2_048
"""Definitions whose first sentence and signature are remembered, about 1 MB; popular tools come up in every search."""

_OWN_PLACE: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations"})
"""Members of a definition that a description holds under a name of its own."""


def build_full_entry(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """Build the entry of a tool in a full answer: how to call it, description and schemas."""
    definition = msgspec.json.decode(record.raw)
    described = {
        **build_tool_heading(record),
        "title": definition.get("title"),
        "description": definition.get("description") or "",
        "input_schema": definition.get("inputSchema"),
        "output_schema": definition.get("outputSchema"),
        **ways_to_call(record, is_stale=is_stale),
    }
    return {key: value for key, value in described.items() if value is not None}


def build_description(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """The whole definition of one tool, with how to call it.

    Whatever else its server sent (`execution`, `_meta`, fields that no specification knows) stands in `definition`, so
    that none of it can pass for a word of the gateway: cleaned like a result, its interface named as it can be read.
    """
    sent = relink_tool(msgspec.json.decode(record.raw), partial(gateway_uri, record.key.server))
    described, hints = build_full_entry(record, is_stale=is_stale), sent.get("annotations")
    if isinstance(hints, Mapping):
        described["annotations"] = _clean_mapping(hints)
    if others := {key: value for key, value in sent.items() if key not in _OWN_PLACE}:
        described["definition"] = _clean_mapping(others)
    return described


def _clean_mapping(said: Mapping[str, Any]) -> Any:
    # By its text, for a definition may be nested deeper than a message that is looked through.
    return msgspec.json.decode(clean(msgspec.json.encode({"said": said})))["said"]


def build_compact_entry(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """Build the entry of a tool in a compact answer: how to call it, first sentence, signature."""
    description, signature = _short_form(record.raw)
    return {
        **build_tool_heading(record),
        "description": description,
        "signature": signature,
        **ways_to_call(record, is_stale=is_stale),
    }


@lru_cache(maxsize=SHORT_FORMS_LIMIT)
def _short_form(raw: bytes) -> tuple[str, str]:
    """The first sentence and the signature of a definition."""
    definition: Mapping[str, Any] = msgspec.json.decode(raw)
    text = str(definition.get("description") or definition.get("title") or "")
    return first_sentence(text), format_signature(definition.get("inputSchema"))


def build_tool_heading(record: ToolRecord) -> dict[str, Any]:
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
