"""What is known of published servers, found by what their entries start."""

import json
import re
from pathlib import Path

import pytest

from smart_mcp_proxy.servers import describe_known, describe_missing, find_known_server
from smart_mcp_proxy.servers.known import known_servers
from smart_mcp_proxy.servers.known.known_servers import NOTHING


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("npx", ["-y", "@playwright/mcp"]),
        ("npx", ["@playwright/mcp@0.0.83", "--headless"]),
        ("node", ["/home/u/node_modules/@playwright/mcp/cli.js"]),
        ("npx", ["--package=a", "chrome-devtools-mcp@latest"]),
        ("/opt/bin/chrome-devtools-mcp", []),
        ("uvx", ["browser-use[all]==0.7"]),
    ],
)
def test_a_server_is_known_by_its_package(command: str, args: list[str]) -> None:
    """In whatever version, from a runner or a folder."""
    assert find_known_server(command, args).separation == "drives a browser"


@pytest.mark.parametrize("word", ["chrome-devtools-mcp-of-mine", "@playwright/mcp-x", "a@playwright/mcp", ""])
def test_a_package_of_another_name_is_not_known(word: str) -> None:
    """However alike."""
    assert find_known_server("npx", [word]) == NOTHING


def test_what_is_missing_is_named_until_it_is_given() -> None:
    """By the variables that a run without them showed to be needed."""
    entry = ("npx", ["-y", "@modelcontextprotocol/server-slack@2025.4.25"])
    assert describe_missing(*entry, {"SLACK_TEAM_ID"}) == "It is known to need SLACK_BOT_TOKEN in its environment."
    assert describe_missing(*entry, {"SLACK_TEAM_ID", "SLACK_BOT_TOKEN"}) == ""
    assert describe_missing("npx", ["-y", "of-mine"], ()) == ""


def test_a_large_package_is_announced() -> None:
    """A first start that takes minutes should surprise nobody; of a small one nothing is said."""
    assert re.fullmatch(r"Its first start installs \d{3} MB\.", describe_known("uvx", ["mcp-server-qdrant"], ()))
    assert describe_known("npx", ["@modelcontextprotocol/server-everything"], ()) == ""


def test_the_file_has_a_line_for_each_package_in_their_order() -> None:
    """So that two changes of it meet in one line at most."""
    text = Path(known_servers.__file__).with_name("known_servers.json").read_text("utf-8")
    rows = json.loads(text)
    assert (
        text == "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)) + "\n}\n"
    )
