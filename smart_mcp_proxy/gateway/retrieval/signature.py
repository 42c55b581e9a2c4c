"""A tool in one line: its parameters and the first sentence of its description."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

SENTENCE_LIMIT_CHARS = 200
SIGNATURE_LIMIT_CHARS = 1_000
"""Of 4,975 real tools one is longer; an answer must not be one tool."""
NOT_DESCRIBED = "(parameters not described)"
"""Of a schema that says nothing about them: the tool may well take some."""
ENUM_LIMIT = 5
NESTING_LIMIT = 3
_ELSEWHERE = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
"""Keywords behind which parameters may stand."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
"""Latin and CJK sentence ends, or an empty line."""
_SHORT = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}


def first_sentence(text: str) -> str:
    """The first sentence of `text` on one line, at most 200 characters; a cut is marked with an ellipsis."""
    sentence = " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())
    return sentence if len(sentence) <= SENTENCE_LIMIT_CHARS else sentence[: SENTENCE_LIMIT_CHARS - 1].rstrip() + "…"


def format_signature(schema: Any) -> str:
    """`(path:str, mode?:"r"|"w", tags?:list[str])`: required parameters first, optional ones with a `?`.

    A `~` behind a type, or alone, says that the schema holds more than is shown; describe_tool has it whole.
    """
    if not isinstance(schema, Mapping):
        return NOT_DESCRIBED
    listed, required = schema.get("properties"), schema.get("required")
    properties: Mapping[str, Any] = listed if isinstance(listed, Mapping) else {}
    stated = dict.fromkeys(name for name in required if isinstance(name, str)) if isinstance(required, list) else {}
    needed = [name for name in stated if name in properties or not properties]
    optional = [name for name in properties if name not in needed]
    parts = [f"{name}:{_format_type(properties.get(name))}" for name in needed]
    parts += [f"{name}?:{_format_type(properties[name])}" for name in optional]
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


def _format_type(schema: Any, depth: int = 0) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if depth > NESTING_LIMIT:
        return "any~"
    if isinstance(values := schema.get("enum"), list):
        shown = "|".join(_literal(value) for value in values[:ENUM_LIMIT])
        return shown + ("|~" if len(values) > ENUM_LIMIT else "")
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(_SHORT.get(str(one), str(one)) for one in kind if one != "null") or "any"
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        named = dict.fromkeys(_format_type(one, depth + 1) for one in choices if one != {"type": "null"})
        return "|".join(named) or "any"
    if kind == "array":
        return f"list[{_format_type(schema['items'], depth + 1)}]" if "items" in schema else "list"
    if kind == "object":
        return "dict~" if schema.get("properties") else "dict"
    return _SHORT.get(str(kind), "any~" if schema else "any")


def _literal(value: Any) -> str:
    return msgspec.json.encode(value).decode()
