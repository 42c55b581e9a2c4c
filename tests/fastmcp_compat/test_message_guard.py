"""What a server says is handed to the SDK only if the SDK can write it again."""

import json

import msgspec
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from smart_mcp_proxy.fastmcp_compat.message_guard import WRITABLE_DEPTH, read_writable
from smart_mcp_proxy.fastmcp_compat.server import dump_message


def nested(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"[]" + b"}" * (levels - 1)


def test_a_value_is_read_down_to_the_depth_that_can_be_written() -> None:
    """Many small objects beside each other are no depth."""
    for text in (nested(WRITABLE_DEPTH), b"[%b]" % b",".join([b"{}"] * 1_000)):
        value = read_writable(text)
        assert value == json.loads(text)
        line = dump_message(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": [{"x": value}]})))
        assert json.loads(line)["result"]["tools"] == [{"x": value}]
    with pytest.raises(RecursionError, match=f"deeper than {WRITABLE_DEPTH} levels"):
        read_writable(nested(WRITABLE_DEPTH + 1))
    with pytest.raises(msgspec.DecodeError):
        read_writable(b"{")


def test_an_answer_that_cannot_be_written_is_an_error_for_its_request() -> None:
    """The connection is not the worse for it."""
    result = {"x": msgspec.json.decode(nested(400))}
    error = json.loads(dump_message(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id="7", result=result))))
    assert (error["id"], error["error"]["code"]) == ("7", -32603)
