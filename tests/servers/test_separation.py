"""Servers of which clients that share a gateway get a process each."""

import json
from typing import Any

import pytest

from smart_mcp_proxy.servers import ServerConfig, explain_separation, load_servers, with_own_processes


def config_of(entry: dict[str, Any]) -> ServerConfig:
    return load_servers(json.dumps({"mcpServers": {"s": entry}})).servers["s"]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}, "drives a browser"),
        ({"command": "npx", "args": ["-y", "@playwright/mcp@0.0.41", "--headless"]}, "drives a browser"),
        ({"command": "/opt/bin/chrome-devtools-mcp"}, "drives a browser"),
        ({"command": "uvx", "args": ["browser-use==0.7"]}, "drives a browser"),
        (
            {"command": "npx", "args": ["@modelcontextprotocol/server-sequential-thinking"]},
            "keeps one client's thoughts",
        ),
        ({"command": "git-mcp", "args": ["--repository", "${workspaceFolder}"]}, "depends on the working directory"),
        ({"command": "x", "env": {"KEY": "${file:secret.txt}"}}, "depends on the working directory"),
        ({"command": "x", "cwd": "sub/folder"}, "depends on the working directory"),
        ({"command": "x", "env": {"KEY": "${file:~/secret.txt}"}, "cwd": "~"}, ""),
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}, ""),
        ({"command": "npx", "args": ["@playwright/mcp"], "connection": "shared"}, ""),
        ({"command": "npx", "args": ["@playwright/mcp"], "disabled": True}, ""),
        ({"url": "https://example.com/playwright/mcp"}, ""),
    ],
)
def test_what_one_client_must_not_meet_another_in_is_not_shared(entry: dict[str, Any], reason: str) -> None:
    """Browsers, terminals, thoughts and working directories; what the entry says of it counts more."""
    config = config_of(entry)
    assert explain_separation(config) == reason
    separated = with_own_processes({"s": config})["s"]
    assert separated.connection == ("per_client" if reason else config.connection)
