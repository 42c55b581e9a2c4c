"""What an agent can call, what is refused, and what comes back, over every transport and in both eras."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import META, Agent
from odd_content import CONTENT, LONG_TEXT
from transports import CUT_CHARS

from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri

pytestmark = pytest.mark.anyio

UPSTREAMS = pytest.mark.parametrize("server", ["old", "new"])


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    """The error inside a tool result."""
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    error: dict[str, Any] = result["structuredContent"]["error"]
    return error


@pytest.mark.requirement("call-variants")
@UPSTREAMS
@pytest.mark.parametrize(
    ("variant", "tool"), [("read", "look"), ("write", "echo"), ("write", "look"), ("destructive", "erase")]
)
async def test_each_call_tool_calls_what_it_may(agent: Agent, server: str, variant: str, tool: str) -> None:
    """Arguments arrive as they were given; the canonical and the listed name reach the same tool."""
    for name in (f"{server}:{tool}", f"{server}__{tool}"):
        result = await agent.call(f"call_tool_{variant}", name=name, args={"entry": 3, "more": [None, 1.5, "é"]})
        assert json.loads(result["content"][0]["text"]) == {"entry": 3, "more": [None, 1.5, "é"]}


@pytest.mark.requirement("intent-refused")
@pytest.mark.parametrize(
    ("variant", "tool", "instead"),
    [
        ("read", "erase", "call_tool_destructive"),
        ("write", "erase", "call_tool_destructive"),
        ("read", "paint", "call_tool_write"),
        ("read", "echo", "call_tool_write"),
    ],
)
async def test_a_call_beyond_its_intent_is_refused_before_it_is_sent(
    agent: Agent, variant: str, tool: str, instead: str
) -> None:
    """A client may approve reads by itself, so a read never reaches a tool that is not marked read-only."""
    error = error_of(await agent.call(f"call_tool_{variant}", name=f"old:{tool}", args={"entry": 1, "colour": "red"}))
    assert (error["code"], error["delivery"]) == ("intent_mismatch", "not_sent")
    assert error["data"]["call_with"] == instead
    assert instead in error["hint"]


@pytest.mark.requirement("intent-nested")
async def test_a_nested_intent_that_contradicts_the_call_tool_is_refused(agent: Agent) -> None:
    """The older form is a second key: it must fit where it is given, and nothing asks for it."""
    fitting = {"operation_type": "write", "reason": "why not"}
    assert not (await agent.call("call_tool_write", name="old:echo", intent=fitting)).get("isError")
    error = error_of(await agent.call("call_tool_write", name="old:echo", intent={"operation_type": "read"}))
    assert error["code"] == "intent_mismatch"


@pytest.mark.requirement("args-forms")
async def test_arguments_come_as_object_or_as_json_text_or_not_at_all(agent: Agent) -> None:
    """All forms mean the same."""
    for given, arrived in (
        ({"args": {"a": [1]}}, {"a": [1]}),
        ({"args_json": '{"a": [1]}'}, {"a": [1]}),
        ({"arguments": {"a": [1]}}, {"a": [1]}),
        ({}, {}),
    ):
        result = await agent.call("call_tool_write", name="new:echo", **given)
        assert json.loads(result["content"][0]["text"]) == arrived


@pytest.mark.requirement("args-wrong")
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"args": {"a": 1}, "args_json": '{"a": 1}'}, "args and args_json are both given"),
        ({"args": {"a": 1}, "arguments": {"a": 1}}, "args and arguments are both given"),
        ({"args_json": "{'a': 1}"}, "args_json is not JSON"),
        ({"args_json": "[1]"}, "args_json holds '[1]', which is no object"),
        ({"args": [1]}, "args is [1]"),
    ],
)
async def test_arguments_in_a_wrong_form_are_an_error_that_says_which(
    agent: Agent, given: dict[str, Any], complaint: str
) -> None:
    """Nothing is guessed and nothing is sent."""
    error = error_of(await agent.call("call_tool_write", name="new:echo", **given))
    assert (error["code"], error["delivery"]) == ("invalid_arguments", "not_sent")
    assert complaint in error["message"]


@pytest.mark.requirement("schema-repair")
async def test_a_missing_argument_returns_the_schema_it_can_be_repaired_from(agent: Agent) -> None:
    """The upstream is not bothered with a call that cannot work."""
    error = error_of(await agent.call("call_tool_read", name="old:look", args={}))
    assert (error["code"], error["delivery"]) == ("invalid_arguments", "not_sent")
    assert "entry" in error["message"]
    assert "required" in error["message"]
    schema = error["data"]["input_schema"]
    assert schema["required"] == ["entry"]
    repaired = dict.fromkeys(schema["required"], 1)
    assert not (await agent.call("call_tool_read", name="old:look", args=repaired)).get("isError")


@pytest.mark.requirement("unknown-tool")
async def test_an_unknown_tool_is_answered_with_the_names_it_may_have_meant(agent: Agent) -> None:
    """One round trip to the right name."""
    error = error_of(await agent.call("call_tool_write", name="old:ecko"))
    assert (error["code"], error["delivery"]) == ("tool_not_found", "not_sent")
    assert error["data"]["did_you_mean"][0] == "old:echo"
    assert "old:echo" in error["hint"]


@pytest.mark.requirement("digest")
async def test_a_digest_that_is_not_the_definitions_refuses_the_call(agent: Agent) -> None:
    """The agent's own check that the tool is the one it read about."""
    (tool,) = (await agent.call("describe_tool", names=["old:look"]))["structuredContent"]["tools"]
    fitting = {"name": "old:look", "args": {"entry": 1}, "digest": tool["digest"]}
    assert not (await agent.call("call_tool_read", **fitting)).get("isError")
    error = error_of(await agent.call("call_tool_read", **fitting | {"digest": "sha256:0000000000000000"}))
    assert (error["code"], error["delivery"]) == ("definition_changed", "not_sent")


@pytest.mark.requirement("result-content")
@UPSTREAMS
async def test_every_kind_of_content_comes_whole(agent: Agent, server: str) -> None:
    """Text, image, audio, link, embedded text and bytes, with their annotations and metadata."""
    result = await agent.call("call_tool_write", name=f"{server}:kinds")
    assert result["content"] == [linked(block, server) for block in CONTENT]
    assert "structuredContent" not in result


def linked(block: dict[str, Any], server: str) -> dict[str, Any]:
    """A block as the gateway passes it on: the URI of a resource is the one by which it is read here."""
    if block["type"] == "resource_link":
        return {**block, "uri": gateway_uri(server, block["uri"])}
    if block["type"] == "resource":
        return {**block, "resource": {**block["resource"], "uri": gateway_uri(server, block["resource"]["uri"])}}
    return block


@pytest.mark.requirement("result-unknown-kind")
@UPSTREAMS
async def test_content_of_an_unknown_kind_is_told_and_unknown_members_come_whole(agent: Agent, server: str) -> None:
    """Client libraries would refuse the whole result for it."""
    result = await agent.call("call_tool_write", name=f"{server}:unknown_kind")
    told, after = result["content"]
    assert "its content[0] is of the unknown kind 'hologram'" in told["text"]
    assert (after, result["futureKey"]) == ({"type": "text", "text": "after it"}, [1])


@pytest.mark.requirement("result-structured")
@UPSTREAMS
@pytest.mark.parametrize("value", [{"a": {"b": [1, None]}}, [1, {"a": 2}], 2.5, "text", None, False], ids=repr)
async def test_structured_content_comes_as_the_era_allows(agent: Agent, server: str, value: Any) -> None:
    """Any JSON value in the modern era; up to 2025-11-25 only an object is legal, so another value is left out."""
    result = await agent.call("call_tool_write", name=f"{server}:structured", args={"value": value})
    assert result["content"] == [{"type": "text", "text": "see the value"}]
    if agent.era == "modern" or isinstance(value, dict):
        assert result["structuredContent"] == value
        assert type(result["structuredContent"]) is type(value)
    else:
        assert "structuredContent" not in result


@pytest.mark.requirement("result-error")
@UPSTREAMS
async def test_a_tools_own_failure_is_its_result(agent: Agent, server: str) -> None:
    """The gateway adds nothing to what the tool says about itself."""
    result = await agent.call("call_tool_write", name=f"{server}:fails")
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "the register is under water"}]
    assert result["structuredContent"] == {"depth_m": 2}


@pytest.mark.requirement("result-meta")
@UPSTREAMS
async def test_metadata_of_a_result_comes_through_except_what_belongs_to_the_connection(
    agent: Agent, server: str
) -> None:
    """The upstream's name for itself is not passed off as the gateway's."""
    meta = (await agent.call("call_tool_write", name=f"{server}:meta"))["_meta"]
    info = meta.pop(META + "serverInfo", None)
    assert meta == {"example.org/trace": {"span": 7, "parts": [1, None]}, "plain": True}
    assert info == ({"name": "smart-mcp-proxy", "version": info["version"]} if agent.era == "modern" else None)


@pytest.mark.requirement("result-type")
@UPSTREAMS
async def test_a_result_says_complete_in_the_modern_era_only(agent: Agent, server: str) -> None:
    """The member came with 2026-07-28; older clients never see it, whatever the upstream speaks."""
    result = await agent.call("call_tool_write", name=f"{server}:echo")
    assert result.get("resultType") == ("complete" if agent.era == "modern" else None)


@pytest.mark.requirement("rpc-error")
@UPSTREAMS
async def test_a_json_rpc_error_of_the_upstream_is_told_as_its_error(agent: Agent, server: str) -> None:
    """Code, message and data of the upstream stay readable, and the agent learns that the call was executed."""
    error = error_of(await agent.call("call_tool_write", name=f"{server}:rpc_error"))
    assert (error["code"], error["delivery"]) == ("upstream_failed", "executed")
    assert error["message"].endswith(" with error -32055: the lamp is out")
    assert error["data"] == {"rpc_code": -32055, "rpc_data": {"lamp": 3}}


@pytest.mark.requirement("result-big")
@UPSTREAMS
async def test_two_megabytes_of_text_come_whole(agent: Agent, server: str) -> None:
    """Nothing is cut unless the settings ask for it."""
    result = await agent.call("call_tool_write", name=f"{server}:big")
    assert result["content"][0]["text"] == LONG_TEXT


@pytest.mark.requirement("meta-in")
@UPSTREAMS
async def test_the_agents_metadata_reaches_the_upstream_without_connection_keys(agent: Agent, server: str) -> None:
    """Trace context passes; who the agent is and which progress token it chose do not."""
    mine = {"traceparent": "00-1-2-01", "example.org/x": [1]}
    exchange = await agent.begin(
        "tools/call", token=True, name="call_tool_write", arguments={"name": f"{server}:seen"}, _meta=mine
    )
    answer = await asyncio.wait_for(exchange.answer, 5)
    seen = json.loads(answer["result"]["content"][0]["text"])["meta"]
    theirs = {key: value for key, value in seen.items() if not key.startswith(META)}
    assert theirs.pop("progressToken") != exchange.id
    assert theirs == mine
    assert seen.get(META + "clientInfo", {}).get("name") in (None, "smart-mcp-proxy")


@pytest.mark.requirement("env-closed")
async def test_a_server_sees_only_a_few_harmless_variables(agent: Agent) -> None:
    """Nothing of the gateway's own settings, which may hold tokens."""
    result = await agent.call("call_tool_write", name="old:seen")
    env = json.loads(result["content"][0]["text"])["env"]
    assert "PATH" in env
    assert not [name for name in env if name.startswith("MCPPROXY")]


@pytest.mark.requirement("progress")
@UPSTREAMS
async def test_progress_arrives_while_the_call_runs(agent: Agent, server: str) -> None:
    """The first step is heard before the second is even begun, and both before the answer."""
    arguments = {"name": f"{server}:steps", "args": {"label": agent.era}}
    with anyio.fail_after(10):
        exchange = await agent.begin("tools/call", token=True, name="call_tool_write", arguments=arguments)
        first = await exchange.heard.get()
        assert not exchange.answer.done()
        await agent.call("call_tool_write", name=f"{server}:go", args={"label": agent.era})
        second, answer = await exchange.heard.get(), await exchange.answer
    assert [step["params"] for step in (first, second)] == [
        {"progressToken": exchange.id, "progress": 1, "total": 2, "message": "half"},
        {"progressToken": exchange.id, "progress": 2, "total": 2, "message": "whole"},
    ]
    assert answer["result"]["content"] == [{"type": "text", "text": "two steps"}]
    assert exchange.heard.empty()
    assert exchange.content_type in ("", "text/event-stream")


@pytest.mark.requirement("reply-form")
async def test_a_reply_on_http_is_json_unless_something_may_come_before_it(agent: Agent) -> None:
    """Without a progress token nothing can, so the reply is one body; `test_agent_progress` shows replies with one."""
    exchange = await agent.begin("tools/call", name="call_tool_write", arguments={"name": "new:echo"})
    await asyncio.wait_for(exchange.answer, 5)
    assert exchange.content_type in ("", "application/json")


@pytest.mark.requirement("cancel")
@UPSTREAMS
@pytest.mark.parametrize("token", [True, False], ids=["token", "plain"])
async def test_a_cancelled_call_is_cancelled_upstream(
    agent: Agent, server: str, token: bool, ledger: Path, request: pytest.FixtureRequest
) -> None:
    """The server hears of it, and the connection goes on serving others."""
    label = request.node.callspec.id
    arguments = {"name": f"{server}:hang", "args": {"label": label}}
    with anyio.fail_after(10):
        exchange = await agent.begin("tools/call", token=token, name="call_tool_write", arguments=arguments)
        await written(ledger, f"started {label}")
        await agent.cancel(exchange)
        await written(ledger, f"cancelled {label}")
        result = await agent.call("call_tool_write", name=f"{server}:echo", args={"still": "here"})
    assert result["content"][0]["text"] == '{"still": "here"}'


async def written(ledger: Path, line: str) -> None:
    """Returns once the servers' ledger has this line."""
    while line not in ledger.read_text("utf-8").splitlines():
        await asyncio.sleep(0.01)


@pytest.mark.requirement("cut-text")
async def test_a_long_text_is_cut_and_can_be_read_to_its_end(cut_agent: Agent) -> None:
    """The pages put together are the whole text."""
    result = await cut_agent.call("call_tool_write", name="new:lines", args={"count": 1000})
    text = result["content"][0]["text"]
    whole = "\n".join(f"line {number} é" for number in range(1000))
    assert len(text) <= CUT_CHARS
    assert text.endswith(whole[-50:])
    note = result["_meta"]["dev.smartmcpproxy/truncated"]
    assert (note["unit"], note["total_chars"]) == ("characters", len(whole))
    assert note["key"] in text
    assert await paged(cut_agent, note["key"], 5000) == [whole[at : at + 5000] for at in range(0, len(whole), 5000)]


@pytest.mark.requirement("cut-records")
async def test_a_long_array_is_cut_between_records_and_paged_by_record(cut_agent: Agent) -> None:
    """No record is torn, and the next offset is the number of records shown."""
    result = await cut_agent.call("call_tool_write", name="old:records", args={"count": 200})
    text = result["content"][0]["text"]
    note = result["_meta"]["dev.smartmcpproxy/truncated"]
    assert len(text) <= CUT_CHARS
    assert note["unit"] == "records"
    head = text.partition("\n[...")[0]
    shown = json.loads(f"{head}]")
    assert f"offset={len(shown)} " in text
    rest = await paged(cut_agent, note["key"], 90, start=len(shown))
    assert [*shown, *(record for page in rest for record in page)] == [
        {"row": row, "pad": "x" * 20} for row in range(200)
    ]


@pytest.mark.requirement("cut-key")
async def test_a_wrong_key_and_an_offset_behind_the_end_are_errors(cut_agent: Agent) -> None:
    """Each says what to do."""
    error = error_of(await cut_agent.call("read_output", key="0" * 32))
    assert error["code"] == "output_not_found"
    result = await cut_agent.call("call_tool_write", name="new:lines", args={"count": 500})
    key = result["_meta"]["dev.smartmcpproxy/truncated"]["key"]
    assert "behind the end" in error_of(await cut_agent.call("read_output", key=key, offset=10**9))["message"]


async def paged(agent: Agent, key: str, limit: int, start: int = 0) -> list[Any]:
    """All pages of a kept output from `start` on."""
    pages: list[Any] = []
    offset: int | None = start
    while offset is not None:
        result = await agent.call("read_output", key=key, offset=offset, limit=limit)
        page = result["structuredContent"]
        pages.append(page["text"] if page["unit"] == "characters" else page["records"])
        offset = page["next_offset"]
    return pages
