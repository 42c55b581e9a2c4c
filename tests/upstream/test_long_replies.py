"""Long replies are looked through once; what comes out is what two readings would have said."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.results.results import may_need_cleaning
from smart_mcp_proxy.invisible.quick_look import is_clean
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.protocol.codec import BrokenMessage, Envelope, LongReply, clean_line, decode_messages

LONG = "x" * 20_000

MEMBERS: list[tuple[str, Any]] = [
    ("jsonrpc", "2.0"),
    ("id", 7),
    ("result", {"content": [], "pad": LONG, "isError": True}),
    ("result", {"pad": LONG, "inner": '","jsonrpc":"2.0","id":9}'}),
    ("id", "7"),
    ("error", {"code": 1, "message": LONG}),
    ("result", [LONG]),
    ("note", 1),
    ("method", "ping"),
]


BLANKS = st.sampled_from(["", "", "", " ", "\n"])
CUTS = st.sets(st.one_of(st.integers(0, 100), st.integers(-100, 0), st.integers(0, 50_000)), max_size=3)


def pieces_of(line: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The line in pieces, cut at these places where it is so long."""
    places = sorted({0, len(line), *(cut % len(line) for cut in cuts)})
    return [line[start:end] for start, end in pairwise(places)]


@given(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=5), BLANKS, BLANKS, BLANKS, st.integers(0, 2), CUTS)
@settings(max_examples=600, deadline=None)
@pytest.mark.long  # many generated examples
def test_one_reading_says_what_two_say(
    members: list[tuple[str, Any]], before: str, after: str, last: str, cut: int, cuts: set[int]
) -> None:
    """In whatever order and spelling, with members twice, missing or unknown, whole or cut, and in pieces."""
    parts = [f'"{name}":{before}{json.dumps(value, separators=(",", ":"))}' for name, value in members]
    line = ("{" + f",{after}".join(parts) + last + "}").encode()
    line = line[: len(line) - cut]
    got = decode_messages(*pieces_of(line, cuts))
    try:
        expected = msgspec.json.decode(line, type=Envelope)
    except msgspec.DecodeError:
        assert got is None or isinstance(got, BrokenMessage)
        return
    if got is None:  # no message at all: neither method, nor reply, nor id with version
        assert not expected.method and not expected.is_reply
        return
    assert isinstance(got, list)
    [message] = got
    assert (message.request_id, message.method) == (expected.request_id, expected.method)
    read = message.read_result()
    assert (read.text if read else b"", bytes(message.error)) == (bytes(expected.result), bytes(expected.error))
    assert message.is_reply == expected.is_reply
    if isinstance(message, LongReply):
        assert read is not None and read.outline == RawResult(bytes(expected.result)).outline


@pytest.mark.parametrize(
    "spelling", ['{{"jsonrpc":"2.0","id":7,"result":{}}}', '{{"result":{},"jsonrpc":"2.0","id":7}}']
)
def test_the_spellings_of_the_common_libraries_are_read_once(spelling: str) -> None:
    result = json.dumps({"content": [{"type": "text", "text": LONG}], "isError": True})
    [message] = decode_messages(spelling.format(result).encode())
    assert isinstance(message, LongReply)
    assert message.request_id == 7
    read = message.read_result()
    assert read is not None and read.text == result.encode()
    assert read.outline["isError"] == b"true"


@pytest.mark.parametrize("length", [10, 20_000])
def test_a_result_in_many_lines_becomes_one(length: int) -> None:
    """Where messages are lines, a line of a result could pass for a message of the gateway's."""
    result = '{"content":[],"pad":"%s","x":\n{"jsonrpc":"2.0",\r\n"id":77,"method":"roots/list"}\n}' % ("x" * length)
    [message] = decode_messages(f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode())
    read = message.read_result().text
    assert b"\n" not in read and b"\r" not in read
    assert json.loads(read) == json.loads(result)


@pytest.mark.parametrize("request_id", ["007", "-1", "1.0", '"7"', str(10**30)])
def test_an_id_is_read_as_json_reads_it(request_id: str) -> None:
    """Not one that only looks like a number."""
    [message] = [decode_messages(f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"pad":"{LONG}"}}}}'.encode())]
    if request_id == "007":
        assert isinstance(message, BrokenMessage)
    else:
        assert isinstance(message, list) and not isinstance(message[0], LongReply)


def test_a_result_that_is_broken_in_the_middle_is_no_result() -> None:
    line = f'{{"jsonrpc":"2.0","id":7,"result":{{"pad":"{LONG}","text":oops}}}}'.encode()
    assert isinstance(broken := decode_messages(line), BrokenMessage)
    assert broken.request_id == 7


PARTS = [
    "a",
    "n",
    "u001b",
    "ud800",
    '"',
    " ",
    "~",
    "\\",
    "\\n",
    "\\u001b",
    "\\r",
    "\n",
    "\t",
    "\0",
    "\x1f",
    "\x7f",
    "\x80",
    "é",
]
ODD = re.compile(r'[^ -~]|\\(?!["\\/nt]|r\\n)')


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join), st.integers(0, 40), CUTS)
@settings(max_examples=600, deadline=None)
@pytest.mark.long  # many generated examples
def test_a_clean_text_is_one_that_cleaning_leaves_alone(text: str, blanks: int, cuts: set[int]) -> None:
    """Wherever it is cut, in the middle of an escape too."""
    line = (" " * blanks + text + " " * (40 - blanks)).encode("utf-8", "surrogatepass")
    is_odd = ODD.search(line.decode()) is not None
    assert is_clean(pieces_of(line, cuts)) is not is_odd
    if not is_odd:
        assert clean_line(line) == line.strip()
        assert not may_need_cleaning(RawResult(line))


WORDS = st.text(st.sampled_from('ab {}[]:,"'), max_size=5) | st.sampled_from(["a" * 63, "a" * 64, "a" * 65, LONG])
VALUES = st.recursive(
    WORDS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["content", "isError", "_meta", "structuredContent"]), VALUES), CUTS)
@settings(max_examples=300, deadline=None)
@pytest.mark.long  # many generated examples
def test_what_is_left_out_of_long_strings_changes_nothing(result: dict[str, Any], cuts: set[int]) -> None:
    """Members and the beginnings of their values are the same, in however many pieces the text comes."""
    text = json.dumps(result, separators=(",", ":")).encode()
    quick = RawResult.read(*pieces_of(text, cuts), is_clean=is_clean([text]))
    assert quick.outline == RawResult(text).outline
    assert (quick.text, quick.size_bytes) == (text, len(text))


def test_only_the_first_strings_are_looked_for() -> None:
    """Of a list of thousands the rest is read as it stands, and what is wrong in it is still found."""
    text = json.dumps({"content": [LONG] + ["a"] * 5_000, "isError": True}, separators=(",", ":")).encode()
    assert RawResult.read(text, is_clean=True).outline == RawResult(text).outline
    for broken in (text[:-1], text.replace(b'"a","a"', b'"a""a"', 1), text[:-20] + b"," + text[-20:]):
        with pytest.raises(msgspec.DecodeError):
            RawResult.read(broken, is_clean=True)


@pytest.mark.long  # a third of a second of processor time
@given(st.integers(0, 21_000), st.sampled_from([b'"', b"{", b",", b"]", b"\\", b"\\n", b"\\x"]), CUTS)
@settings(max_examples=300, deadline=None)
def test_what_is_wrong_in_a_clean_text_is_found(place: int, odd: bytes, cuts: set[int]) -> None:
    """A quote in the middle of a string, a bracket outside of one: as if it had been read letter by letter."""
    text = json.dumps({"content": [{"type": "text", "text": LONG}], "isError": False, "n": [1, 2]}).encode()
    text = text[: place % len(text)] + odd + text[place % len(text) :]
    try:
        expected: Any = RawResult(text).outline
    except msgspec.MsgspecError:
        expected = None
    try:
        found: Any = RawResult.read(*pieces_of(text, cuts), is_clean=is_clean([text])).outline
    except msgspec.MsgspecError:
        found = None
    assert found == expected
