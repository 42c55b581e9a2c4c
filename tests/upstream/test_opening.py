"""What a session is opened from."""

import json
import os
from typing import Any

import pytest

from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.upstream.opening import SessionOptions


@pytest.mark.parametrize(
    ("entry", "folders"),
    [
        ({"cwd": "/srv/work"}, ["/srv/work", "/home/u", "/tmp"]),
        ({"cwd": "/srv/work/../other/", "env": {"HOME": "/srv/home"}}, ["/srv/other", "/srv/home", "/tmp"]),
        ({"cwd": "/", "env": {"TMPDIR": "/var/t"}}, ["/home/u", "/var/t"]),
        ({}, [os.getcwd(), "/home/u", "/tmp"]),
    ],
)
def test_a_server_s_own_folders_are_those_it_is_started_with(entry: dict[str, Any], folders: list[str]) -> None:
    """Never the root, which stands in every path."""
    config = load_servers(json.dumps({"mcpServers": {"s": {"command": "x", **entry}}})).usable["s"]
    opening = SessionOptions(config, on_event=lambda _: None, environ={"HOME": "/home/u"})
    assert [*opening.folders()] == folders
