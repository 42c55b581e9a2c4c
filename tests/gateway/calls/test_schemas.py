"""Arguments against the tool's input schema: checked before anything is sent, harmless where they cannot be."""

import socket
from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
from gateway_fakes import definition, record_of
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls import gates as gates_module
from smart_mcp_proxy.gateway.calls.gates import ArgumentSchemas

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "address": {"type": "object", "properties": {"zip": {"type": "string"}}},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def check(schema: Any, arguments: dict[str, Any]) -> None:
    """Checks once, by a tool with this schema."""
    ArgumentSchemas().check(record_of(definition("save", inputSchema=schema)), arguments)


@pytest.mark.parametrize(
    "arguments", [{"name": "Ann"}, {"name": "Ann", "age": 3, "address": {"zip": "1", "more": 2}, "tags": ["a", "b"]}]
)
def test_fitting_arguments_pass(arguments: dict[str, Any]) -> None:
    """With and without optional ones."""
    check(PERSON, arguments)


@pytest.mark.parametrize(
    ("arguments", "path", "word"),
    [
        ({}, "", "name"),
        ({"name": 5}, "name", "5"),
        ({"name": "Ann", "age": -1}, "age", "-1"),
        ({"name": "Ann", "address": {"zip": 7}}, "address/zip", "7"),
        ({"name": "Ann", "tags": ["a", "c"]}, "tags/1", "c"),
        ({"name": "Ann", "colour": "red"}, "", "colour"),
    ],
)
def test_arguments_that_do_not_fit_say_where_and_why(arguments: dict[str, Any], path: str, word: str) -> None:
    """Path, value and the whole schema: enough to repair the call without another question."""
    with pytest.raises(RequestError) as caught:
        check(PERSON, arguments)
    error = caught.value
    assert (error.error_code, error.delivery) == ("invalid_arguments", "not_sent")
    assert error.data == {"path": path, "input_schema": PERSON}
    assert "'alpha:save'" in error.message
    assert word in error.message


TEXT = {"type": "string"}
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def holding(inner: Any, **beside: Any) -> dict[str, Any]:
    """The schema of a tool with one parameter `a`."""
    return {"type": "object", "properties": {"a": inner}, **beside}


ALLOWS_NULL: dict[str, Any] = {
    "nullable": TEXT | {"nullable": True},
    "x-nullable": TEXT | {"x-nullable": True},
    "default null": TEXT | {"default": None},
    "with an enum": TEXT | {"enum": ["b", "c"], "nullable": True},
    "with a const": TEXT | {"const": "b", "nullable": True},
    "several types": {"type": ["string", "integer"], "nullable": True},
    "beside a reference": {"$ref": "#/$defs/text", "nullable": True},
    "beside allOf": {"allOf": [TEXT], "default": None},
    "beside anyOf": {"anyOf": [TEXT, {"type": "integer"}], "x-nullable": True},
    "beside oneOf": {"oneOf": [TEXT, {"type": "integer"}], "nullable": True},
    "a reference to it": {"$ref": "#/$defs/perhaps"},
    "a reference into OpenAPI's own place": {"$ref": "#/components/schemas/perhaps"},
    "a branch of anyOf": {"anyOf": [TEXT | {"nullable": True}, {"type": "integer"}]},
    "two branches of oneOf": {"oneOf": [TEXT | {"nullable": True}, {"type": "integer", "nullable": True}]},
    "a branch of oneOf beside null": {"oneOf": [{"$ref": "#/$defs/perhaps"}, {"type": "null"}]},
    "a part of allOf": {"allOf": [TEXT | {"default": None}]},
}


@pytest.mark.parametrize("draft", [None, DRAFT_07, "http://json-schema.org/draft-04/schema#"])
@pytest.mark.parametrize("inner", ALLOWS_NULL.values(), ids=ALLOWS_NULL)
def test_null_passes_where_the_server_says_that_it_may(inner: Any, draft: str | None) -> None:
    """In OpenAPI's words or by its own default, however deep; what is neither null nor fits stays refused."""
    perhaps = TEXT | {"nullable": True}
    beside = {
        "$defs": {"text": TEXT, "perhaps": perhaps, "list": {"type": "array", "items": inner}},
        "components": {"schemas": {"perhaps": perhaps}},
        **({"$schema": draft} if draft is not None else {}),
    }
    for place, nest in (
        (inner, lambda value: value),
        ({"type": "array", "items": inner}, lambda value: [value]),
        ({"type": "object", "additionalProperties": inner}, lambda value: {"b": value}),
        ({"$ref": "#/$defs/list"}, lambda value: [value]),
    ):
        schema = holding(place, **beside)
        check(schema, {"a": nest(None)})
        check(schema, {"a": nest("b")})
        with pytest.raises(RequestError):
            check(schema, {"a": nest(False)})


@pytest.mark.parametrize(
    "inner",
    [
        TEXT | {"nullable": False},
        TEXT | {"default": "b"},
        {"type": "object", "properties": {"nullable": TEXT, "default": TEXT}},
        {"enum": ["b"], "examples": [{"nullable": True}]},
    ],
    ids=repr,
)
def test_null_stays_refused_where_nothing_allows_it(inner: Any) -> None:
    """A parameter may be called nullable or default, and an example may look like a schema."""
    with pytest.raises(RequestError):
        check(holding(inner), {"a": None})


@pytest.mark.parametrize("draft", [None, DRAFT_07, "http://json-schema.org/draft-04/schema#"])
@pytest.mark.parametrize(
    "words",
    [{"format": name} for name in ("uri", "date-time", "email", "ipv4", "uuid", "regex")]
    + [{"contentEncoding": "base64"}, {"contentMediaType": "application/json"}],
    ids=repr,
)
def test_what_describes_a_text_is_never_a_reason(words: dict[str, Any], draft: str | None) -> None:
    """Servers read formats in their own ways, "tomorrow" for a date among them."""
    beside = {"$schema": draft} if draft is not None else {}
    check(holding(TEXT | words, **beside), {"a": "[tomorrow"})


def test_arguments_reach_the_server_as_they_were_sent() -> None:
    """The check converts nothing and leaves nothing out, and the schema that is told is the server's own."""
    arguments = {"a": None, "b": "5"}
    schema = holding(TEXT | {"nullable": True}, required=["c"])
    with pytest.raises(RequestError) as caught:
        check(schema, arguments)
    assert arguments == {"a": None, "b": "5"}
    assert caught.value.data == {"path": "", "input_schema": schema}


LEAVES = st.sampled_from([TEXT, {"type": "null"}, {"type": "integer"}, {"enum": ["b", None]}, {"const": None}])
COMBINING = st.sampled_from(["anyOf", "oneOf", "allOf"])
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda one: one | {"nullable": True}, inner),
        st.builds(lambda one: one | {"default": None}, inner),
        st.builds(lambda key, some: {key: some}, COMBINING, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: {"type": "array", "items": one}, inner),
    ),
    max_leaves=6,
)


@given(inner=SCHEMAS, value=st.sampled_from([None, "b", 5, [], [None], ["b"], [[None]]]))
def test_nothing_is_refused_that_json_schema_accepts(inner: Any, value: Any) -> None:
    """Nullable adds null, and takes nothing away."""
    if jsonschema_rs.is_valid(holding(inner), {"a": value}):
        check(holding(inner), {"a": value})


def test_a_long_value_does_not_fill_the_message() -> None:
    """The agent knows what it sent."""
    with pytest.raises(RequestError) as caught:
        check(PERSON, {"name": "Ann", "age": "x" * 10_000})
    assert len(caught.value.message) < 500


def test_draft_07_is_read_as_draft_07() -> None:
    """A list under `items` means positions there, `definitions` is where its references point."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}, {"$ref": "#/definitions/n"}]}},
        "definitions": {"n": {"type": "integer"}},
    }
    check(schema, {"pair": ["a", 1]})
    with pytest.raises(RequestError) as caught:
        check(schema, {"pair": ["a", "b"]})
    assert caught.value.data is not None
    assert caught.value.data["path"] == "pair/1"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "required": "name"},
        {"type": "object", "properties": {"a": {"pattern": "["}}},
        {"type": "object", "properties": 5},
        {"$ref": "#/$defs/missing"},
        {"$schema": "urn:of-nobody", "type": "object", "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": 5}},
        None,
        [1],
        "text",
    ],
    ids=repr,
)
def test_a_schema_that_is_none_refuses_nothing(schema: Any) -> None:
    """The upstream is the judge of its own arguments."""
    check(schema, {"a": 1})


def test_a_schema_may_point_into_itself() -> None:
    """A tree of itself is checked to its depth."""
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer"}},
    }
    check(tree, {"n": 1, "children": [{"n": 2, "children": []}]})
    with pytest.raises(RequestError) as caught:
        check(tree, {"children": [{"children": [{"n": "deep"}]}]})
    assert caught.value.data is not None
    assert caught.value.data["path"] == "children/0/children/0/n"


def test_a_reference_elsewhere_is_never_fetched() -> None:
    """Nobody connects to where it points, and the call is not held up by it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = {"type": "object", "properties": {"a": {"$ref": address}}}
        check(schema, {"a": 1})
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_pattern_that_backtracks_without_end_costs_little() -> None:
    """A server writes the pattern and an agent the text: together they must not hold everybody up."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^((a|a)+)\1$"}}}
    with suppress(RequestError):  # a matcher that goes back through all ways would not end within a day
        check(schema, {"a": "a" * 41})


def test_numbers_of_any_size_are_checked() -> None:
    """Beyond 64 bits and beyond floats."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    check(schema, {"n": 10**30})
    with pytest.raises(RequestError):
        check(schema, {"n": "many"})


def test_a_changed_definition_is_checked_by_its_new_schema() -> None:
    """Validators go by the definition, not by the name."""
    schemas = ArgumentSchemas()
    schemas.check(record_of(definition("save")), {"anything": 1})
    with pytest.raises(RequestError):
        schemas.check(record_of(definition("save", inputSchema=PERSON)), {})


def test_forgotten_validators_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number kept is bounded; what falls out is only slower."""
    monkeypatch.setattr(gates_module, "KEPT_VALIDATORS", 2)
    schemas = ArgumentSchemas()
    records = [record_of(definition(f"save{n}", inputSchema=PERSON)) for n in range(4)]
    for record in (*records, *records):
        with pytest.raises(RequestError):
            schemas.check(record, {})
