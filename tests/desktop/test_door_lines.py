"""Lines as a door reads them."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.desktop.lines import is_repeatable, read_head, split_lines

ids = st.one_of(st.integers(), st.text(max_size=20))
members = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "result", "error", "params", "other"]),
    st.one_of(
        st.text(max_size=20), st.integers(), st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=2)
    ),
)


def expect(message: dict[str, Any]) -> tuple[str, Any]:
    if "id" not in message:
        return "other", None
    return "request" if "method" in message else "answer", message["id"]


@given(ids, st.sampled_from(["result", "error", "method"]), st.booleans())
def test_the_head_of_a_line_is_read_as_the_whole_would_be(request: int | str, member: str, is_ascii: bool) -> None:
    """Of answers as they are written here, whatever their ids hold."""
    message = {"jsonrpc": "2.0", "id": request, member: {"id": "other", "method": "x"}}
    for separators in ((",", ":"), (", ", ": ")):
        line = json.dumps(message, separators=separators, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
        if "\\ud" not in line.decode("utf-8", "replace").lower() and b"\xed" not in line:
            assert read_head(line) == expect(message)


@given(members)
def test_any_other_line_is_read_as_well(message: dict[str, Any]) -> None:
    """Members in any order, of any kind."""
    assert read_head(json.dumps(message).encode()) == expect(message)


@given(st.binary(max_size=200), st.sets(st.integers(0, 200)))
def test_lines_come_whole_however_they_are_cut(data: bytes, cuts: set[int]) -> None:
    """What has no end yet waits for it."""
    rest = bytearray()
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    lines = [line for start, end in pairwise(places) for line in split_lines(rest, data[start:end])]
    *whole, unfinished = data.split(b"\n")
    assert (lines, bytes(rest)) == (whole, unfinished)


@pytest.mark.parametrize(
    ("method", "name", "is_safe"),
    [
        ("tools/list", None, True),
        ("resources/read", None, True),
        ("tools/call", "retrieve_tools", True),
        ("tools/call", "call_tool_read", False),
        ("tools/call", None, False),
        ("tasks/cancel", None, False),
        ("unknown/method", None, False),
    ],
)
def test_only_what_changes_nothing_is_sent_twice(method: str, name: str | None, is_safe: bool) -> None:
    """A call may have been carried out, whatever its tool is called."""
    assert is_repeatable({"method": method, "params": {"name": name}}) is is_safe
    assert is_repeatable({"method": method, "params": [name]}) is (is_safe and method != "tools/call")
