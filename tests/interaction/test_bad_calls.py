"""Bad use of the gateway's own tools: each has its own code, and no upstream hears of it.

The ids are those of the project's list of bad inputs.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from wires import ENVELOPE, Wire

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("bad-call")]

WRITE, READ, SEARCH = "call_tool_write", "call_tool_read", "retrieve_tools"
INVALID, NOT_FOUND, REFUSED = "invalid_arguments", "tool_not_found", "intent_mismatch"


async def outcome(wire: Wire, tool: str, arguments: Any, **meta: Any) -> dict[str, Any]:
    """The result of one of the gateway's tools."""
    own = ENVELOPE | meta if wire.era == "modern" else meta
    params = {"name": tool, "arguments": arguments, "_meta": own}
    message = {"jsonrpc": "2.0", "id": wire.next_id(), "method": "tools/call", "params": params}
    answer = await wire.tell(json.dumps(message).encode())
    assert answer is not None
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


BAD_CALLS = [
    ("B35 empty query", SEARCH, {"query": ""}, "invalid_request"),
    ("B35 blank query", SEARCH, {"query": " \t\n"}, "invalid_request"),
    ("B35 no query", SEARCH, {}, INVALID),
    ("B35 query null", SEARCH, {"query": None}, INVALID),
    ("B35 query list", SEARCH, {"query": ["a"]}, INVALID),
    ("B38 limit 0", SEARCH, {"query": "x", "limit": 0}, INVALID),
    ("B38 limit -1", SEARCH, {"query": "x", "limit": -1}, INVALID),
    ("B38 limit 1e9", SEARCH, {"query": "x", "limit": 10**9}, INVALID),
    ("B38 limit text", SEARCH, {"query": "x", "limit": "5"}, INVALID),
    ("B38 limit 2.5", SEARCH, {"query": "x", "limit": 2.5}, INVALID),
    ("B38 limit true", SEARCH, {"query": "x", "limit": True}, INVALID),
    ("B39 unknown name", WRITE, {"name": "old:hank"}, NOT_FOUND),
    ("B42 wrong type", WRITE, {"name": "old:paint", "args": {"colour": "red", "coats": "two"}}, INVALID),
    ("B42 none given", WRITE, {"name": "old:paint", "args": {}}, INVALID),
    ("B43 args list", WRITE, {"name": "old:hang", "args": []}, INVALID),
    ("B43 args text", WRITE, {"name": "old:hang", "args": '{"label": "unwanted"}'}, INVALID),
    ("B43 encoded twice", WRITE, {"name": "old:hang", "args_json": '"{}"'}, INVALID),
    ("B43 both", WRITE, {"name": "old:hang", "args": {}, "args_json": "{}"}, INVALID),
    ("B43 broken", WRITE, {"name": "old:hang", "args_json": "{"}, INVALID),
    ("B45 wrong case", WRITE, {"name": "OLD:hang"}, NOT_FOUND),
    ("B45 wrong case of the tool", WRITE, {"name": "old:Hang"}, NOT_FOUND),
    ("B45 space", WRITE, {"name": "old:hang "}, NOT_FOUND),
    ("B45 dot", WRITE, {"name": "old:hang."}, NOT_FOUND),
    ("B45 homoglyph", WRITE, {"name": "old:h\N{CYRILLIC SMALL LETTER A}ng"}, NOT_FOUND),
    ("B45 invisible", WRITE, {"name": "old:ha\u200bng"}, NOT_FOUND),
    ("B46 extra colon", WRITE, {"name": "old:hang:"}, NOT_FOUND),
    ("B46 no server", WRITE, {"name": ":hang"}, NOT_FOUND),
    ("B46 no tool", WRITE, {"name": "old:"}, NOT_FOUND),
    ("B46 colons", WRITE, {"name": ":::"}, NOT_FOUND),
    ("B46 name number", WRITE, {"name": 7}, INVALID),
    ("B46 no name", WRITE, {"args": {}}, INVALID),
    ("B47 destructive", READ, {"name": "old:erase", "args": {"entry": 1}}, REFUSED),
    ("B47 no hints", READ, {"name": "old:hang"}, REFUSED),
    ("B48 intent", WRITE, {"name": "old:hang", "intent": {"operation_type": "read"}}, REFUSED),
    ("B48 odd intent", WRITE, {"name": "old:hang", "intent": {"operation_type": "fly"}}, ""),
]


@pytest.mark.parametrize(("name", "tool", "arguments", "code"), BAD_CALLS, ids=[row[0] for row in BAD_CALLS])
async def test_a_bad_call_has_its_own_code(
    wire: Wire, ledger: Path, name: str, tool: str, arguments: Any, code: str
) -> None:
    """As a result with `isError` that says what is wrong, what to do, and that nothing was sent."""
    before = ledger.read_text("utf-8")
    result = await outcome(wire, tool, arguments)
    error = json.loads(result["content"][0]["text"])["error"]
    assert result["isError"] is True
    assert error["delivery"] == "not_sent"
    assert error["message"]
    assert error["hint"]
    assert code in ("", error["code"]), error
    assert ledger.read_text("utf-8") == before
    await wire.assert_well()


@pytest.mark.parametrize(
    "query",
    [
        "the of and",
        "\U0001f600\U0001f680",
        "\u706f\u53f0",
        "' OR 1=1--",
        'NEAR * "',
        "a AND (",
        "^x",
        "\x00",
        "{}",
        "%s %d",
    ],
)
async def test_any_text_can_be_searched_for(wire: Wire, query: str) -> None:
    """B37: no words, no letters, the syntax of some other search."""
    result = await outcome(wire, SEARCH, {"query": query})
    assert not result.get("isError"), result
    assert "SQL" not in json.dumps(result)


async def test_a_query_of_a_hundred_kilobytes_is_answered_at_once(wire: Wire) -> None:
    """B36: cut or refused, in any case fast."""
    began = time.monotonic()
    await outcome(wire, SEARCH, {"query": "lighthouse register " * 5_000})
    assert time.monotonic() - began < 2
    await wire.assert_well()


async def test_arguments_of_a_megabyte_pass(wire: Wire) -> None:
    """B44."""
    result = await outcome(wire, WRITE, {"name": "old:echo", "args": {"text": "x" * 1_000_000}})
    assert len(result["content"][0]["text"]) > 1_000_000


@pytest.mark.parametrize("token", [True, {}, [], 1.5, None], ids=str)
async def test_an_odd_progress_token_ends_nothing(wire: Wire, token: Any) -> None:
    """B52: it is refused as a parameter, or nobody is told of progress."""
    own = (ENVELOPE if wire.era == "modern" else {}) | {"progressToken": token}
    params = {"name": WRITE, "arguments": {"name": "old:echo"}, "_meta": own}
    message = {"jsonrpc": "2.0", "id": wire.next_id(), "method": "tools/call", "params": params}
    answer = await wire.tell(json.dumps(message).encode())
    assert answer is not None
    assert "result" in answer or answer["error"]["code"] == -32602
    await wire.assert_well()
