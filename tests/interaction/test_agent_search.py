"""What an agent is shown: the list, the search and the definitions, over every transport and in both eras."""

import json

import pytest
from agents import META, Agent

pytestmark = pytest.mark.anyio

SIX = ["retrieve_tools", "describe_tool", "call_tool_read", "call_tool_write", "call_tool_destructive", "read_output"]


@pytest.mark.requirement("greeting")
async def test_the_greeting_names_the_gateway_and_what_it_serves(agent: Agent) -> None:
    """Both eras: server name, instructions for the model, and no capability that is not served.

    Prompts and resources are claimed until it is known that no server has any.
    """
    result = agent.greeting["result"]
    assert {"tools"} <= set(result["capabilities"]) <= {"tools", "prompts", "resources", "completions"}
    assert "retrieve_tools" in result["instructions"]
    assert result["instructions"].endswith("\nServers: new, old.")
    if agent.era == "handshake":
        assert result["protocolVersion"] == "2025-11-25"
        assert result["serverInfo"]["name"] == "smart-mcp-proxy"
    else:
        assert "2026-07-28" in result["supportedVersions"]
        assert result["_meta"][META + "serverInfo"]["name"] == "smart-mcp-proxy"
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")


@pytest.mark.requirement("list-fixed")
async def test_the_list_has_the_six_tools_before_and_after_a_search(agent: Agent) -> None:
    """A search changes nothing in the list, so a client's prompt cache survives it."""
    before = (await agent.request("tools/list"))["result"]
    await agent.call("retrieve_tools", query="paint the lighthouse")
    after = (await agent.request("tools/list"))["result"]
    assert [tool["name"] for tool in before["tools"]] == SIX
    assert json.dumps(before["tools"]) == json.dumps(after["tools"])
    assert (before.get("resultType"), before.get("cacheScope")) == (
        ("complete", "private") if agent.era == "modern" else (None, None)
    )


@pytest.mark.requirement("search-answer")
async def test_a_search_finds_the_tool_and_says_how_to_call_it(agent: Agent) -> None:
    """Every member of the answer that an agent can rely on is there, as structured content and as text."""
    result = await agent.call("retrieve_tools", query="paint the lighthouse in a colour", servers=["new"])
    answer = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == answer
    best = answer["tools"][0]
    assert best["name"] == "new:paint"
    assert best["listed_name"] == "new__paint"
    assert best["call_with"] == "call_tool_write"
    assert best["annotations"] == {"readOnlyHint": False, "destructiveHint": False}
    assert best["digest"].startswith("sha256:")
    assert best["stale"] is False
    assert 0 < best["score"] <= 1
    assert answer["not_covered"] == [] == answer["degraded"]
    assert answer["tokens"]["sent"] < answer["tokens"]["catalog"]


@pytest.mark.requirement("search-call-with")
@pytest.mark.parametrize(
    ("tool", "call_with"), [("look", "call_tool_read"), ("erase", "call_tool_destructive"), ("echo", "call_tool_write")]
)
async def test_call_with_follows_the_hints(agent: Agent, tool: str, call_with: str) -> None:
    """Read-only, destructive, and nothing said."""
    answer = (await agent.call("retrieve_tools", query=f"old:{tool}", limit=1))["structuredContent"]
    assert [(found["name"], found["call_with"]) for found in answer["tools"]] == [(f"old:{tool}", call_with)]


@pytest.mark.requirement("search-nothing-fits")
async def test_a_search_that_fits_nothing_says_so(agent: Agent) -> None:
    """An empty list is an answer, not an error, and lists stay lists."""
    result = await agent.call("retrieve_tools", query="xylophone tuning")
    assert result["isError"] is False
    assert result["structuredContent"]["tools"] == []
    assert "Nothing fits" in result["structuredContent"]["hint"]


@pytest.mark.requirement("search-limit")
@pytest.mark.parametrize("limit", [0, 51])
async def test_a_limit_out_of_range_is_an_error(agent: Agent, limit: int) -> None:
    """It is never clamped to something the agent did not ask for."""
    result = await agent.call("retrieve_tools", query="paint", limit=limit)
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert error["code"] == "invalid_arguments"
    assert f"limit is {limit}" in error["message"]


@pytest.mark.requirement("describe")
async def test_describe_gives_whole_definitions_and_a_reason_for_each_name_without_one(agent: Agent) -> None:
    """A wrong name costs only itself."""
    result = await agent.call("describe_tool", names=["old:paint", "new__look", "old:piant"])
    painted, looked = result["structuredContent"]["tools"]
    assert painted["input_schema"]["properties"]["colour"] == {"type": "string", "enum": ["red", "white"]}
    assert (looked["name"], looked["title"], looked["call_with"]) == ("new:look", "Look it up", "call_tool_read")
    (error,) = result["structuredContent"]["errors"]
    assert (error["name"], error["code"]) == ("old:piant", "tool_not_found")
    assert "old:paint" in error["data"]["did_you_mean"]
    endless = await agent.call("describe_tool", names=["x" * 100_000])
    assert len(str(endless)) < 5_000


@pytest.mark.requirement("describe-as-sent")
async def test_a_definition_comes_as_the_server_wrote_it(agent: Agent) -> None:
    """References are not resolved and an output schema of another type than object does no harm."""
    result = await agent.call("describe_tool", names=["new:odd_definition"])
    (tool,) = result["structuredContent"]["tools"]
    assert tool["input_schema"]["properties"] == {"a": {"$ref": "#/$defs/x"}}
    assert tool["output_schema"] == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.requirement("describe-part")
async def test_a_path_opens_a_part_of_a_definition(agent: Agent) -> None:
    """Of one tool: a reference in it is followed; a wrong path is told like a wrong name."""
    result = await agent.call("describe_tool", names=["old:paint"], path="input_schema/colour")
    part = {"type": "string", "enum": ["red", "white"]}
    assert result["structuredContent"]["tools"] == [{"name": "old:paint", "path": "input_schema/colour", "part": part}]
    lost = (await agent.call("describe_tool", names=["old:paint"], path="colour"))["structuredContent"]
    assert (lost["tools"], lost["errors"][0]["code"]) == ([], "invalid_request")
    assert "input_schema" in lost["errors"][0]["hint"]
    several = await agent.call("describe_tool", names=["old:paint", "old:look"], path="input_schema")
    assert "path is given with several names" in several["structuredContent"]["error"]["message"]


@pytest.mark.requirement("unknown-listed-name")
@pytest.mark.parametrize("name", ["retrieve_tool", "old:echo", "old__echo"])
async def test_an_unlisted_name_is_a_protocol_error(agent: Agent, name: str) -> None:
    """Upstream tools are called through the call tools, and the error says where to look."""
    answer = await agent.request("tools/call", name=name, arguments={})
    assert answer["error"]["code"] == -32602
    assert repr(name) in answer["error"]["message"]
    assert "retrieve_tools" in answer["error"]["message"]


@pytest.mark.requirement("unserved-method")
@pytest.mark.parametrize("method", ["resources/list", "prompts/list"])
async def test_a_method_that_is_not_served_is_refused_as_such(agent: Agent, method: str) -> None:
    """What is not offered in the capabilities is not half there."""
    assert (await agent.request(method))["error"]["code"] == -32601


@pytest.mark.requirement("no-arguments")
async def test_a_missing_or_unknown_parameter_names_the_parameters(agent: Agent) -> None:
    """The agent can repair the call from the message alone."""
    for arguments, complaint in (({}, "query is missing"), ({"query": "x", "top": 3}, "top is not a parameter")):
        result = await agent.call("retrieve_tools", **arguments)
        error = result["structuredContent"]["error"]
        assert complaint in error["message"]
        assert "query (required)" in error["hint"]


async def test_a_check_says_whether_tools_can_be_called_and_nothing_of_them(agent: Agent) -> None:
    """Understood though the list does not show it, which stays byte for byte the same; a wrong digest is a change."""
    (listed,) = (tool for tool in (await agent.request("tools/list"))["result"]["tools"] if tool["name"] == SIX[1])
    assert list(listed["inputSchema"]["properties"]) == ["names", "path"]
    names = ["old:paint", "new__look", "old:piant", "new:look@sha256:0123456789abcdef"]
    result = await agent.call("describe_tool", names=names, check=True)
    told = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == told
    assert (result.get("isError", False), told["ok"], told["tools"], told["errors"]) == (False, False, [], [])
    assert [each["verdict"] for each in told["checks"]] == ["ok", "ok", "unknown", "changed"]
    assert "Did you mean" in told["checks"][2]["hint"]
    pinned = f"{told['checks'][0]['name']}@{told['checks'][0]['digest']}"
    again = (await agent.call("describe_tool", names=[pinned], check=True))["structuredContent"]
    assert (again["ok"], again["checks"][0]["call_with"]) == (True, "call_tool_write")
