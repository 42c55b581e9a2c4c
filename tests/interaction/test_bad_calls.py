"""Bad use of the gateway's own tools: each has its own code, and no upstream hears of it.

The ids are those of the project's list of bad inputs.
"""

import json
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
    ("B35 empty query", SEARCH, {"query": ""}, "invalid_request", "query is empty.", "Say in a few words"),
    ("B35 blank query", SEARCH, {"query": " \t\n"}, "invalid_request", "query is empty.", "Say in a few words"),
    ("B35 no query", SEARCH, {}, INVALID, "query is missing.", "query (required)"),
    ("B35 query null", SEARCH, {"query": None}, INVALID, "query is missing.", "query (required)"),
    (
        "B35 query list",
        SEARCH,
        {"query": ["a"]},
        INVALID,
        """query is ["a"]: input should be a valid string.""",
        "query (required)",
    ),
    (
        "B38 limit 0",
        SEARCH,
        {"query": "x", "limit": 0},
        INVALID,
        "limit is 0: input should be greater than or equal to 1.",
        "limit",
    ),
    (
        "B38 limit -1",
        SEARCH,
        {"query": "x", "limit": -1},
        INVALID,
        "limit is -1: input should be greater than or equal to 1.",
        "limit",
    ),
    (
        "B38 limit 1e9",
        SEARCH,
        {"query": "x", "limit": 10**9},
        INVALID,
        "limit is 1000000000: input should be less than or equal to 50.",
        "limit",
    ),
    (
        "B38 limit text",
        SEARCH,
        {"query": "x", "limit": "5"},
        INVALID,
        "limit is '5': input should be a valid integer.",
        "limit",
    ),
    (
        "B38 limit 2.5",
        SEARCH,
        {"query": "x", "limit": 2.5},
        INVALID,
        "limit is 2.5: input should be a valid integer.",
        "limit",
    ),
    (
        "B38 limit true",
        SEARCH,
        {"query": "x", "limit": True},
        INVALID,
        "limit is true: input should be a valid integer.",
        "limit",
    ),
    (
        "B39 unknown name",
        WRITE,
        {"name": "old:hank"},
        NOT_FOUND,
        "No tool is named 'old:hank'.",
        "Did you mean old:hang",
    ),
    (
        "B42 wrong type",
        WRITE,
        {"name": "old:paint", "args": {"colour": "red", "coats": "two"}},
        INVALID,
        """Arguments do not fit 'old:paint': at coats: "two" is not of type "integer".""",
        "Repair them by the input schema in data",
    ),
    (
        "B42 none given",
        WRITE,
        {"name": "old:paint", "args": {}},
        INVALID,
        """Arguments do not fit 'old:paint': "colour" is a required property.""",
        "Repair them by the input schema in data and call again. The server was not called. "
        "If you gave arguments, they were lost on the way: send them as JSON text in args_json.",
    ),
    (
        "B43 args list",
        WRITE,
        {"name": "old:hang", "args": []},
        INVALID,
        "args is []: input should be an object.",
        "args_json",
    ),
    (
        "B43 args text",
        WRITE,
        {"name": "old:hang", "args": '["unwanted"]'},
        INVALID,
        """args is '["unwanted"]': input should be an object.""",
        "args_json",
    ),
    (
        "B43 encoded twice",
        WRITE,
        {"name": "old:hang", "args_json": '"{}"'},
        INVALID,
        """args_json holds '"{}"', which is no object.""",
        'Send {"parameter": value}',
    ),
    (
        "B43 both",
        WRITE,
        {"name": "old:hang", "args": {"label": "a"}, "args_json": '{"label": "b"}'},
        INVALID,
        "args and args_json are both given.",
        "Send one of them.",
    ),
    (
        "B43 broken",
        WRITE,
        {"name": "old:hang", "args_json": "{"},
        INVALID,
        "args_json is not JSON: ",
        "Send the arguments as an object in args.",
    ),
    ("B45 wrong case", WRITE, {"name": "OLD:hang"}, NOT_FOUND, "No tool is named 'OLD:hang'.", "Did you mean old:hang"),
    (
        "B45 wrong case of the tool",
        WRITE,
        {"name": "old:Hang"},
        NOT_FOUND,
        "No tool is named 'old:Hang'.",
        "Did you mean old:hang",
    ),
    ("B45 space", WRITE, {"name": "old:hang "}, NOT_FOUND, "No tool is named 'old:hang '.", "Did you mean old:hang"),
    ("B45 dot", WRITE, {"name": "old:hang."}, NOT_FOUND, "No tool is named 'old:hang.'.", "Did you mean old:hang"),
    (
        "B45 homoglyph",
        WRITE,
        {"name": "old:h\N{CYRILLIC SMALL LETTER A}ng"},
        NOT_FOUND,
        "No tool is named 'old:h\N{CYRILLIC SMALL LETTER A}ng'.",
        "Did you mean old:hang",
    ),
    (
        "B45 invisible",
        WRITE,
        {"name": "old:ha\u200bng"},
        NOT_FOUND,
        "No tool is named 'old:ha\\u200bng'.",
        "Did you mean old:hang",
    ),
    (
        "B46 extra colon",
        WRITE,
        {"name": "old:hang:"},
        NOT_FOUND,
        "No tool is named 'old:hang:'.",
        "Did you mean old:hang",
    ),
    ("B46 no server", WRITE, {"name": ":hang"}, NOT_FOUND, "No tool is named ':hang'.", "old:hang"),
    ("B46 no tool", WRITE, {"name": "old:"}, NOT_FOUND, "No tool is named 'old:'.", "Did you mean old:"),
    (
        "B46 colons",
        WRITE,
        {"name": ":::"},
        NOT_FOUND,
        "No tool is named ':::'.",
        "Use retrieve_tools to find the name.",
    ),
    ("B46 name number", WRITE, {"name": 7}, INVALID, "name is 7: input should be a valid string.", "name (required)"),
    ("B46 no name", WRITE, {"args": {}}, INVALID, "name is missing.", "name (required)"),
    (
        "B47 destructive",
        READ,
        {"name": "old:erase", "args": {"entry": 1}},
        REFUSED,
        "Tool 'old:erase' is marked destructive by its server.",
        "Ask the user, then use call_tool_destructive.",
    ),
    (
        "B47 no hints",
        READ,
        {"name": "old:hang"},
        REFUSED,
        "Tool 'old:hang' is not marked read-only by its server.",
        "Use call_tool_write.",
    ),
    (
        "B48 intent",
        WRITE,
        {"name": "old:hang", "intent": {"operation_type": "read"}},
        REFUSED,
        "intent.operation_type is 'read', but the call came through call_tool_write.",
        "Make both say the same",
    ),
    (
        "B48 odd intent",
        WRITE,
        {"name": "old:hang", "intent": {"operation_type": "fly"}},
        REFUSED,
        "intent.operation_type is 'fly', but the call came through call_tool_write.",
        "Make both say the same",
    ),
    (
        "B51 a tool of the gateway",
        WRITE,
        {"name": "call_tool_write", "args": {"name": "old:hang"}},
        NOT_FOUND,
        "No tool is named 'call_tool_write'.",
        "retrieve_tools",
    ),
    (
        "B51 a tool of the gateway's own server",
        WRITE,
        {"name": "smart-mcp-proxy:retrieve_tools"},
        NOT_FOUND,
        "No tool is named 'smart-mcp-proxy:retrieve_tools'.",
        "retrieve_tools",
    ),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "words", "advice"), [row[1:] for row in BAD_CALLS], ids=[row[0] for row in BAD_CALLS]
)
async def test_a_bad_call_has_its_own_words(
    wire: Wire, ledger: Path, tool: str, arguments: Any, code: str, words: str, advice: str
) -> None:
    """As a result with `isError` that says what is wrong, what to do, and that nothing was sent."""
    before = ledger.read_text("utf-8")
    result = await outcome(wire, tool, arguments)
    error = json.loads(result["content"][0]["text"])["error"]
    assert result["isError"] is True
    assert error["delivery"] == "not_sent"
    assert error["code"] == code, error
    assert words in error["message"]
    assert advice in error["hint"]
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
    await outcome(wire, SEARCH, {"query": "lighthouse register " * 5_000})
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
