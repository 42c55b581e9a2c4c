"""A tool in one line: types, order of parameters and the first sentence."""

from typing import Any

import pytest

from smart_mcp_proxy.gateway.retrieval.summaries import SENTENCE_LIMIT_CHARS, first_sentence, format_signature

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (STRING, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "any~"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": STRING}, "list[str]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "list[list[int]]"),
        ({"type": "object"}, "dict"),
        ({"type": "object", "properties": {"a": STRING}}, "dict~"),
        ({"type": "array", "items": {"type": "object", "properties": {"a": STRING}}}, "list[dict~]"),
        ({"enum": ["r", "w"]}, '"r"|"w"'),
        ({"type": "string", "enum": ["r"]}, '"r"'),
        ({"enum": [1, None, True, 'say "x"']}, '1|null|true|"say \\"x\\""'),
        ({"enum": list("abcdefg")}, '"a"|"b"|"c"|"d"|"e"|~'),
        ({"type": ["string", "null"]}, "str"),
        ({"type": ["string", "integer"]}, "str|int"),
        ({"type": ["null"]}, "any"),
        ({"anyOf": [STRING, {"type": "null"}]}, "str"),
        ({"oneOf": [STRING, {"type": "integer"}, STRING]}, "str|int"),
        ({"anyOf": [{"type": "null"}]}, "any"),
        ({"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]}, "list[str]"),
        ({"$ref": "#/$defs/x"}, "any~"),
        ({"allOf": [STRING]}, "any~"),
        ({}, "any"),
        (True, "any"),
        (None, "any"),
        ({"type": {"odd": 1}}, "any~"),
    ],
    ids=str,
)
def test_a_parameters_type(schema: Any, shown: str) -> None:
    """Short where it is simple; a tilde where the schema holds more."""
    assert format_signature({"properties": {"p": schema}}) == f"(p?:{shown})"


def test_required_parameters_come_first_and_without_a_question_mark() -> None:
    """In the order the server demands them, then the optional ones in theirs."""
    schema = {"properties": {"a": STRING, "b": STRING, "c": STRING}, "required": ["c", "b", "missing"]}
    assert format_signature(schema) == "(c:str, b:str, a?:str)"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"properties": {}},
        {"type": "object", "properties": {}, "additionalProperties": False},
        {"additionalProperties": False},
        {"type": ["object", "null"], "required": []},
        {"type": "object", "properties": []},
    ],
    ids=str,
)
def test_a_tool_without_parameters(schema: Any) -> None:
    """The schema says that there is none, or is of an object of which nothing is said."""
    assert format_signature(schema) == "()"


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {},
        {"description": "Arguments", "title": "X"},
        {"properties": None},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {}, "additionalProperties": {}},
        True,
        None,
    ],
    ids=str,
)
def test_a_schema_that_says_nothing_is_not_one_without_parameters(schema: Any) -> None:
    """The tool may well take some, and they are passed on."""
    assert format_signature(schema) == "(parameters not described)"


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"properties": {"a": STRING}}, {"properties": {"b": STRING}}]},
        {"type": "object", "anyOf": [{"required": ["a"]}]},
        {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": STRING}}}},
        {"type": "object", "patternProperties": {"^x-": STRING}},
        {"type": "object", "additionalProperties": STRING},
    ],
    ids=str,
)
def test_parameters_that_stand_elsewhere_in_the_schema_are_marked(schema: Any) -> None:
    """By the tilde that says that describe_tool has more."""
    assert format_signature(schema) == "(~)"


def test_required_parameters_without_a_description_are_named() -> None:
    """Their names are all that the schema says."""
    assert format_signature({"type": "object", "required": ["title"]}) == "(title:any)"


@pytest.mark.parametrize("required", [None, "a", True, {"a": 1}, [{"a": 1}], [["a"]], [1, None]], ids=repr)
def test_an_odd_list_of_required_parameters_costs_only_itself(required: Any) -> None:
    """One tool's mistake must not spoil the answer that it stands in."""
    assert format_signature({"properties": {"a": STRING}, "required": required}) == "(a?:str)"


def test_a_parameter_required_twice_is_shown_once() -> None:
    """As it is passed once."""
    assert format_signature({"properties": {"a": STRING}, "required": ["a", "a"]}) == "(a:str)"


def test_deep_nesting_ends_in_a_tilde() -> None:
    """Neither the line nor the stack grows with the schema's depth."""
    schema: dict[str, Any] = STRING
    for _ in range(900):
        schema = {"type": "array", "items": schema}
    assert format_signature({"properties": {"a": schema}}) == "(a?:list[list[list[list[any~]]]])"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Reads a file. Then closes it.", "Reads a file."),
        ("Reads a file", "Reads a file"),
        ("  Reads\n  a file! More", "Reads a file!"),
        ("Is it there? Say so.", "Is it there?"),
        ("Version 1.5 of it. More", "Version 1.5 of it."),
        ("A heading\n\nThe text.", "A heading"),
        ("读取文件。然后关闭它。", "读取文件。"),
        ("ファイルを読む\uff01次に閉じる。", "ファイルを読む\uff01"),
        ("有吗\uff1f有。", "有吗\uff1f"),
        ("", ""),
        ("  \n\n ", ""),
    ],
)
def test_the_first_sentence(text: str, sentence: str) -> None:
    """On one line, in Latin and CJK scripts."""
    assert first_sentence(text) == sentence


def test_a_long_sentence_ends_in_an_ellipsis() -> None:
    """At most 200 characters."""
    assert first_sentence("a" * 200) == "a" * 200
    cut = first_sentence("word " * 100)
    assert len(cut) <= SENTENCE_LIMIT_CHARS == 200
    assert cut.endswith("word…")
