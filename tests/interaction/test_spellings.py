"""Parameters of the gateway's own tools, spelt in the ways that agents and their frameworks spell them.

Each tool: ten spellings of one call that has to answer as the call spelt plainly does, through the fast path and the
SDK. What is passed on to a server arrives as it was sent.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from agents import Agent, wait_covered
from transports import CUT_CHARS, in_memory, odd_servers, opened_gateway, over_http, served

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("spellings")]

Row = dict[str, Any]

PASSED_ON: Row = {"n": 1, "nothing": None, "empty": "", "text": "[1]", "object": '{"a": null}', "list": [None, ""]}
LOOKED: Row = {"entry": 7}
MEMBERS = {"name": "old:echo", "args": PASSED_ON}
SCRIPT = "[input['n'], call_tool('old:look', {'entry': input['n']})]"
OPERATION = {"action": "info", "type": "tool", "path": "old:look"}
INTENT = {"operation_type": None, "data_sensitivity": "", "reason": None}
VOLATILE = frozenset({"generation", "index_age_s", "tokens"})


def call_rows(name: str, args: Row) -> tuple[Row, list[Row]]:
    """A call tool's plain call and its other spellings."""
    text = json.dumps(args)
    return {"name": name, "args": args}, [
        {"name": name, "args": text},
        {"name": name, "args": f"  {text}\n", "args_json": None},
        {"name": name, "args": args, "args_json": ""},
        {"name": name, "args": args, "args_json": "{}", "digest": None},
        {"name": name, "args": {}, "args_json": text},
        {"name": name, "args": "", "args_json": text},
        {"name": name, "args": None, "args_json": text, "intent_reason": None},
        {"name": name, "arguments": args},
        {"name": name, "arguments": text, "args": {}},
        {"name": name, "args": "{}", "args_json": text, "intent_data_sensitivity": ""},
        {"name": name, "args": args, "intent": None, "intent_data_sensitivity": None, "digest": ""},
        {"name": name, "args": args, "intent": INTENT},
        {"name": name, "args": text, "intent": json.dumps({"reason": ""}), "intent_reason": ""},
    ]


QUERY = {"query": "look up an entry", "servers": ["old"]}
RETRIEVE: list[Row] = [
    QUERY | {"servers": "old"},
    QUERY | {"servers": '["old"]'},
    QUERY | {"limit": None},
    QUERY | {"detail": None},
    QUERY | {"detail": ""},
    QUERY | {"read_only": None, "servers": "old"},
    QUERY | {"more_queries": None},
    QUERY | {"more_queries": ""},
    QUERY | {"more_queries": "[]", "toolset": None},
    QUERY | {"types": None},
    QUERY | {"types": "tool"},
    QUERY | dict.fromkeys(("limit", "detail", "read_only", "more_queries", "toolset")),
    QUERY | dict.fromkeys(("limit", "detail", "read_only", "more_queries", "toolset"), ""),
]
DESCRIBE: list[Row] = [
    {"names": "old:look"},
    {"names": '["old:look"]'},
    {"names": ' ["old:look"]'},
    {"names": '["old:look","old:look"]'},
    {"names": "old__look"},
    {"names": '["old__look"]'},
    {"names": ["old__look"]},
    {"names": '[\n"old:look"\n]'},
    {"names": '["old\\u003alook"]'},
    {"names": ["old:look"], "detail": None},
]
SERVERS: list[Row] = [
    {"operation": "list", key: value}
    for key in ("name", "args_json", "timeout", "enabled", "revision")
    for value in (None, "")
]
CODE = {"code": SCRIPT, "input": {"n": 7}, "servers": ["old"]}
SCRIPTS: list[Row] = [
    CODE | {"servers": "old"},
    CODE | {"servers": '["old"]'},
    CODE | {"input": '{"n": 7}'},
    CODE | {"input": ' {"n": 7} ', "servers": "old"},
    CODE | {"language": None},
    CODE | {"language": ""},
    CODE | {"timeout_ms": None},
    CODE | {"max_calls": None, "timeout_ms": ""},
    CODE | {"read_only": None},
    CODE | dict.fromkeys(("language", "timeout_ms", "max_calls", "read_only")),
]
PROXY: list[Row] = [
    OPERATION | {"args": None},
    OPERATION | {"args": ""},
    OPERATION | {"filter": None},
    OPERATION | {"filter": ""},
    OPERATION | {"limit": None},
    OPERATION | {"limit": ""},
    OPERATION | {"cursor": ""},
    OPERATION | {"operations": None},
    OPERATION | {"operations": ""},
    OPERATION | dict.fromkeys(("args", "filter", "limit", "cursor", "operations")),
]
PROXY_LIST = {"action": "list", "type": "tool", "filter": {"server": "old", "prefix": "old__l"}}
PROXY_LISTS: list[Row] = [
    PROXY_LIST | {"filter": json.dumps(PROXY_LIST["filter"])},
    PROXY_LIST | {"filter": {"server": "old", "prefix": "old__l", "tags": None}},
    PROXY_LIST | {"filter": {"server": "old", "prefix": "old__l", "tags": ""}},
    PROXY_LIST | {"filter": {"server": "old", "prefix": "old__l", "tags": "[]"}, "path": ""},
    PROXY_LIST | {"path": None, "args": None},
]
PROXY_CALL = {"action": "call", "type": "tool", "path": "old:echo", "args": PASSED_ON}
PROXY_CALLS: list[Row] = [
    PROXY_CALL | {"args": json.dumps(PASSED_ON)},
    PROXY_CALL | {"args": f" {json.dumps(PASSED_ON)}"},
    PROXY_CALL | {"filter": None, "limit": None, "cursor": ""},
    PROXY_CALL | {"filter": "", "operations": ""},
]
PROXY_BATCH = {"action": "batch", "operations": [PROXY_CALL]}
PROXY_BATCHES: list[Row] = [
    PROXY_BATCH | {"operations": json.dumps([PROXY_CALL])},
    PROXY_BATCH | {"operations": [PROXY_CALL | {"args": json.dumps(PASSED_ON), "limit": None}]},
    PROXY_BATCH | {"type": "", "path": None},
]
READ: list[Row] = [
    {"offset": None},
    {"offset": None, "limit": None},
    {"limit": None},
    {"limit": ""},
    {"offset": ""},
    {"offset": "", "limit": ""},
    {"offset": 0, "limit": None},
    {"offset": None, "limit": 4000},
    {"offset": "", "limit": None},
    {"offset": None, "limit": ""},
]
ROWS: dict[str, tuple[str, Row, list[Row]]] = {
    "retrieve_tools": ("retrieve_tools", QUERY, RETRIEVE),
    "describe_tool": ("describe_tool", {"names": ["old:look"]}, DESCRIBE),
    "call_tool_write": ("call_tool_write", *call_rows("old:echo", PASSED_ON)),
    "call_tool_read": ("call_tool_read", *call_rows("old:look", LOOKED)),
    "call_tool_destructive": ("call_tool_destructive", *call_rows("old:erase", LOOKED)),
    "read_output": ("read_output", {}, READ),
    "upstream_servers": ("upstream_servers", {"operation": "list"}, SERVERS),
    "code_execution": ("code_execution", CODE, SCRIPTS),
    "proxy": ("proxy", OPERATION, PROXY),
    "proxy-list": ("proxy", PROXY_LIST, PROXY_LISTS),
    "proxy-call": ("proxy", PROXY_CALL, PROXY_CALLS),
    "proxy-batch": ("proxy", PROXY_BATCH, PROXY_BATCHES),
}
SPELLINGS = [(name, row) for name, (_, _, rows) in ROWS.items() for row in range(len(rows))]


@pytest.fixture(scope="session", params=["fast", "sdk"])
async def liberal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Agent, str]]:
    """An agent of a gateway with every tool, at the fast path or the SDK's, and the key of an output that was cut."""
    folder = tmp_path_factory.mktemp("liberal")
    servers = odd_servers(folder / "ledger")
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    everything: dict[str, Any] = {"manage": True, "proxy_tool": "proxy", "code": "python", "config_path": file}
    async with AsyncExitStack() as stack:
        opening = opened_gateway(folder / "data", servers, truncate_output_len=CUT_CHARS, **everything)
        gateway = await stack.enter_async_context(opening)
        if request.param == "fast":
            base = await stack.enter_async_context(served(gateway))
            agent: Agent = await stack.enter_async_context(over_http(base, "modern"))
        else:
            agent = await stack.enter_async_context(in_memory(gateway, "handshake"))
        await wait_covered(agent)
        cut = await agent.call("call_tool_write", name="old:lines", args={"count": 1000})
        yield agent, cut["_meta"]["dev.smartmcpproxy/truncated"]["key"]


def steady(value: Any) -> Any:
    """An answer without what differs from one call to the next."""
    if isinstance(value, Mapping):
        kept = {key: steady(part) for key, part in value.items() if key not in VOLATILE}
        if isinstance(kept.get("text"), str) and kept["text"].startswith(("{", "[")):
            kept["text"] = steady(json.loads(kept["text"]))
        return kept
    return [steady(part) for part in value] if isinstance(value, list) else value


async def answer(liberal: tuple[Agent, str], name: str, arguments: Row) -> Any:
    agent, key = liberal
    tool = ROWS[name][0]
    given = {"key": key, **arguments} if tool == "read_output" else arguments
    return steady(await agent.call(tool, **given))


@pytest.mark.parametrize(("name", "row"), SPELLINGS, ids=[f"{name}-{row}" for name, row in SPELLINGS])
async def test_a_call_spelt_otherwise_answers_as_the_plain_one(name: str, row: int, liberal: tuple[Agent, str]) -> None:
    """Null and empty texts are absent; an object may be JSON text; a list one text, or a JSON array in a text."""
    _, plain, rows = ROWS[name]
    expected = await answer(liberal, name, plain)
    assert not expected.get("isError"), expected
    assert await answer(liberal, name, rows[row]) == expected


async def test_no_servers_in_any_spelling_are_all_servers(liberal: tuple[Agent, str]) -> None:
    """Two of the frameworks fill a list that was left out with null."""
    everywhere = {"query": QUERY["query"]}
    expected = await answer(liberal, "retrieve_tools", everywhere)
    assert not expected.get("isError"), expected
    for none in (None, "", [], "[]"):
        assert await answer(liberal, "retrieve_tools", everywhere | {"servers": none}) == expected, none


@pytest.mark.parametrize("name", ["call_tool_write", "proxy-call"])
async def test_what_is_passed_on_is_as_it_was_sent(name: str, liberal: tuple[Agent, str]) -> None:
    """Null, empty texts and JSON in texts mean something to the server."""
    agent, _ = liberal
    tool, plain, rows = ROWS[name]
    for arguments in (plain, rows[0]):
        found = await agent.call(tool, **arguments)
        assert [json.loads(block["text"]) for block in found["content"]] == [PASSED_ON]


WRONG: list[tuple[str, Row, str]] = [
    ("call_tool_write", {"name": "old:echo", "args": "[1]"}, "args is '[1]': input should be an object"),
    ("call_tool_write", {"name": "old:echo", "args": "red"}, "args is 'red': input should be an object"),
    ("call_tool_write", {"name": "old:echo", "args": [None]}, "args is [null]: input should be an object"),
    ("call_tool_write", {"name": "old:echo", "args": {"a": 1}, "args_json": '{"a": 1}'}, "are both given"),
    ("call_tool_write", {"name": None}, "name is missing"),
    ("call_tool_write", {"name": "old:echo", "intent": 5}, "intent is 5: input should be an object"),
    ("describe_tool", {"names": [None]}, "names.0 is null: input should be a valid string"),
    ("describe_tool", {"names": None}, "names is missing"),
    ("retrieve_tools", {"query": "x", "servers": [None]}, "servers.0 is null"),
    ("retrieve_tools", {"query": "x", "read_only": [True, None]}, "read_only is [true,null]"),
    ("proxy", {"action": "list", "type": "tool", "filter": {"tags": [None]}}, "filter.tags is [null]"),
    ("proxy", {"action": "batch", "operations": "all"}, "operations is 'all'"),
    ("upstream_servers", {"operation": None}, "operation is missing"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), WRONG, ids=[str(row) for row in range(len(WRONG))])
async def test_what_fits_no_spelling_is_refused_in_the_words_of_json(
    name: str, arguments: Row, words: str, liberal: tuple[Agent, str]
) -> None:
    """An agent sent null, and never heard of None."""
    result = await answer(liberal, name, arguments)
    message = result["structuredContent"]["error"]["message"]
    assert words in message and "None" not in message


async def test_a_framework_that_fills_in_everything_changes_nothing_of_a_server(liberal: tuple[Agent, str]) -> None:
    """An empty text is no wish to remove a field."""
    agent, _ = liberal
    listed = (await agent.request("tools/list"))["result"]["tools"]
    (schema,) = [tool["inputSchema"] for tool in listed if tool["name"] == "upstream_servers"]
    for filling in (None, ""):
        filled = dict.fromkeys(schema["properties"], filling) | {"operation": "patch", "name": "old"}
        result = await agent.call("upstream_servers", **filled)
        assert result["structuredContent"]["changed"] == [], result
