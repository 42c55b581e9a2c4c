"""The door reads of a line as much as it has to, and reads that as a parser of JSON would."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smart_mcp_proxy.desktop.lines import is_repeatable, read_head, read_message, split_lines
from smart_mcp_proxy.desktop.questions import Questions

KEYS = st.one_of(st.integers(), st.text(), st.none(), st.floats(allow_nan=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.one_of(
    st.text(), st.sampled_from(['","result":', '"id":1,"result"', "\\", '\\"', ',"method":', "\n", "\u2028", "\0"])
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A JSON-RPC message with its members in any order."""
    key = draw(KEYS | TEXT)
    kind = draw(st.sampled_from(["result", "error", "request", "notification"]))
    value = draw(VALUES | TEXT)
    members: dict[str, Any] = {"jsonrpc": "2.0"}
    if kind != "notification":
        members["id"] = key
    members |= {"method": draw(TEXT), "params": value} if kind in ("request", "notification") else {kind: value}
    order = draw(st.just(list(members)) | st.permutations(list(members)))
    return {name: members[name] for name in order}


@pytest.mark.long  # a third of a second of processor time
@given(message=messages(), is_compact=st.booleans(), is_ascii=st.booleans())
@example(message={"jsonrpc": "2.0", "id": '"', "result": {}}, is_compact=True, is_ascii=True)
@example(message={"jsonrpc": "2.0", "id": ',"result":', "method": "x"}, is_compact=True, is_ascii=True)
def test_the_head_of_a_line_says_what_json_says(message: dict[str, Any], is_compact: bool, is_ascii: bool) -> None:
    """Kind and id of any message are those that a parser of the whole line finds."""
    line = json.dumps(message, separators=(",", ":") if is_compact else None, ensure_ascii=is_ascii)
    kind = "other" if "id" not in message else "request" if "method" in message else "answer"
    assert read_head(line.encode(errors="surrogatepass")) == (kind, message.get("id"))


@given(line=st.binary() | st.builds(b'{"jsonrpc":"2.0","id":'.__add__, st.binary()))
@example(line=b'{"jsonrpc":"2.0","id":')
def test_no_line_is_too_broken_to_be_read(line: bytes) -> None:
    """A line that is no message has no head, and ends nothing."""
    assert read_head(line)[0] in ("answer", "request", "other")
    assert isinstance(read_message(line), dict)


@given(
    data=st.lists(st.sampled_from([b"", b"a", b"bc", b"\n", b"\n\n", b"\r\n", b"x" * 70]), max_size=30), seed=st.data()
)
def test_lines_are_those_of_the_whole_however_it_is_cut(data: list[bytes], seed: st.DataObject) -> None:
    """The lines of a stream do not depend on the pieces in which it arrives."""
    whole = b"".join(data)
    cuts = sorted(seed.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    rest, lines = bytearray(), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        lines += split_lines(rest, whole[start:end])
    assert [*lines, bytes(rest)] == whole.split(b"\n")


def test_what_changes_nothing_is_sent_again() -> None:
    """Searches and reads may be repeated; a call of a server's tool may not."""
    call = {"method": "tools/call", "params": {"name": "retrieve_tools"}}
    assert is_repeatable(call)
    assert is_repeatable({"method": "tools/list"})
    assert not is_repeatable({"method": "tools/call", "params": {"name": "call_tool_read"}})
    assert not is_repeatable({"method": "tools/call", "params": ["retrieve_tools"]})
    assert not is_repeatable({"method": "tasks/cancel"})


def test_the_first_gateway_asks_as_it_likes() -> None:
    """Requests of the first gateway and their answers pass as they are."""
    questions = Questions()
    questions.begin()
    line = b'{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}'
    assert questions.ask(line, 1) is line
    assert questions.answer(b'{"id":"1","result":{}}', "1") == b'{"id":"1","result":{}}'
    assert questions.answer(b'{"id":7,"result":{}}', 7) == b'{"id":7,"result":{}}'


@given(key=st.integers() | st.text())
def test_no_gateway_is_answered_what_another_has_asked(key: int | str) -> None:
    """A later gateway's request has an id of its own, under which alone it is answered or taken back."""
    questions = Questions()
    questions.begin()
    questions.ask(json.dumps({"id": key, "method": "roots/list"}).encode(), key)
    assert questions.end() == [key]
    questions.begin()
    shown = json.loads(questions.ask(json.dumps({"id": key, "method": "roots/list"}).encode(), key))
    assert shown["method"] == "roots/list"
    assert shown["id"] != key
    assert questions.answer(b"{}", key) is None
    answer = questions.answer(json.dumps({"id": shown["id"], "result": {}}).encode(), shown["id"])
    assert answer is not None and json.loads(answer) == {"id": key, "result": {}}
    questions.ask(json.dumps({"id": key, "method": "roots/list"}).encode(), key)
    taken = {"method": "notifications/cancelled", "params": {"requestId": key}}
    assert json.loads(questions.hear(json.dumps(taken).encode()))["params"]["requestId"] == shown["id"]
    assert questions.end() == []
