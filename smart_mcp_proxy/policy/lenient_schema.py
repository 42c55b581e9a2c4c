"""Input schemas as servers enforce them: null also where OpenAPI or a default allows it."""

from collections.abc import Mapping
from typing import Any, Final

_NULLABLE: Final = ("nullable", "x-nullable")
"""`x-nullable` extends Swagger 2.0 by it. Source: https://spec.openapis.org/oas/v3.0.3#schema-object"""
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose members are named by the server: `nullable` and `default` are names there, not keywords."""
_UNCHANGED: Final = frozenset({"enum", "const", "default", "example", "examples", "not", "if"})
"""Values, and conditions: allowing more in a condition would refuse more."""
_NOT_ENFORCED: Final = frozenset({"contentEncoding", "contentMediaType"})
"""Like `format` they describe text; draft-07 lets a validator refuse by them, servers do not."""
_COMBINING: Final = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords that may refuse null although `type` allows it."""
_NULL: Final = {"type": "null"}


def lenient_schema(schema: Any) -> Any:
    """The schema with null allowed where `nullable`, `x-nullable` or `default: null` says so; a copy.

    OpenAPI's `nullable` has no effect without `type` beside it, and with an `enum` that lacks null. Servers differ in
    that, and only what a server certainly refuses is refused here: null is allowed in both cases.

    Raises:
        RecursionError: It is nested too deep.
    """
    if isinstance(schema, list):
        return [lenient_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    lenient = {key: _member(key, value) for key, value in schema.items() if key not in _NOT_ENFORCED}
    return _with_null(lenient) if _allows_null(schema) else lenient


def _member(key: str, value: Any) -> Any:
    if key in _UNCHANGED:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: lenient_schema(inner) for name, inner in value.items()}
    return lenient_schema(value)


def _allows_null(schema: Mapping[str, Any]) -> bool:
    if any(schema.get(key) is True for key in _NULLABLE) or ("default" in schema and schema["default"] is None):
        return True
    # Null may meet several branches by now, and `oneOf` asks for exactly one.
    choices = schema.get("oneOf")
    return isinstance(choices, list) and any(isinstance(one, Mapping) and _takes_null(one) for one in choices)


def _takes_null(choice: Mapping[str, Any]) -> bool:
    kind = choice.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind) or _allows_null(choice)


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, which may be changed, for null as well."""
    kind = schema.get("type")
    if isinstance(kind, str | list):
        kinds = [kind] if isinstance(kind, str) else kind
        schema["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if isinstance(values := schema.get("enum"), list) and None not in values:
        schema["enum"] = [*values, None]
    if schema.get("const") is not None:
        schema["anyOf"] = [_NULL, {key: schema.pop(key) for key in ("const", "anyOf") if key in schema}]
    combined = [key for key in _COMBINING if key in schema]
    if combined == ["anyOf"] and isinstance(schema["anyOf"], list):
        schema["anyOf"] = [*schema["anyOf"], _NULL]
    elif combined:
        schema["anyOf"] = [_NULL, {key: schema.pop(key) for key in combined}]
    return schema
