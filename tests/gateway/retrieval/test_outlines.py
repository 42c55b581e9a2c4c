"""Outlines of large definitions, and what a path opens of them."""

import json
from typing import Any

import pytest

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.retrieval.outlines import OUTLINED_BYTES, open_part, outline_definition

LONG = "How it is meant, in many words. " * 200
TARGET = {"type": "object", "properties": {"host": {"type": "string", "description": LONG}}, "required": ["host"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": LONG},
        "config": {
            "type": "object",
            "description": LONG,
            "properties": {
                "retries": {"type": "integer", "description": LONG},
                "targets": {"type": "array", "items": {"$ref": "#/$defs/Target"}},
                "mode": {"enum": ["fast", "safe"]},
            },
            "required": ["targets"],
        },
    },
    "required": ["query"],
    "$defs": {"Target": TARGET},
}
DESCRIBED = {"name": "s:run", "description": "Runs.", "input_schema": SCHEMA, "call_with": "call_tool_write"}
OUTLINE = {"query": "str", "config?": {"retries?": "int", "targets": [{"host": "str"}], "mode?": '"fast"|"safe"'}}


def test_a_small_definition_stays_whole() -> None:
    """Nothing is added either."""
    small = {"name": "s:run", "input_schema": TARGET}
    assert outline_definition(small) == small


def test_a_large_definition_is_told_by_names_types_and_what_is_required() -> None:
    """Lists and references are followed; what else there is stays, and a hint says how to open a part."""
    outlined = outline_definition(DESCRIBED)
    tokens = len(json.dumps(DESCRIBED, separators=(",", ":"))) // 4
    assert outlined.pop("hint") == (
        f"This is an outline of {tokens:,} tokens: a parameter with ? is optional, ~ stands for more than is shown. "
        'describe_tool opens a part by its path: "input_schema/NAME".'
    )
    kept = {name: part for name, part in DESCRIBED.items() if name != "input_schema"}
    assert outlined == kept | {"input_schema_outline": OUTLINE}


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("input_schema/config/mode", {"enum": ["fast", "safe"]}),
        ("input_schema/config?/retries?", {"type": "integer", "description": LONG}),
        ("/input_schema/config/targets/host", {"type": "string", "description": LONG}),
        ("input_schema/$defs/Target", TARGET),
        ("description", "Runs."),
        ("input_schema/properties/query", {"type": "string", "description": LONG}),
    ],
)
def test_a_path_opens_a_part(path: str, part: Any) -> None:
    """By names of parameters as the outline has them, or by all keywords of the schema."""
    assert open_part(DESCRIBED, path) == {"path": path, "part": part}


@pytest.mark.parametrize("path", ["/", "//"])
def test_a_path_without_names_leads_to_the_whole(path: str) -> None:
    """Outlined where it is large."""
    assert open_part(DESCRIBED, path) == {"path": path, **outline_definition(DESCRIBED)}


def test_a_part_that_is_large_is_outlined_as_well() -> None:
    """With the references of the whole schema."""
    large = dict(DESCRIBED, input_schema=SCHEMA | {"title": LONG * 4})
    assert open_part(large, "input_schema") == {"path": "input_schema", "outline": OUTLINE}


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("nope", "name, description, input_schema, call_with"),
        ("input_schema/config/nope", "targets"),
        ("name/x", "nothing"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_there_is(path: str, known: str) -> None:
    """Beside where it ends."""
    with pytest.raises(RequestError, match="has no") as caught:
        open_part(DESCRIBED, path)
    assert known in caught.value.hint


def test_an_outline_stays_small_whatever_is_outlined() -> None:
    """A tree of many parameters loses its depth; references that go round end; texts are cut; odd schemas are told."""
    leaf: dict[str, Any] = {"type": "string", "description": "x" * 90}
    for _ in range(4):
        leaf = {"type": "object", "properties": {f"parameter_{number}": leaf for number in range(6)}}
    tree = {"properties": {"again": {"$ref": "#"}, "round": {"$ref": "#/properties/round"}, "tree": leaf, "any": True}}
    large = {
        "name": "s:t",
        "description": LONG * 8,
        "input_schema": tree,
        "definition": {"_meta": {"icon": "x" * 9_000}},
    }
    assert len(json.dumps(large)) > OUTLINED_BYTES
    outlined = outline_definition(large)
    assert len(json.dumps(outlined)) < OUTLINED_BYTES
    assert outlined["input_schema_outline"]["round?"] == "any~"
    assert outlined["description"].endswith("…")
    assert "definition" not in outlined and '"definition"' in outlined["hint"]
