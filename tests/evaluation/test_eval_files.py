"""The files of an evaluation: what they may hold, and what is said of a line that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.evaluation.files import read_queries, read_tools

QUERY = {"id": "q1", "query": "open a bug report", "gold": ["github:create_issue"]}
TOOL = {"server": "github", "name": "create_issue", "description": "Create an issue"}


def written(path: Path, *rows: Any) -> Path:
    """A file with one JSON value a line."""
    file = path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def test_a_query_has_its_right_tools_with_their_equals(tmp_path: Path) -> None:
    """`alt` joins the right tool it belongs to; what else a line holds is ignored."""
    row = {
        **QUERY,
        "alt": {"github:create_issue": ["gitlab:create_issue"]},
        "source": "s",
        "style": "t",
        "split": "dev",
    }
    (query,) = read_queries(written(tmp_path, row))
    assert query.gold == (frozenset({"github:create_issue", "gitlab:create_issue"}),)
    assert query.stratum == ("s", "t")
    assert not query.is_unanswerable


def test_a_query_without_a_right_tool_is_unanswerable(tmp_path: Path) -> None:
    """An empty list says that nothing fits."""
    (query,) = read_queries(written(tmp_path, {**QUERY, "gold": []}))
    assert query.is_unanswerable


@pytest.mark.parametrize("member", ["server", "gold_server"])
def test_a_query_may_ask_for_any_tool_of_a_server(tmp_path: Path, member: str) -> None:
    """A server instead of tools."""
    (query,) = read_queries(written(tmp_path, {"id": "q", "query": "x", member: "github"}))
    assert query.server == "github"
    assert not query.is_unanswerable


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    """Editors leave such things behind."""
    file = tmp_path / "queries.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(QUERY).encode() + b"\r\n\r\n")
    assert [query.id for query in read_queries(file)] == ["q1"]


def test_a_tool_is_read_as_its_server_would_list_it(tmp_path: Path) -> None:
    """Both spellings of the schema are understood; a missing one takes no parameters."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    hints = {"readOnlyHint": True}
    rows = [{**TOOL, "input_schema": schema, "annotations": hints}, {**TOOL, "name": "b", "inputSchema": schema}]
    first, second, third = read_tools(written(tmp_path, *rows, {"server": "a", "name": "c", "source": "s"}))
    assert first.definition == {
        "name": "create_issue",
        "description": "Create an issue",
        "inputSchema": schema,
        "annotations": hints,
    }
    assert second.definition["inputSchema"] == schema
    assert (third.definition, third.source) == ({"name": "c", "inputSchema": {}}, "s")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([1], ":2: [1] is no JSON object."),
        ({"query": "x", "gold": []}, ":2: no 'id'."),
        ({"id": 7, "query": "x", "gold": []}, ":2: 'id' is 7. Expected text."),
        ({"id": "a", "gold": []}, ":2: no 'query'."),
        ({"id": "a", "query": " ", "gold": []}, ":2: 'query' is empty."),
        ({"id": "a", "query": "x"}, ":2: no 'gold'."),
        ({"id": "a", "query": "x", "gold": "github:a"}, ":2: 'gold' is 'github:a'. Expected a list of names"),
        ({"id": "a", "query": "x", "gold": ["create_issue"]}, "SERVER:TOOL"),
        ({"id": "a", "query": "x", "gold": ["a:b"], "alt": ["a:c"]}, ":2: 'alt' is ['a:c']."),
        ({"id": "a", "query": "x", "gold": ["a:b"], "alt": {"a:b": "a:c"}}, ":2: 'alt' is 'a:c'."),
        (QUERY, ":2: the id 'q1' is used twice."),
    ],
)
def test_a_wrong_query_is_named_by_its_line(tmp_path: Path, row: Any, said: str) -> None:
    """File, line, and what is wrong with the value."""
    with pytest.raises(RequestError) as caught:
        read_queries(written(tmp_path, QUERY, row))
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"name": "b"}, ":2: no 'server'."),
        ({"server": "a"}, ":2: no 'name'."),
        ({"server": "a:b", "name": "c"}, ":2: 'server' is 'a:b'. A server's name has no colon."),
        ({"server": "a", "name": "c", "input_schema": []}, ":2: 'input_schema' is []. Expected an object."),
        ({"server": "a", "name": "c", "description": 1}, ":2: 'description' is 1. Expected text."),
        (TOOL, ":2: the tool 'github:create_issue' is listed twice."),
    ],
)
def test_a_wrong_tool_is_named_by_its_line(tmp_path: Path, row: Any, said: str) -> None:
    """File, line, and what is wrong with the value."""
    with pytest.raises(RequestError) as caught:
        read_tools(written(tmp_path, TOOL, row))
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"id": "a"\n', ":1: not JSON: Expecting ',' delimiter at character 11."),
        (b'{"id": NaN}\n', ":1: not JSON: NaN is no JSON value."),
        (b'{"id": "\xff"}\n', ":1: not UTF-8 from byte 9 on."),
        (b"[" * 100_000, ":1: nested too deeply."),
        (b"\n \n", "has no queries."),
        (b"", "has no queries."),
    ],
)
def test_a_file_that_cannot_be_understood_says_where(tmp_path: Path, data: bytes, said: str) -> None:
    """Bytes that are no JSON lines at all."""
    file = tmp_path / "queries.jsonl"
    file.write_bytes(data)
    with pytest.raises(RequestError) as caught:
        read_queries(file)
    assert said in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file, and a folder in its place."""
    with pytest.raises(RequestError, match=r"nowhere\.jsonl cannot be read: No such file or directory"):
        read_queries(tmp_path / "nowhere.jsonl")
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_tools(tmp_path)
