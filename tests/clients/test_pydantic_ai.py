"""pydantic-ai as the agent library: its agent finds a tool and calls it, by what the gateway tells it."""

import json
from typing import Any

import anyio
import pytest
from fastmcp.client.transports import StdioTransport
from installed import Installation
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

INIT_S = 30.0
"""The library's own 5 s are not always enough for a first start on a busy machine."""


@pytest.fixture(params=["stdio", "http"])
def toolset(request: pytest.FixtureRequest, installation: Installation) -> MCPToolset[Any]:
    """The gateway as pydantic-ai reaches it."""
    if request.param == "http":
        return MCPToolset(request.getfixturevalue("url"), init_timeout=INIT_S)
    command, *arguments = installation.command
    transport = StdioTransport(command=command, args=arguments, env=installation.env, keep_alive=False)
    return MCPToolset(transport, init_timeout=INIT_S)


THINKING_S = 0.25
"""A model takes its time: without it, one that searches again while servers start would spend its requests at once."""


async def follow_the_answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model with no knowledge of its own: it searches, calls what it found in the way it was told, and repeats."""
    await anyio.sleep(THINKING_S)
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not returned:
        assert "retrieve_tools" in {tool.name for tool in info.function_tools}
        return ModelResponse([ToolCallPart("retrieve_tools", {"query": "add a task to the todo list"})])
    content = returned[0].content
    answer: Any = json.loads(content) if isinstance(content, str) and content.startswith("{") else content
    if returned[0].tool_name != "retrieve_tools":
        return ModelResponse([TextPart(f"done: {content}")])
    if "search again" in answer["hint"]:  # the servers are still starting
        return ModelResponse([ToolCallPart("retrieve_tools", {"query": "add a task to the todo list"})])
    best = answer["tools"][0]
    return ModelResponse([ToolCallPart(best["call_with"], {"name": best["name"], "args": {"title": "Milk"}})])


async def test_an_agent_finds_a_tool_and_calls_it(toolset: MCPToolset[Any]) -> None:
    """Everything it needs to know stands in the answers."""
    agent = Agent(FunctionModel(follow_the_answers), toolsets=[toolset])
    with anyio.fail_after(60):
        result = await agent.run("Put milk on my list.", usage_limits=UsageLimits(request_limit=None))
    assert result.output.startswith("done: ")
    assert "Milk" in result.output


async def test_the_librarys_test_model_can_call_the_search(toolset: MCPToolset[Any]) -> None:
    """It makes arguments up from the schema alone, so the schema has to be one that it understands."""
    agent = Agent(TestModel(call_tools=["retrieve_tools"]), toolsets=[toolset])
    with anyio.fail_after(60):
        result = await agent.run("anything")
    assert json.loads(result.output)["retrieve_tools"]["query"] == "a"
