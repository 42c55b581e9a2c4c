"""Arguments against the tool's input schema: checked before anything is sent, harmless where they cannot be."""

import socket
from contextlib import suppress
from typing import Any

import pytest
from gateway_fakes import definition, record_of

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
    "arguments",
    [{"name": "Ann"}, {"name": "Ann", "age": 3, "address": {"zip": "1", "more": 2}, "tags": ["a", "b"]}],
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
