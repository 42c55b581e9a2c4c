"""Output schemas that the TypeScript SDK 1.x cannot compile; each was tried there (ajv 8.20, SDK 1.32.2)."""

from typing import Any

import pytest
from growth import calls_of

from smart_mcp_proxy.gateway.shared.output_schemas import fit_to_handshake, why_uncompilable

IDS = {"$id": "https://e.example/a", "type": "object"}


def holding(schema: Any) -> dict[str, Any]:
    """An output schema with one property."""
    return {"type": "object", "properties": {"n": schema}}


REFUSED: dict[str, tuple[Any, str]] = {
    "draft-04 bound": ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "'exclusiveMinimum'"),
    "draft-04 maximum": ({"type": "number", "exclusiveMaximum": False}, "'exclusiveMaximum'"),
    "draft-03 required": ({"type": "string", "required": True}, "'required'"),
    "text for a number": ({"maxLength": "5"}, "'maxLength'"),
    "null for a keyword": ({"type": "string", "format": None}, "'format'"),
    "nullable alone": ({"nullable": True}, "'nullable' without 'type'"),
    "nullable beside a reference": ({"$ref": "#", "nullable": True}, "'nullable' without 'type'"),
    "not nullable": ({"type": ["string", "null"], "nullable": False}, "contradicts"),
    "any": ({"type": "any"}, "'type' is none of JSON's"),
    "null as a value": ({"type": ["string", None]}, "'type' is none of JSON's"),
    "empty enum": ({"enum": []}, "'enum' is empty"),
    "id of draft-04": ({"id": "x", "type": "string"}, "'$id'"),
    "Python's end": ({"pattern": "a\\Z"}, "pattern 'a\\\\Z'"),
    "Python's group": ({"pattern": "(?P<n>a)"}, "is none of ECMAScript's"),
    "needless escape": ({"pattern": "^\\@"}, "is none of ECMAScript's"),
    "pattern of a name": ({"patternProperties": {"(?i)x": {}}}, "is none of ECMAScript's"),
    "nowhere": ({"$ref": "#/definitions/none"}, "'#/definitions/none' leads nowhere"),
    "no anchor": ({"$ref": "#none"}, "leads nowhere"),
    "remote": ({"$ref": "https://e.example/a.json"}, "leads nowhere"),
    "inside": ({"items": {"anyOf": [{"not": {"nullable": True}}]}}, "'nullable' without 'type'"),
    "two of one id": ({"anyOf": [IDS, {**IDS, "title": "b"}]}, "stands for two schemas"),
    "no anchor's name": ({"$anchor": "a b"}, "'$anchor'"),
    "no number": ({"$ref": "#/properties/n/anyOf/\u00b2", "anyOf": [{}]}, "leads nowhere"),
    "no number, quoted": ({"$ref": "#/properties/n/anyOf/%C2%B2", "anyOf": [{}]}, "leads nowhere"),
    "other digits": ({"$ref": "#/properties/n/anyOf/\u0660", "anyOf": [{}]}, "leads nowhere"),
    "zeros in front": ({"$ref": "#/properties/n/anyOf/00", "anyOf": [{}]}, "leads nowhere"),
    "long index": ({"$ref": "#/properties/n/anyOf/" + "9" * 5_000, "anyOf": [{}]}, "leads nowhere"),
    "long most": ({"pattern": "a{1," + "9" * 5_000 + "}"}, "counts further than nine digits go"),
    "long least": ({"pattern": "a{" + "1" * 5_000 + ",}"}, "counts further than nine digits go"),
    "long count": ({"patternProperties": {"a{" + "1" * 5_000 + "}": {}}}, "counts further than nine digits go"),
    "null for a schema": ({"properties": {"a": None}}, "a schema in it is no object"),
}
TAKEN: dict[str, Any] = {
    "nothing": {},
    "nullable": {"type": "string", "nullable": True},
    "bounds": {"type": "number", "minimum": 0, "exclusiveMaximum": 5},
    "reference": {"$ref": "#"},
    "escaped reference": {"$ref": "#/properties/n/a~1b%20c", "a/b c": {"type": "string"}},
    "index": {"$ref": "#/properties/n/anyOf/0", "anyOf": [{"type": "string"}]},
    "anchor": {"anyOf": [{"$anchor": "here"}, {"$ref": "#here"}]},
    "draft-07": {"$ref": "http://json-schema.org/draft-07/schema#"},
    "format": {"format": "no-such-format"},
    "a property called $id": {"type": "object", "properties": {"$id": {"type": "string"}, "nullable": True, "id": {}}},
    "dependencies": {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
    "tuple": {"prefixItems": [{}], "items": False, "unevaluatedProperties": False},
    "newer dialect": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_such_a_client_cannot_compile_is_left_out(fault: str) -> None:
    """With the cause for people; the rest of the definition stays."""
    schema, cause = REFUSED[fault]
    assert cause in why_uncompilable(holding(schema))
    definition = {"name": "t", "inputSchema": {}, "outputSchema": holding(schema)}
    assert fit_to_handshake(definition) == {"name": "t", "inputSchema": {}}


@pytest.mark.parametrize("kind", TAKEN)
def test_what_it_can_compile_is_kept(kind: str) -> None:
    """Whatever dialect it names."""
    assert why_uncompilable(holding(TAKEN[kind])) == ""
    definition = {"name": "t", "outputSchema": holding(TAKEN[kind])}
    assert fit_to_handshake(definition) is definition


def test_a_schema_without_end_is_left_out() -> None:
    """Nested deeper than anybody reads."""
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    assert why_uncompilable(schema) == "it is nested too deep"


@pytest.mark.parametrize("name", ["https://e.example/{}", "#n{}", "https://e.example/root#n{}"])
def test_references_to_names_cost_what_the_schema_is_long(name: str) -> None:
    """Not its square: the names are collected once."""

    def calls(count: int) -> int:
        names = [name.format(number) for number in range(count)]
        defined = [{"$id": each, "$anchor": each.partition("#")[2] or "a"} for each in names]
        schema = {"$id": "https://e.example/root", "anyOf": [*defined, *({"$ref": each} for each in names)]}
        assert why_uncompilable(schema) == ""
        return calls_of(lambda: why_uncompilable(schema))

    assert calls(400) < 2.2 * calls(200)


PATTERNS = [
    r"^\d{4}-\d{2}$", r"[\w.+-]+@[\w-]+\.\w+", r"(?<!a)b(?=c)", r"(?<n>a)\k<n>", r"(a)\1", r"\u{1F600}", r"\p{Lu}",
    r"\p{Script=Han}", r"[\b\-]", r"[^]", r"[]", "a|b|", "[a-z-]", r"\/", r"a{1,2}?", "[😀-😎]", "a{3,}", r"\cA\x41\0",
]  # fmt: skip
NO_PATTERNS = [
    r"\Z", r"\A", "(?P<n>a)", "(?i)a", "a++", r"[\w-z]", r"\-", "{", "a{2,1}", "}", "]", r"\p{Han}", r"\pL", r"\1",
    r"\k<n>", "(?=a)*", r"\xg", r"\01", "[b-a]", "(", "a)", "*a", "^*", "(?>a)", r"\h", "(?<n>a)(?<n>b)", r"[\B]", "\\",
    "[a", r"\u12", r"\c1", "x{,3}", r"[\p{L}-z]", "(?i:a)", "(?<n>a)|(?<n>b)", "a|" * 1_001,
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_ecmascript_is_one(pattern: str) -> None:
    """As `new RegExp(pattern, "u")` has it."""
    assert why_uncompilable({"pattern": pattern}) == ""


@pytest.mark.parametrize("pattern", NO_PATTERNS)
def test_what_ecmascript_refuses_is_no_pattern(pattern: str) -> None:
    """Python, and ECMAScript without the flag, take some of them."""
    assert "none of ECMAScript" in why_uncompilable({"pattern": pattern})
