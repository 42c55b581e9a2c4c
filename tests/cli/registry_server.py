"""A small registry on loopback that speaks API v0.1, with servers in the form that its reference documents.

The servers are its examples, in the names of schema 2025-12-11.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml;
https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OFFICIAL = "io.modelcontextprotocol.registry/official"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
STDIO = {"type": "stdio"}


def listed(name: str, version: str, status: str = "active", message: str = "", **members: Any) -> dict[str, Any]:
    """One `ServerResponse`."""
    server = {"$schema": SCHEMA, "name": name, "description": f"{name} for tests.", "version": version, **members}
    official = {"status": status, "publishedAt": "2026-01-02T03:04:05Z", "isLatest": True}
    return {"server": server, "_meta": {OFFICIAL: official | ({"statusMessage": message} if message else {})}}


FILESYSTEM = listed(
    "io.github.modelcontextprotocol/filesystem",
    "1.0.2",
    title="Filesystem",
    repository={"url": "https://github.com/modelcontextprotocol/servers", "source": "github"},
    packages=[
        {
            "registryType": "npm",
            "identifier": "@modelcontextprotocol/server-filesystem",
            "version": "1.0.2",
            "transport": STDIO,
            "packageArguments": [
                {
                    "type": "positional",
                    "valueHint": "target_dir",
                    "description": "Path to access",
                    "default": "/Users/username/Desktop",
                    "isRequired": True,
                    "isRepeated": True,
                }
            ],
            "environmentVariables": [{"name": "LOG_LEVEL", "description": "Logging level", "default": "info"}],
        },
        {
            "registryType": "oci",
            "identifier": "docker.io/mcp/filesystem:1.0.2",
            "transport": STDIO,
            "runtimeArguments": [
                {
                    "type": "named",
                    "name": "--mount",
                    "value": "type=bind,src={source_path},dst={target_path}",
                    "isRequired": True,
                    "isRepeated": True,
                    "variables": {
                        "source_path": {"description": "Path on host", "format": "filepath", "isRequired": True},
                        "target_path": {"isRequired": True, "default": "/project"},
                    },
                }
            ],
            "packageArguments": [{"type": "positional", "valueHint": "target_dir", "value": "/project"}],
            "environmentVariables": [{"name": "LOG_LEVEL", "default": "info"}],
        },
    ],
)
WEATHER = listed(
    "io.github.example/weather-mcp",
    "0.5.0",
    packages=[
        {
            "registryType": "pypi",
            "identifier": "weather-mcp-server",
            "version": "0.5.0",
            "runtimeHint": "uvx",
            "transport": STDIO,
            "environmentVariables": [
                {"name": "WEATHER_API_KEY", "description": "API key", "isRequired": True, "isSecret": True},
                {"name": "WEATHER_UNITS", "default": "celsius", "choices": ["celsius", "fahrenheit"]},
                {"name": "WEATHER_PROXY", "description": "Only behind one"},
            ],
        }
    ],
    remotes=[{"type": "streamable-http", "url": "https://weather.example.com/mcp"}],
)
HOSTED = listed(
    "com.example/hosted",
    "2.0.0",
    remotes=[
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example.com/mcp",
            "variables": {"tenant": {"description": "Your tenant", "isRequired": True}},
            "headers": [
                {
                    "name": "Authorization",
                    "value": "Bearer {token}",
                    "isRequired": True,
                    "isSecret": True,
                    "variables": {"token": {"description": "API token", "isRequired": True, "isSecret": True}},
                },
                {"name": "X-Region", "default": "us-east-1", "choices": ["us-east-1", "eu-west-1"]},
            ],
        },
        {"type": "sse", "url": "https://old.example.com/sse"},
    ],
)
DOTNET = listed(
    "io.github.example/dotnet",
    "0.4.0-beta",
    packages=[
        {
            "registryType": "nuget",
            "identifier": "Example.McpServer",
            "version": "0.4.0-beta",
            "transport": STDIO,
            "packageArguments": [{"type": "positional", "value": "mcp"}, {"type": "positional", "value": "start"}],
        }
    ],
)
BUNDLE = listed(
    "io.github.example/bundle",
    "1.0.0",
    repository={"url": "https://github.com/example/bundle", "source": "github"},
    packages=[
        {
            "registryType": "mcpb",
            "identifier": "https://github.com/example/bundle/releases/download/v1/bundle.mcpb",
            "fileSha256": "f" * 64,
            "transport": STDIO,
        }
    ],
)
OLD = listed("io.github.example/old-weather", "0.9.5", "deprecated", "Use weather-mcp.", packages=[])
OLD["server"]["packages"] = WEATHER["server"]["packages"]
GONE = listed("io.github.example/gone", "1.0.0", "deleted", "It sent mail elsewhere.")
ALL = (FILESYSTEM, WEATHER, HOSTED, DOTNET, BUNDLE, OLD, GONE)


class Registry:
    """The servers that it lists, the requests that came, and what it answers instead if asked to misbehave."""

    def __init__(self) -> None:
        self.listings: list[dict[str, Any]] = list(ALL)
        self.requests: list[str] = []
        self.tokens: list[str | None] = []
        self.instead: tuple[int, bytes] | None = None
        self.needs_token = ""
        self.address = ""

    def answer(self, target: str) -> tuple[int, Any]:
        """Status and JSON for a request."""
        path, query = urlsplit(target).path, {key: text[0] for key, text in parse_qs(urlsplit(target).query).items()}
        parts = [unquote(part) for part in path.removeprefix("/v0.1/servers").split("/")[1:]]
        if not path.startswith("/v0.1/servers"):
            return 404, {"error": "Not found"}
        shown = [one for one in self.listings if query.get("include_deleted") == "true" or not _is_deleted(one)]
        if not parts:
            found = [one for one in shown if query.get("search", "").lower() in one["server"]["name"].lower()]
            limit = int(query.get("limit", "30"))
            return 200, {"servers": found[:limit], "metadata": {"count": len(found[:limit])}}
        versions = [one for one in shown if one["server"]["name"] == parts[0]]
        if parts[1:] == ["versions"] and versions:
            return 200, {"servers": versions, "metadata": {"count": len(versions)}}
        for one in versions:
            if parts[1:2] == ["versions"] and parts[2:] in (["latest"], [one["server"]["version"]]):
                return 200, one
        return 404, {"error": "Server not found"}


def _is_deleted(listing: dict[str, Any]) -> bool:
    return bool(listing["_meta"][OFFICIAL]["status"] == "deleted")


@contextmanager
def registry() -> Iterator[Registry]:
    """One that runs while open, at `address`."""
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            state.tokens.append(self.headers["authorization"])
            if state.needs_token and self.headers["authorization"] != f"Bearer {state.needs_token}":
                status, body = 401, b'{"error": "Unauthorized"}'
            elif state.instead is not None:
                status, body = state.instead
            else:
                status, value = state.answer(self.path)
                body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests read no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
