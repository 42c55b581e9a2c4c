"""Output schemas that clients of the handshake era cannot compile, and refuse the whole list for.

The TypeScript SDK 1.x compiles each as draft-07 while it lists, with ajv 8, `strict: false`, `validateSchema: false`.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

import regress

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_SCHEMA: Final = (dict, bool)
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("additionalItems", "contains", "propertyNames", "additionalProperties", "not"), _SCHEMA),
    **dict.fromkeys(("if", "then", "else"), _SCHEMA),
    "items": (dict, bool, list),
    **dict.fromkeys(("dependencies", "properties", "patternProperties"), (dict,)),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "required", "enum"), (list,)),
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"), (int, float)),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), (int, float)),
    **dict.fromkeys(("pattern", "format", "$ref"), (str,)),
    "uniqueItems": (bool,),
    "nullable": (bool,),
    "type": (str, list),
}
"""The type of each keyword's value. Source: https://github.com/ajv-validator/ajv/tree/master/lib/vocabularies"""
_ONE: Final = ("additionalItems", "contains", "propertyNames", "additionalProperties", "not", "if", "then", "else")
_MANY: Final = ("properties", "patternProperties", "dependencies", "definitions", "$defs")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_ANCHOR: Final = r"[A-Za-z_][-A-Za-z0-9._]*"
_INDEX: Final = r"0|[1-9][0-9]{0,8}"
_LONG_COUNT: Final = r"\{[0-9]*,?[0-9]{10}"
"""Nothing matches so often; V8 counts up to a limit, Python's clients raise `OverflowError` when they validate."""
_LONGEST_PATTERN: Final = 2_000
"""The reader of patterns recurses; a thread's stack holds twice as long ones, of whatever form."""
_NEWER_SYNTAX: Final = r"(?s)\(\?[ims-]+:|\(\?<(\w+)>.*\(\?<\1>"
"""Flags of a group and a name that is used twice: ES2025, which most clients do not know yet."""
_DRAFT_07: Final = "http://json-schema.org/draft-07/schema"


class _CompileError(Exception):
    """The schema cannot be compiled: the cause, as the rest of a sentence."""


def why_uncompilable(schema: object) -> str:
    """Why such a client cannot compile an output schema, as the rest of a sentence; empty where it can.

    Rather too much than too little: without its output schema a tool can be called all the same.
    """
    if not isinstance(schema, dict):
        return ""  # it is not shown in any case
    try:
        named = _collect_reference_names(schema)
        for each in _schemas(schema):
            _check(each, schema, named)
    except _CompileError as fault:
        return str(fault)
    except RecursionError:
        return "it is nested too deep"
    return ""


def fit_to_handshake(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without an output schema that is no object or cannot be compiled.

    Clients of that era refuse the whole list for it.

    The 2026-07-28 revision allows any schema.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
    """
    schema = definition.get("outputSchema")
    is_object = isinstance(schema, dict) and schema.get("type") == "object"
    if "outputSchema" not in definition or (is_object and not why_uncompilable(schema)):
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all inside of it."""
    if schema is None or isinstance(schema, list):
        raise _CompileError("a schema in it is no object")
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in _ONE:
        if isinstance(inner := schema.get(keyword), dict):
            yield from _schemas(inner)
    for keyword in _MANY:
        if isinstance(inner := schema.get(keyword), dict):
            # A dependency may be a list of names.
            found = (each for each in inner.values() if keyword != "dependencies" or not isinstance(each, list))
            yield from chain.from_iterable(map(_schemas, found))
    for keyword in (*_LISTS, "items"):
        inner = schema.get(keyword)
        listed = inner if isinstance(inner, list) else [inner] if isinstance(inner, dict) else []
        yield from chain.from_iterable(map(_schemas, listed))


def _check(schema: Mapping[str, Any], root: Mapping[str, Any], named: frozenset[str]) -> None:
    for keyword, value in schema.items():
        if keyword in _KINDS and not _has_json_type(value, _KINDS[keyword]):
            raise _CompileError(f"its {keyword!r} has a value of another type than draft-07 knows")
    _check_type(schema)
    if schema.get("enum") == []:
        raise _CompileError("its 'enum' is empty")
    if isinstance(schema.get("id"), str):
        raise _CompileError("it has an 'id', which draft-07 calls '$id'")
    for pattern in (schema.get("pattern"), *(schema.get("patternProperties") or ())):
        if isinstance(pattern, str):
            _check_pattern(pattern)
    if isinstance(ref := schema.get("$ref"), str) and not _resolves(ref, root, named):
        raise _CompileError(f"its reference {ref[:80]!r} leads nowhere")


def _check_pattern(pattern: str) -> None:
    if re.search(_LONG_COUNT, pattern):
        raise _CompileError(f"its pattern {pattern[:80]!r} counts further than nine digits go")
    if not _is_ecma_pattern(pattern):
        raise _CompileError(f"its pattern {pattern[:80]!r} is none of ECMAScript's")


def _is_ecma_pattern(pattern: str) -> bool:
    """Whether `new RegExp(pattern, "u")` takes it, in any release of Node that clients run on."""
    if len(pattern) > _LONGEST_PATTERN or re.search(_NEWER_SYNTAX, pattern):
        return False
    try:
        regress.Regex(pattern, "u")
    except regress.RegressError:
        return False
    return True


def _has_json_type(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _check_type(schema: Mapping[str, Any]) -> None:
    written = schema.get("type", [])
    named = written if isinstance(written, list) else [written]
    if not all(isinstance(name, str) and name in _TYPES for name in named):
        raise _CompileError("its 'type' is none of JSON's")
    if "nullable" in schema and not named:
        raise _CompileError("it has 'nullable' without 'type'")
    if schema.get("nullable") is False and "null" in named:
        raise _CompileError("its 'nullable' contradicts its 'type'")


def _resolves(ref: str, root: Mapping[str, Any], named: frozenset[str]) -> bool:
    """Whether a reference leads to a schema inside `root`, to a name in it, or to draft-07 itself."""
    base, _, fragment = ref.partition("#")
    if base == _DRAFT_07:
        return not fragment
    own = root.get("$id")
    if base and not (isinstance(own, str) and base == own.rstrip("#")):
        return ref in named
    if fragment and not fragment.startswith("/"):
        return f"#{fragment}" in named
    place: Any = root
    for part in fragment.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and re.fullmatch(_INDEX, name) and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, dict) and name in place:
            place = place[name]
        else:
            return False
    return isinstance(place, dict | bool)


def _iterate_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Everything in a schema that may have an id or an anchor."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _iterate_objects(inner)


def _collect_reference_names(schema: dict[str, Any]) -> frozenset[str]:
    """Collect the references that ids and anchors in a schema make good.

    Raises:
        _CompileError: One of them is none, or stands for two schemas.
    """
    seen: dict[str, Any] = {}
    named = set[str]()
    for inner in _iterate_objects(schema):
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := inner.get(keyword), str) and not re.fullmatch(_ANCHOR, anchor):
                raise _CompileError(f"its '{keyword}' {anchor[:80]!r} is no name")
        name = inner.get("$id")
        if not isinstance(name, str | dict | None):  # a property may be called so
            raise _CompileError("its '$id' is no text")
        if isinstance(name, str) and seen.setdefault(name.rstrip("#"), inner) != inner:
            raise _CompileError(f"its '$id' {name[:80]!r} stands for two schemas")
        if inner is not schema and isinstance(anchor := inner.get("$anchor"), str):
            named.add(f"#{anchor}")
        if isinstance(name, str) and (inner is not schema or not name.startswith("#")):
            named.add(name)
    return frozenset(named)
