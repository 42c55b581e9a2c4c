"""Tools in a few words (first sentence and signature) or whole, and how to call one."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.gateway.results.cleaning import clean
from smart_mcp_proxy.gateway.visibility.links import relink_tool
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.models import ToolRecord

SHORT_FORMS_LIMIT = 2_048
"""Definitions whose first sentence and signature are remembered, about 1 MB; popular tools come up in every search."""

_OWN_PLACE: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations"})
"""Members of a definition that a description holds under a name of its own."""

SENTENCE_LIMIT_CHARS = 200
SIGNATURE_LIMIT_CHARS = 1_000
"""Limit on a signature: of 4,975 real tools one has a longer one; an answer must not be one tool."""
NOT_DESCRIBED = "(parameters not described)"
"""Signature where a schema says nothing about parameters: the tool may well take some."""
LEADING = 2
"""Tools of a compact answer that are described in full; each further one costs 16 tokens."""
MORE_LIMIT = 10
MORE_BYTES = 480
"""Limit on the lines in `more`, 120 tokens. Source: docs/design/wire-formats.md#answers-to-a-search"""
BRIEF_LIMIT_CHARS = 80
"""Characters of the first sentence in entries behind the first tools of an answer."""
ENUM_LIMIT = 5
NESTING_LIMIT = 3
_ELSEWHERE = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
"""Keywords behind which parameters may stand."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
"""Latin and CJK sentence ends, or an empty line."""
_SHORT = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}


def build_full_entry(record: ToolRecord, *, is_stale: bool) -> dict[str, Any]:
    """Build the entry of a tool in a full answer: how to call it, description and schemas."""
    definition = msgspec.json.decode(record.raw)
    words = {
        "title": definition.get("title"),
        "description": definition.get("description") or "",
        "input_schema": definition.get("inputSchema"),
        "output_schema": definition.get("outputSchema"),
    }
    return _build_entry(record, {key: value for key, value in words.items() if value is not None}, is_stale=is_stale)


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
    form = _short_form(record.raw)
    return _build_entry(record, {"description": form.description, "signature": form.signature}, is_stale=is_stale)


def build_brief_words(record: ToolRecord) -> dict[str, str]:
    """Shorten the words on a tool behind the first ones: a few of its sentence, required parameters."""
    form = _short_form(record.raw)
    return {"description": _cut_text(form.description, BRIEF_LIMIT_CHARS), "signature": form.needed}


def build_more(records: Iterable[ToolRecord]) -> list[dict[str, str]]:
    """Name tools with their required parameters: the first always, others while there is room."""
    lines: list[dict[str, str]] = []
    used = 0
    for record in islice(records, MORE_LIMIT):
        line = {"name": str(record.key), "signature": _short_form(record.raw).needed}
        used += len(msgspec.json.encode(line))
        if lines and used > MORE_BYTES:
            break
        lines.append(line)
    return lines


def _build_entry(record: ToolRecord, words: Mapping[str, Any], *, is_stale: bool) -> dict[str, Any]:
    """Names and server of a tool, words on it, and how to call it: whether it is of the last session."""
    return {
        "name": str(record.key),
        "listed_name": record.listed_name,
        "server": record.key.server,
        **words,
        "annotations": dict(record.annotations),
        "call_with": f"call_tool_{policy.call_with(record.annotations)}",
        "digest": record.digest,
        "stale": is_stale,
    }


class _ShortForm(NamedTuple):
    """First sentence of a definition, its signature, and the part of that which every call needs."""

    description: str
    signature: str
    needed: str


@lru_cache(maxsize=SHORT_FORMS_LIMIT)
def _short_form(raw: bytes) -> _ShortForm:
    definition: Mapping[str, Any] = msgspec.json.decode(raw)
    text = str(definition.get("description") or definition.get("title") or "")
    schema = definition.get("inputSchema")
    return _ShortForm(first_sentence(text), format_signature(schema), format_signature(schema, is_brief=True))


def first_sentence(text: str) -> str:
    """The first sentence of `text` on one line, at most 200 characters; a cut is marked with an ellipsis."""
    return _cut_text(" ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split()), SENTENCE_LIMIT_CHARS)


def _cut_text(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else text[: limit_chars - 1].rstrip() + "…"


def format_signature(schema: Any, *, is_brief: bool = False) -> str:
    """`(path:str, mode?:"r"|"w", tags?:list[str])`: required parameters first, optional ones with a `?`.

    A `~` behind a type, or alone, says that the schema holds more than is shown; describe_tool has it whole.

    Args:
        schema: As the server sent it.
        is_brief: Whether a `~` stands for all optional parameters.
    """
    if not isinstance(schema, Mapping):
        return NOT_DESCRIBED
    listed, required = schema.get("properties"), schema.get("required")
    properties: Mapping[str, Any] = listed if isinstance(listed, Mapping) else {}
    stated = dict.fromkeys(name for name in required if isinstance(name, str)) if isinstance(required, list) else {}
    needed = [name for name in stated if name in properties or not properties]
    optional = [name for name in properties if name not in needed]
    parts = [f"{name}:{format_type(properties.get(name))}" for name in needed]
    more = [f"{name}?:{format_type(properties[name])}" for name in optional]
    parts += ["~"] if is_brief and more else more
    if not parts:
        return _without_names(schema)
    signature = f"({', '.join(parts)})"
    return signature if len(signature) <= SIGNATURE_LIMIT_CHARS else signature[: SIGNATURE_LIMIT_CHARS - 2] + "…~"


def _without_names(schema: Mapping[str, Any]) -> str:
    """The signature of a schema that names no parameter, which does not mean that there is none."""
    more = schema.get("additionalProperties")
    if any(schema.get(key) for key in _ELSEWHERE) or (more and more is not True):
        return "(~)"
    if more is True or more == {}:
        return NOT_DESCRIBED
    kind = schema.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    is_empty = is_object or more is False or isinstance(schema.get("properties"), Mapping)
    return "()" if is_empty else NOT_DESCRIBED


def format_type(schema: Any, depth: int = 0) -> str:
    """Format the type of a schema as signatures have it: `str`, `"r"|"w"`, `list[int]`, `dict~`."""
    if not isinstance(schema, Mapping):
        return "any"
    if depth > NESTING_LIMIT:
        return "any~"
    if isinstance(values := schema.get("enum"), list):
        shown = "|".join(msgspec.json.encode(value).decode() for value in values[:ENUM_LIMIT])
        return shown + ("|~" if len(values) > ENUM_LIMIT else "")
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(_SHORT.get(str(one), str(one)) for one in kind if one != "null") or "any"
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        named = dict.fromkeys(format_type(one, depth + 1) for one in choices if one != {"type": "null"})
        return "|".join(named) or "any"
    if kind == "array":
        return f"list[{format_type(schema['items'], depth + 1)}]" if "items" in schema else "list"
    if kind == "object":
        return "dict~" if schema.get("properties") else "dict"
    return _SHORT.get(str(kind), "any~" if schema else "any")
