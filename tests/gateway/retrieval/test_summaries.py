"""One tool in full and whole."""

import json
from typing import Any

import pytest
from gateway_fakes import definition, record_of

from smart_mcp_proxy.gateway.retrieval.summaries import build_description, build_full_entry

FIELDS: dict[str, Any] = {
    "execution": {"taskSupport": "required"},
    "_meta": {"acme/tags": ["x"], "n": 1.5},
    "icons": [{"src": "https://a.example/i.png", "sizes": ["48x48"]}],
    "category": "core",
    "id": 7,
    "deprecated": False,
    "nothing": None,
    "inputExamples": [{"path": "/tmp"}],
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_description_holds_every_field_that_the_server_sent(field: str) -> None:
    """Also those that no specification knows, as they came."""
    record = record_of(definition("save", **{field: FIELDS[field]}))
    assert build_description(record, is_stale=False)["definition"] == {field: FIELDS[field]}
    assert "definition" not in build_full_entry(record, is_stale=False)


def test_annotations_are_those_that_the_server_sent() -> None:
    """Its title and hints of its own among them."""
    sent = {"title": "Save it", "readOnlyHint": True, "acmeHint": ["a"]}
    record = record_of(definition("save", annotations=sent))
    assert build_description(record, is_stale=False)["annotations"] == sent


def test_a_field_cannot_pass_for_a_word_of_the_gateway() -> None:
    """What a server calls `digest` or `server` stands apart from what these are."""
    record = record_of(definition("save", digest="sha256:0", server="other", call_with="call_tool_read"))
    described = build_description(record, is_stale=False)
    assert (described["digest"], described["server"]) == (record.digest, "alpha")
    assert described["call_with"] == "call_tool_write"
    assert described["definition"] == {"digest": "sha256:0", "server": "other", "call_with": "call_tool_read"}


def test_further_fields_are_cleaned_and_name_the_interface_as_it_can_be_read() -> None:
    """Like everything that a server says and an agent reads."""
    meta = {"ui": {"resourceUri": "ui://page"}, "note\x1b[31m": "a\u202eb"}
    record = record_of(definition("save", _meta=meta, annotations={"title": "a\x1b[2Jb"}))
    described = build_description(record, is_stale=False)
    assert described["definition"]["_meta"] == {"ui": {"resourceUri": "ui://alpha/page"}, "note": "ab"}
    assert described["annotations"]["title"] == "ab"


def test_a_definition_of_known_fields_alone_has_no_more() -> None:
    """Nothing is said twice."""
    assert "definition" not in build_description(record_of(definition("save")), is_stale=False)


def test_a_field_may_be_nested_as_deep_as_a_definition_may_be() -> None:
    """One such tool must not keep the others of an answer from being described."""
    nested: dict[str, Any] = {"leaf": "a\x1b[31mb"}
    for _ in range(200):
        nested = {"more": nested}
    described = build_description(record_of(definition("save", _meta=nested)), is_stale=False)
    assert '{"leaf": "ab"}' in json.dumps(described["definition"])
