"""Server files that depend on where a gateway runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.desktop.places import meeting_point, names_relative_files


@pytest.mark.parametrize(
    ("entry", "is_relative"),
    [
        ({"command": "python3", "args": ["server.py"]}, True),
        ({"command": "node", "args": ["dist/index.js", "--port", "1"]}, True),
        ({"command": "./run.sh"}, True),
        ({"command": "../bin/server"}, True),
        ({"command": "venv/bin/server"}, True),
        ({"command": "mcp-server-filesystem", "args": ["."]}, True),
        ({"command": "uv", "args": ["--directory", "../server", "run", "it"]}, True),
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/x"]}, False),
        ({"command": "npx", "args": ["-y", "@acme/mcp@1.2.3", "--url", "https://acme.example/a.js"]}, False),
        ({"command": "/opt/x/server.py", "args": ["/opt/x/other.py"]}, False),
        ({"command": "python3", "args": ["${HOME}/server.py"]}, False),
        ({"command": "python3", "args": ["~/server.py"]}, False),
        ({"command": "uvx", "args": ["mcp-server-time==1.0"]}, False),
        ({"command": "docker", "args": ["run", "ghcr.io/acme/server:1.2"]}, False),
        ({"url": "https://acme.example/mcp"}, False),
    ],
)
def test_a_file_named_by_its_place_binds_a_gateway_to_its_folder(
    entry: dict[str, Any], is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs, scripts and folders; what is absolute, of the home or of a registry is the same everywhere."""
    text = json.dumps({"mcpServers": {"s": entry}}, indent=2)
    file = tmp_path / "servers.json"
    file.write_text(text)
    for environ in ({"MCPPROXY_CONFIG_PATH": str(file)}, {"MCPPROXY_CONFIG_JSON": text}):
        points = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
            monkeypatch.chdir(tmp_path / name)
            points.append(meeting_point([], environ))
        assert (points[0] != points[1]) is is_relative
    assert names_relative_files(str(tmp_path / "none.json"), {}) is False
