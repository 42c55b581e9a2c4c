"""Servers that were written for version 1 of the MCP SDK for Python."""

import json
import shlex
from typing import Any

import pytest

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.stdio.remedies import find_remedy

ENDED = "Server 's' ended with exit code 1. It wrote: "
FASTMCP = (
    ENDED + "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed"
)


def server(*args: str, command: str = "uvx", **changes: Any) -> ServerConfig:
    return ServerConfig("my server", "stdio", command=command, args=args, **changes)


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x",
        "ModuleNotFoundError: No module named 'mcp.shared.version'",
        "ImportError: cannot import name 'McpError' from 'mcp' (/x/site-packages/mcp/__init__.py)",
        "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/x/mcp/shared/exceptions.py)",
        "AttributeError: module 'mcp.types' has no attribute 'JSONRPCMessage'",
        "AttributeError: 'Server' object has no attribute 'list_resources'",
        "TypeError: Server.__init__() got an unexpected keyword argument 'version_'",
        "ModuleNotFoundError: No module named 'httpx'",
    ],
)
@pytest.mark.parametrize(
    ("command", "args", "patched"),
    [
        ("uvx", ["acme-mcp", "--read-only"], ["--with", "mcp<2", "acme-mcp", "--read-only"]),
        ("/usr/bin/uvx", ["--from", "acme", "it's"], ["--with", "mcp<2", "--from", "acme", "it's"]),
        ("uv", ["tool", "run", "acme-mcp"], ["tool", "run", "--with", "mcp<2", "acme-mcp"]),
        ("uv", ["--directory", "/x y", "run", "a.py"], ["--directory", "/x y", "run", "--with", "mcp<2", "a.py"]),
    ],
)
def test_the_command_that_brings_it_up_is_offered(said: str, command: str, args: list[str], patched: list[str]) -> None:
    """Whole, as a shell reads it."""
    hint = find_remedy(server(*args, command=command), ENDED + said, [])
    words = shlex.split(hint.partition(": ")[2])
    assert words[:4] == ["mcpproxy", "server", "patch", "my server"]
    name, _, value = words[4].partition("=")
    assert (name, json.loads(value), len(words)) == ("args", patched, 5)


@pytest.mark.parametrize(
    "said", ["ModuleNotFoundError: No module named 'mcp'", "No module named 'mcpx.a'", "Error: no licence", ""]
)
def test_other_ends_have_no_such_hint(said: str) -> None:
    """Nor has a server that has version 1 already."""
    assert find_remedy(server("acme-mcp"), ENDED + said, []) == ""
    assert find_remedy(server("--with", "mcp<2", "acme-mcp"), FASTMCP, []) == ""
    assert find_remedy(ServerConfig("s", "http", url="http://x.example"), FASTMCP, []) == ""


def test_a_program_that_uv_does_not_start_is_told_what_to_install() -> None:
    """And lacks httpx for reasons of its own."""
    assert find_remedy(server("-m", "acme", command="python3"), FASTMCP, []).endswith("pip install 'mcp<2'")
    assert find_remedy(server(command="python3"), ENDED + "No module named 'httpx'", []) == ""


def test_a_command_with_a_secret_in_it_is_not_offered() -> None:
    """It would write what is shown in place of the secret into the entry."""
    with secrets_hidden(["hunter22hunter22"]):
        hint = find_remedy(server("acme", "--token", "hunter22hunter22"), FASTMCP, [])
    assert hint.endswith('Put "--with", "mcp<2" in front of the package in its args.')
