"""Long replies are looked through once; what comes out is what two readings would have said."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.codec import BrokenMessage, Envelope, LongReply, decode_messages

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


@given(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=5), BLANKS, BLANKS, BLANKS, st.integers(0, 2))
@settings(max_examples=400, deadline=None)
def test_one_reading_says_what_two_say(
    members: list[tuple[str, Any]], before: str, after: str, last: str, cut: int
) -> None:
    """In whatever order and spelling, with members twice, missing or unknown, whole or cut."""
    parts = [f'"{name}":{before}{json.dumps(value, separators=(",", ":"))}' for name, value in members]
    line = ("{" + f",{after}".join(parts) + last + "}").encode()
    line = line[: len(line) - cut]
    got = decode_messages(line)
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
    assert (message.read_result(), bytes(message.error)) == (bytes(expected.result), bytes(expected.error))
    assert message.is_reply == expected.is_reply
    if isinstance(message, LongReply):
        assert message.read_result().outline == RawResult(expected.result).outline


@pytest.mark.parametrize(
    "spelling", ['{{"jsonrpc":"2.0","id":7,"result":{}}}', '{{"result":{},"jsonrpc":"2.0","id":7}}']
)
def test_the_spellings_of_the_common_libraries_are_read_once(spelling: str) -> None:
    result = json.dumps({"content": [{"type": "text", "text": LONG}], "isError": True})
    [message] = decode_messages(spelling.format(result).encode())
    assert isinstance(message, LongReply)
    assert message.request_id == 7
    assert message.read_result() == result.encode()
    assert message.read_result().outline["isError"] == b"true"


@pytest.mark.parametrize("length", [10, 20_000])
def test_a_result_in_many_lines_becomes_one(length: int) -> None:
    """Where messages are lines, a line of a result could pass for a message of the gateway's."""
    result = '{"content":[],"pad":"%s","x":\n{"jsonrpc":"2.0",\r\n"id":77,"method":"roots/list"}\n}' % ("x" * length)
    [message] = decode_messages(f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode())
    read = message.read_result()
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
