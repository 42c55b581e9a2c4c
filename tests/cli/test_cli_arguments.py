"""`key=value` read as a tool's schema asks for, and results shown to people."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.cli.commands.catalog.call import result_lines
from smart_mcp_proxy.cli.support.arguments import coerce, parse_json_object, parse_pairs
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import clean
from smart_mcp_proxy.cli.support.render import hits_table, tokens_line

SCHEMA: dict[str, Any] = {
    "$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "options": {"type": "object"},
        "maybe": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "linked": {"$ref": "#/$defs/Count"},
        "loop": {"$ref": "#/$defs/Loop"},
        "away": {"$ref": "https://example.com/schema"},
        "choice": {"enum": ["1", "2"]},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=12", "12"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("count=-3", -3),
        ("ratio=2", 2),
        ("ratio=0.5", 0.5),
        ("flag=true", True),
        ("flag=False", False),
        ('items=["a", 1]', ["a", 1]),
        ('options={"a": null}', {"a": None}),
        ("maybe=null", None),
        ("maybe=4", 4),
        ("either=4", 4),
        ("either=four", "four"),
        ('either={"a": 1}', '{"a": 1}'),
        ("linked=7", 7),
        ("loop=7", "7"),
        ("away=7", "7"),
        ("choice=1", "1"),
        ("odd=7", "7"),
        ("unknown=7", "7"),
    ],
)
def test_a_value_becomes_what_its_schema_asks_for(word: str, value: object) -> None:
    """Types are taken from the schema; where it names none, text stays text."""
    read = coerce(parse_pairs([word]), SCHEMA)[word.partition("=")[0]]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("count=1.5", "an integer"),
        ("count=true", "an integer"),
        ("count=", "an integer"),
        ("ratio=NaN", "a number"),
        ("flag=1", "true or false"),
        ("items=a", "a JSON array"),
        ("options=[]", "a JSON object"),
        ("maybe=x", "an integer or null"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_does(word: str, expected: str) -> None:
    """The hint names every type the parameter takes."""
    with pytest.raises(UsageError) as caught:
        coerce(parse_pairs([word]), SCHEMA)
    assert caught.value.hint == f"Expected {expected}."


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": {"a": None}}])
def test_a_schema_that_says_nothing_leaves_text(schema: dict[str, Any]) -> None:
    """A missing or odd schema is no reason to fail."""
    assert coerce({"a": "1"}, schema) == {"a": "1"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
@pytest.mark.long  # many generated examples
def test_any_json_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    """--input-json changes nothing."""
    assert parse_json_object(json.dumps(value)) == value


def test_a_result_is_shown_block_by_block() -> None:
    """Text is printed, other blocks are described, structured content is printed once."""
    structured = {"answer": 42}
    result = {
        "content": [
            {"type": "text", "text": json.dumps(structured)},
            {"type": "text", "text": "more\x1b[31m"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAAAAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ],
        "structuredContent": structured,
    }
    assert list(result_lines(result)) == [
        "more\N{REPLACEMENT CHARACTER}[31m",
        "[image image/png 3 bytes]",
        "[resource file:///a.txt text/plain: inside]",
        "[resource file:///b 6 bytes]",
        "[resource_link file:///c]",
        '{\n  "answer": 42\n}',
    ]
    assert list(result_lines({"content": [], "structuredContent": None})) == []


@given(st.text())
def test_shown_text_cannot_command_a_terminal(text: str) -> None:
    """No control character but tab and newline passes, and nothing else is touched."""
    shown = clean(text)
    assert len(shown) == len(text)
    assert not any((ord(one) < 32 and one not in "\t\n") or 127 <= ord(one) < 160 for one in shown)
    assert all(one in (other, "\N{REPLACEMENT CHARACTER}") for one, other in zip(shown, text, strict=True))


def test_the_token_line_is_labelled_an_estimate_and_never_claims_a_loss_as_a_saving() -> None:
    """An answer that is larger than the catalog shows no percentage."""
    assert "(99.2% less, estimate: UTF-8 bytes / 4)" in tokens_line({"tokens": {"catalog": 38_100, "sent": 310}})
    assert "(estimate: UTF-8 bytes / 4)" in tokens_line({"tokens": {"catalog": 100, "sent": 310}})


def test_the_reason_of_a_hit_is_put_in_words() -> None:
    """Exact names, matched words by field and clones are told."""
    why = {"exact": "a:b", "matched": {"name": ["create", "issue"]}, "clones": ["c:b"]}
    table = hits_table({"tools": [{"name": "a:b", "server": "a", "score": 1.0, "why": why}]}, is_explained=True)
    assert table.rows[0][1].plain == "b"
    assert table.rows[0][4].plain == "same as: c:b · exact name: a:b · name: create, issue"
