"""The official Python SDK as the client: both eras, over stdio and HTTP."""

import json
from typing import Any

import anyio
import pytest
from installed import Installation
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, installation: Installation) -> Any:
    """What the client is pointed at."""
    if request.param == "http":
        return request.getfixturevalue("url")
    command, *arguments = installation.command
    return StdioServerParameters(command=command, args=arguments, env=installation.env)


@pytest.mark.parametrize("mode", VERSIONS)
async def test_the_sdk_lists_searches_and_calls(target: Any, mode: Any) -> None:
    """From nothing to a result, in the way an agent goes; every answer passes the SDK's own validation."""
    with anyio.fail_after(30):
        async with Client(target, mode=mode) as client:
            assert client.protocol_version == VERSIONS[mode]
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert len(names) == 6
            found: dict[str, Any] = {"hint": "search again"}
            while "search again" in found["hint"]:
                result = await client.call_tool("retrieve_tools", {"query": "add a task to the todo list"})
                assert isinstance(result.structured_content, dict)
                found = result.structured_content
            best = found["tools"][0]
            assert best["name"] == "todo:add_task"
            result = await client.call_tool(best["call_with"], {"name": best["name"], "args": {"title": "Milk"}})
            assert not result.is_error
            assert "Milk" in result.model_dump_json()


@pytest.mark.parametrize("mode", VERSIONS)
async def test_the_sdk_sees_errors_as_errors(target: Any, mode: Any) -> None:
    """A result of the gateway's own in one case, a protocol error in the other."""
    with anyio.fail_after(30):
        async with Client(target, mode=mode) as client:
            result = await client.call_tool("call_tool_read", {"name": "clock:nwo"})
            assert result.is_error
            assert json.loads(result.content[0].text)["error"]["code"] == "tool_not_found"  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="Unknown tool 'clock__now'"):
                await client.call_tool("clock__now", {})
