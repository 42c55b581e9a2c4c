"""Text nested too deep for clients is told from any other, whatever stands in its strings."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy import raw_result
from smart_mcp_proxy.raw_result import DEEPEST_LEVELS, is_nested_deeper
from smart_mcp_proxy.upstream.protocol.codec import BrokenMessage, decode_messages

values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('[]{}"\\,:a', max_size=6)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
    max_leaves=30,
)


def levels_of(value: Any) -> int:
    """How deep arrays and objects stand in each other."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(levels_of, inner), default=0)


@given(values, st.integers(1, 6))
def test_levels_are_counted_as_a_parser_does(value: Any, levels: int) -> None:
    """Brackets in strings count for nothing, whatever is escaped there."""
    assert is_nested_deeper(json.dumps(value).encode(), levels) is (levels_of(value) > levels)


@pytest.mark.parametrize("unit", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":"}"},', b"]")])
def test_a_limit_is_met_exactly(unit: tuple[bytes, bytes]) -> None:
    """At 1,000 levels of each kind."""
    opening, closing = unit
    for levels in (DEEPEST_LEVELS - 1, DEEPEST_LEVELS, DEEPEST_LEVELS + 1):
        text = opening * levels + b'["' + b"]" * 9_000 + b'"]' + closing * levels
        assert is_nested_deeper(text, DEEPEST_LEVELS + 1) is (levels == DEEPEST_LEVELS + 1)


@pytest.mark.parametrize("pad", ["", "x" * 20_000], ids=["short", "long"])
@pytest.mark.parametrize("levels", [1_500, 6_000])
def test_no_reply_is_read_that_is_nested_too_deep(monkeypatch: pytest.MonkeyPatch, levels: int, pad: str) -> None:
    """Also by an interpreter that could; its request is known, so that it fails at once."""
    monkeypatch.setattr(raw_result, "_READS_ANY_DEPTH", True)
    deep = "[" * levels + "]" * levels
    line = f'{{"jsonrpc":"2.0","id":7,"result":{{"pad":"{pad}","n":{deep}}}}}'.encode()
    broken = decode_messages(line)
    assert isinstance(broken, BrokenMessage)
    assert (broken.request_id, broken.reason) == (7, "it is nested deeper than 1,000 levels")


def test_what_many_rows_hold_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many brackets as it takes are no depth, in strings and outside."""
    monkeypatch.setattr(raw_result, "_READS_ANY_DEPTH", True)
    rows = [{"id": number, "tags": ["a"], "text": "[[{"} for number in range(2_000)]
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"content": [], "structuredContent": {"rows": rows}}})
    [message] = decode_messages(line.encode())  # type: ignore[misc,union-attr]
    assert message.request_id == 7
    assert json.loads(message.read_result().text)["structuredContent"]["rows"] == rows
