"""Tool search of model APIs: the documented requests are replayed, and answered in the documented forms."""

import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import Client
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseInputItemParam,
    ResponseToolSearchCall,
    ToolSearchToolParam,
)
from openai.types.responses.tool_search_output_namespace_tool_param import ToolSearchOutputNamespaceToolParam
from pydantic import TypeAdapter, ValidationError

from smart_mcp_proxy.client.tool_search import AnthropicToolSearch, OpenAIToolSearch
from smart_mcp_proxy.client.tool_search.parts import shorten_name
from smart_mcp_proxy.demo import demo_servers
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
ADD = "todo__add_task"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the gateway that all of them share."""
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A client of a gateway in front of the demo's servers."""
    servers = load_servers(json.dumps({"mcpServers": demo_servers()})).servers
    settings = Settings(data_dir=tmp_path_factory.mktemp("search"))
    async with open_gateway(settings, servers, environ={}) as opened:
        opened.start_upstreams()
        assert await opened.wait_settled(30)
        async with Client(opened.mcp_server()) as client:
            yield client


def tool_use(name: str, input: Any, id: str = "toolu_your_tool_id") -> dict[str, Any]:
    """The content of an assistant's message.

    Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
    """
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def search_call(arguments: Any, **changes: Any) -> dict[str, Any]:
    """The output item of the first turn of a search that the client executes.

    Source: https://developers.openai.com/api/docs/guides/tools-tool-search
    """
    item = {
        "type": "tool_search_call",
        "id": "tsc_1",
        "execution": "client",
        "call_id": "call_abc123",
        "status": "completed",
        "arguments": arguments,
    }
    return item | changes


def function_call(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "call_2", "name": name, "arguments": arguments}


async def test_a_search_of_claude_s_is_answered_with_references(gateway: Client[Any]) -> None:
    """As "Custom tool search implementation" has it: a `tool_result` whose content is `tool_reference` blocks, and each
    tool that is referred to has its definition, deferred, in the next request."""
    search = AnthropicToolSearch(gateway)
    (own,) = search.tools
    assert own["name"] == "find_tools" and own["input_schema"]["required"] == ["query"]
    assert "defer_loading" not in own  # one tool must not be deferred
    result = await search.answer(tool_use("find_tools", {"query": "add a task to the list"}))
    assert {key: value for key, value in result.items() if key != "content"} == {
        "type": "tool_result",
        "tool_use_id": "toolu_your_tool_id",
    }
    assert result["content"][0] == {"type": "tool_reference", "tool_name": ADD}
    names = [reference["tool_name"] for reference in result["content"]]
    definitions = {tool["name"]: tool for tool in search.tools[1:]}
    assert set(definitions) == set(names)
    assert all(tool["defer_loading"] is True for tool in definitions.values())
    assert definitions[ADD]["input_schema"]["properties"]["title"]["type"] == "string"
    assert set(definitions[ADD]) == {"name", "description", "input_schema", "defer_loading"}


async def test_what_was_found_is_called_with_the_tool_that_the_gateway_names(gateway: Client[Any]) -> None:
    """And nothing else is: a tool that was not found is an error result, not a call."""
    search = AnthropicToolSearch(gateway)
    await search.answer(tool_use("find_tools", {"query": "add a task"}))
    done = await search.answer(tool_use(ADD, {"title": "Buy milk"}, "toolu_2"))
    assert (done["tool_use_id"], done.get("is_error")) == ("toolu_2", None)
    assert "Buy milk" in done["content"][0]["text"]
    for name, arguments in ((ADD, {"titel": "x"}), ("clock__now", {}), ("retrieve_tools", {"query": "x"})):
        failed = await search.answer(tool_use(name, arguments))
        assert failed["is_error"] is True and failed["content"][0]["text"]


async def test_nothing_found_is_said_in_words(gateway: Client[Any]) -> None:
    """With the gateway's hint; an empty query is the model's to repair."""
    search = AnthropicToolSearch(gateway)
    result = await search.answer(tool_use("find_tools", {"query": "launch quantum whales to jupiter"}))
    assert [block["type"] for block in result["content"]] == ["text"] and "is_error" not in result
    for arguments in ({}, {"query": " "}, {"query": 7}):
        assert (await search.answer(tool_use("find_tools", arguments)))["is_error"] is True


async def test_the_server_s_own_form_is_answered_for_who_serves_the_api(gateway: Client[Any]) -> None:
    """As "Response format" and "Error handling" have it: `tool_search_tool_result`, with the API's error codes."""
    search = AnthropicToolSearch(gateway)

    async def asked(name: str, query: str) -> Any:
        block = {"type": "server_tool_use", "id": "srvtoolu_01ABC123", "name": name, "input": {"query": query}}
        result = await search.answer(block)
        assert (result["type"], result["tool_use_id"]) == ("tool_search_tool_result", "srvtoolu_01ABC123")
        return result["content"]

    found = await asked("tool_search_tool_bm25", "add a task")
    assert found["type"] == "tool_search_tool_search_result"
    assert found["tool_references"][0] == {"type": "tool_reference", "tool_name": ADD}
    found = await asked("tool_search_tool_regex", r"(?i)add_task|task.*add")
    assert found["tool_references"][0]["tool_name"] == ADD
    for pattern, code in (("(", "invalid_pattern"), ("x" * 201, "pattern_too_long"), (".*", "invalid_pattern")):
        error = {"type": "tool_search_tool_result_error", "error_code": code}
        assert await asked("tool_search_tool_regex", pattern) == error
    assert (await asked("tool_search_tool_bm25", ""))["error_code"] == "unavailable"


async def test_a_search_of_the_responses_api_is_answered_with_definitions(gateway: Client[Any]) -> None:
    """In the types of OpenAI's SDK: the tool that is declared, the call that is read, the output that is sent."""
    search = OpenAIToolSearch(gateway)
    (own,) = search.tools
    TypeAdapter(ToolSearchToolParam).validate_python(own, strict=True)
    assert (own["type"], own["execution"]) == ("tool_search", "client")
    call = ResponseToolSearchCall.model_validate(search_call({"query": "add a task to the list"}))
    output = await search.answer(call)
    assert {key: output[key] for key in ("type", "execution", "call_id", "status")} == {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": "call_abc123",
        "status": "completed",
    }
    TypeAdapter(ResponseInputItemParam).validate_python(output)
    namespace = output["tools"][0]
    TypeAdapter(ToolSearchOutputNamespaceToolParam).validate_python(namespace, strict=True)
    assert (namespace["type"], namespace["name"]) == ("namespace", "todo")
    function = namespace["tools"][0]
    assert (function["type"], function["name"]) == ("function", ADD)
    assert (function["defer_loading"], function["strict"]) == (True, False)
    assert function["parameters"]["properties"]["title"]["type"] == "string"
    flat = await OpenAIToolSearch(gateway, has_namespaces=False).answer(search_call({"query": "add a task"}))
    assert flat["tools"][0]["name"] == ADD


async def test_arguments_of_other_schemas_are_understood(gateway: Client[Any]) -> None:
    """`goal` of the documentation's example, `paths` of the Agents SDK, and JSON text."""
    search = OpenAIToolSearch(gateway, has_namespaces=False)
    for arguments in ({"goal": "add a task"}, {"paths": ["add", "task"]}, '{"query": "add a task", "limit": 2}'):
        output = await search.answer(search_call(arguments))
        assert (output["status"], output["tools"][0]["name"]) == ("completed", ADD)
        assert len(output["tools"]) <= 5
    assert len((await search.answer(search_call({"query": "task", "limit": 1})))["tools"]) == 1
    assert (await search.answer(search_call({"query": "task", "limit": 10**9})))["status"] == "completed"


async def test_a_function_that_was_found_is_called(gateway: Client[Any]) -> None:
    """Its output is text; a failure is text that says so."""
    search = OpenAIToolSearch(gateway)
    await search.answer(search_call({"query": "add a task"}))
    call = ResponseFunctionToolCall.model_validate(function_call(ADD, '{"title": "Buy tea"}'))
    output = await search.answer(call)
    assert (output["type"], output["call_id"]) == ("function_call_output", "call_2")
    assert "Buy tea" in output["output"]
    TypeAdapter(ResponseInputItemParam).validate_python(output)
    for name, arguments in ((ADD, "{"), (ADD, "[]"), ("clock__now", "{}")):
        assert (await search.answer(function_call(name, arguments)))["output"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (AnthropicToolSearch, {"type": "text", "text": "x"}),
        (AnthropicToolSearch, {"type": "tool_use", "name": "find_tools", "input": {}}),
        (AnthropicToolSearch, "tool_use"),
        (AnthropicToolSearch, None),
        (OpenAIToolSearch, search_call({"query": "x"}, execution="server", call_id=None)),
        (OpenAIToolSearch, search_call({"query": "x"}, call_id=None)),
        (OpenAIToolSearch, {"type": "message", "content": []}),
        (OpenAIToolSearch, {}),
    ],
)
async def test_what_is_no_call_for_us_is_refused(gateway: Client[Any], kind: Any, part: Any) -> None:
    """In a sentence: also a search that the API has answered itself."""
    with pytest.raises(RequestError):
        await kind(gateway).answer(part)


async def test_bad_searches_are_outputs_and_bad_limits_errors(gateway: Client[Any]) -> None:
    """The model gets an answer to each of its calls; the program that is wrong gets an exception."""
    search = OpenAIToolSearch(gateway)
    for arguments in ({}, "{", "[1]", None, {"query": ""}):
        output = await search.answer(search_call(arguments))
        assert (output["status"], output["tools"], output["call_id"]) == ("incomplete", [], "call_abc123")
    for limit in (0, 51):
        with pytest.raises(RequestError, match="limit is"):
            AnthropicToolSearch(gateway, limit=limit)


async def test_filters_hold_for_every_search(gateway: Client[Any]) -> None:
    """Servers, and tools that only read; a server that is not there makes the search fail, in words."""
    search = AnthropicToolSearch(gateway, servers=["todo"], read_only=True)
    result = await search.answer(tool_use("find_tools", {"query": "list the tasks"}))
    assert {search.found[block["tool_name"]].server for block in result["content"]} == {"todo"}
    assert {tool.call_with for tool in search.found.values()} == {"call_tool_read"}
    unknown = AnthropicToolSearch(gateway, servers=["nowhere"])
    failed = await unknown.answer(tool_use("find_tools", {"query": "x"}))
    assert failed["is_error"] is True and "nowhere" in failed["content"][0]["text"]


@pytest.mark.parametrize("limit", [OpenAIToolSearch.name_limit, AnthropicToolSearch.name_limit])
def test_names_that_are_too_long_for_an_api_are_shortened_and_stay_different(limit: int) -> None:
    """Others stay as they are."""
    names = ["x" * length for length in (1, limit, limit + 1, limit + 2, 500)]
    shown = [shorten_name(name, limit) for name in names]
    assert shown[:2] == names[:2]
    assert len(set(shown)) == len(names) and max(map(len, shown)) == limit


def test_the_sdk_s_types_would_refuse_another_form() -> None:
    """So that the tests above can fail."""
    for wrong in ({"type": "tool_search", "execution": "elsewhere"}, {"execution": "client"}):
        with pytest.raises(ValidationError):
            TypeAdapter(ToolSearchToolParam).validate_python(wrong)


class Scripted:
    """A model that follows a script, and keeps what it was sent."""

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)
        self.requests: list[dict[str, Any]] = []

    async def create(self, **request: Any) -> Any:
        self.requests.append(json.loads(json.dumps(request, default=vars)))
        return self._replies.pop(0)


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Part(SimpleNamespace):
    """A part of an answer, as an SDK gives it."""

    def model_dump(self) -> dict[str, Any]:
        return json.loads(json.dumps(vars(self), default=vars))  # type: ignore[no-any-return]


async def test_the_example_for_claude_searches_calls_and_ends(gateway: Client[Any]) -> None:
    """Three turns: a search, a call of what it found, the answer."""
    turns = [
        Part(content=[Part(**tool_use("find_tools", {"query": "add a task"}, "toolu_1"))]),
        Part(content=[Part(**tool_use(ADD, {"title": "Call Ada"}, "toolu_2"))]),
        Part(content=[Part(type="text", text="Done.")]),
    ]
    model = Scripted(*turns)
    words = await example("tool_search_anthropic").converse(model, AnthropicToolSearch(gateway), "Add it.", "m")
    assert words == "Done."
    first, second, third = model.requests
    assert [tool["name"] for tool in first["tools"]] == ["find_tools"]
    referred = {block["tool_name"] for block in second["messages"][-1]["content"][0]["content"]}
    assert referred <= {tool["name"] for tool in second["tools"] if tool.get("defer_loading")}
    assert "Call Ada" in json.dumps(third["messages"][-1])


async def test_the_example_for_openai_searches_calls_and_ends(gateway: Client[Any]) -> None:
    """Three turns; the search's own output loads the tools, so the request's list stays as it is."""
    turns = [
        Part(output=[Part(**search_call({"query": "add a task"}))], output_text=""),
        Part(output=[Part(**function_call(ADD, '{"title": "Call Ben"}'))], output_text=""),
        Part(output=[], output_text="Done."),
    ]
    model = Scripted(*turns)
    words = await example("tool_search_openai").converse(model, OpenAIToolSearch(gateway), "Add it.", "m")
    assert words == "Done."
    assert len({json.dumps(request["tools"]) for request in model.requests}) == 1
    assert [item["type"] for item in model.requests[2]["input"][1:]] == [
        "tool_search_call",
        "tool_search_output",
        "function_call",
        "function_call_output",
    ]
