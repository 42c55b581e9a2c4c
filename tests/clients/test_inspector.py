"""The inspector's command line, a client on the official TypeScript SDK, over stdio and HTTP."""

import json
import subprocess
from typing import Any

import pytest
from installed import Installation
from node_tools import INSPECTOR, node_environment, node_folder, npm_package

pytestmark = pytest.mark.clients

LIMIT_S = 60


@pytest.fixture(params=["stdio", "http"])
def inspect(request: pytest.FixtureRequest, installation: Installation) -> Any:
    """Runs one method through the inspector and returns the result it prints."""
    node = str(node_folder() / "node")
    package = npm_package(INSPECTOR)
    entry = json.loads((package / "package.json").read_text("utf-8"))["bin"]["mcp-inspector"]
    if request.param == "http":
        target = [request.getfixturevalue("url"), "--transport", "http"]
    else:
        variables = [part for name, value in installation.env.items() for part in ("-e", f"{name}={value}")]
        target = [*variables, *installation.command]

    def run(method: str, *arguments: str) -> dict[str, Any]:
        command = [node, str(package / entry), "--cli", *target, "--method", method, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=node_environment(), check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return run


def test_the_inspector_lists_the_six_tools(inspect: Any) -> None:
    """With their schemas, as the TypeScript SDK validates them."""
    tools = inspect("tools/list")["tools"]
    assert len(tools) == 6
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools)


def test_the_inspector_searches_and_calls(inspect: Any) -> None:
    """A nested argument as JSON text, the way a person types it."""
    found = inspect("tools/call", "--tool-name", "retrieve_tools", "--tool-arg", "query=clock:now")
    assert {"content", "structuredContent"} <= found.keys()
    arguments = ["--tool-arg", "name=clock:convert_timezone", "--tool-arg"]
    args = {"time": "2026-01-01 12:00", "from_timezone": "UTC", "to_timezone": "Asia/Tokyo"}
    answer: dict[str, Any] = {}
    while "21:00" not in json.dumps(answer):  # a gateway that was just started may still be listing
        answer = inspect("tools/call", "--tool-name", "call_tool_read", *arguments, f"args={json.dumps(args)}")
        assert "not_found" in json.dumps(answer) or not answer.get("isError"), answer
