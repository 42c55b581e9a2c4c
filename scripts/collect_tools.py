"""Writes tests/golden_search/tools.jsonl anew: the tools of public MCP servers as they list themselves.

Usage: collect_tools.py [NAME...]     all servers, or only these while the others' lines stay

Each server is fetched in the version below by uvx or npx (both must be on PATH; node 22 or later), started with
nothing but stand-ins for credentials, and asked for its list; nothing else is ever called. One that needs more than
that to list its tools has no place here, and neither has one whose licence does not let its texts be passed on.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "tests" / "golden_search"
STARTED_S = 300
"""Fetching a package for the first time is most of it."""


@dataclass(frozen=True)
class Source:
    """A public server: how it is fetched and started."""

    package: str
    version: str
    license: str
    arguments: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    command: str = ""
    """Where the package's program has another name."""
    older: tuple[str, ...] = ()
    """Requirements that the package leaves open and newer releases break."""

    @property
    def is_python(self) -> bool:
        return not self.package.startswith("@") and self.package not in NODE_PACKAGES

    def argv(self) -> list[str]:
        """What to run; both tools fetch the package first."""
        if not self.is_python:
            return ["npx", "--yes", f"{self.package}@{self.version}", *self.arguments]
        older = [word for requirement in self.older for word in ("--with", requirement)]
        package = f"{self.package}=={self.version}"
        return ["uvx", *older, "--from", package, self.command or self.package, *self.arguments]


NODE_PACKAGES = {"chrome-devtools-mcp", "mcp-server-kubernetes", "mongodb-mcp-server"}

SOURCES = {
    "time": Source("mcp-server-time", "2026.10.19", "MIT"),
    "fetch": Source("mcp-server-fetch", "2026.10.24", "MIT"),
    "git": Source("mcp-server-git", "2026.10.19", "MIT"),
    "sqlite": Source("mcp-server-sqlite", "2025.4.25", "MIT", ("--db-path", "golden.db"), older=("mcp<2",)),
    "calculator": Source("mcp-server-calculator", "0.2.1", "MIT"),
    "duckduckgo": Source("duckduckgo-mcp-server", "0.7.0", "MIT"),
    "wikipedia": Source("wikipedia-mcp", "2.0.1", "MIT"),
    "arxiv": Source("arxiv-mcp-server", "0.8.2", "Apache-2.0"),
    "excel": Source("excel-mcp-server", "2.2.2", "MIT", ("stdio",)),
    "word": Source("office-word-mcp-server", "1.1.11", "MIT", command="word_mcp_server"),
    "powerpoint": Source("office-powerpoint-mcp-server", "2.0.7", "MIT", command="ppt_mcp_server", older=("mcp<2",)),
    "pandoc": Source("mcp-pandoc", "0.11.1", "MIT"),
    "aws-docs": Source("awslabs.aws-documentation-mcp-server", "1.2.3", "Apache-2.0"),
    "obsidian": Source("mcp-obsidian", "0.2.3", "MIT", environ={"OBSIDIAN_API_KEY": "none"}),
    "everything": Source("@modelcontextprotocol/server-everything", "2026.8.31", "MIT and Apache-2.0"),
    "filesystem": Source("@modelcontextprotocol/server-filesystem", "2026.8.31", "MIT and Apache-2.0", (".",)),
    "memory": Source("@modelcontextprotocol/server-memory", "2026.8.31", "MIT and Apache-2.0"),
    "thinking": Source("@modelcontextprotocol/server-sequential-thinking", "2026.8.31", "MIT and Apache-2.0"),
    "github": Source("@modelcontextprotocol/server-github", "2025.4.8", "MIT"),
    "gitlab": Source(
        "@modelcontextprotocol/server-gitlab", "2025.4.25", "MIT", environ={"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}
    ),
    "slack": Source(
        "@modelcontextprotocol/server-slack",
        "2025.4.25",
        "MIT",
        environ={"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"},
    ),
    "google-maps": Source(
        "@modelcontextprotocol/server-google-maps", "0.6.2", "MIT", environ={"GOOGLE_MAPS_API_KEY": "none"}
    ),
    "playwright": Source("@playwright/mcp", "0.0.83", "Apache-2.0"),
    "chrome-devtools": Source("chrome-devtools-mcp", "1.11.0", "Apache-2.0"),
    "context7": Source("@upstash/context7-mcp", "4.1.1", "MIT"),
    "notion": Source("@notionhq/notion-mcp-server", "2.5.2", "MIT", environ={"NOTION_TOKEN": "none"}),
    "chart": Source("@antv/mcp-server-chart", "0.9.10", "MIT"),
    "kubernetes": Source("mcp-server-kubernetes", "4.1.7", "MIT"),
    "mongodb": Source("mongodb-mcp-server", "3.0.4", "Apache-2.0", ("--transport", "stdio")),
    "baidu-map": Source("@baidumap/mcp-server-baidu-map", "1.0.5", "MIT", environ={"BAIDU_MAP_API_KEY": "none"}),
}


class ListingError(Exception):
    """The server did not list its tools."""


def listed(source: Source) -> list[dict[str, Any]]:
    """The tool objects that the server sends."""
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            source.argv(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "NO_UPDATE_NOTIFIER": "1", **source.environ},
            text=True,
            encoding="utf-8",
        )
        deadline = threading.Timer(STARTED_S, server.kill)
        deadline.start()
        try:
            return list(_ask(server))
        finally:
            deadline.cancel()
            server.kill()
            server.wait()


def _ask(server: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    client = {"name": "collect-tools", "version": "1"}
    _request(server, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
    _send(server, {"method": "notifications/initialized"})
    parameters: dict[str, Any] = {}
    while True:
        page = _request(server, "tools/list", parameters)
        yield from page["tools"]
        if not (cursor := page.get("nextCursor")):
            return
        parameters = {"cursor": cursor}


def _send(server: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def _request(server: "subprocess.Popen[str]", method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    assert server.stdout is not None
    try:
        _send(server, {"id": method, "method": method, "params": parameters})
    except BrokenPipeError as exc:
        raise ListingError(f"it ended before {method}") from exc
    for line in server.stdout:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("id") == method:
            if "result" not in message:
                raise ListingError(f"{method} failed: {message.get('error')}")
            result: dict[str, Any] = message["result"]
            return result
    raise ListingError(f"it ended before it answered {method}")


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of one server, in the order in which it lists its tools."""
    return [
        {
            "server": name,
            "name": tool["name"],
            "description": tool.get("description") or "",
            "input_schema": tool["inputSchema"],
        }
        for tool in listed(SOURCES[name])
    ]


def main() -> int:
    file = GOLDEN / "tools.jsonl"
    known: dict[str, list[dict[str, Any]]] = {}
    for line in file.read_text("utf-8").splitlines() if file.exists() else []:
        row = json.loads(line)
        known.setdefault(row["server"], []).append(row)
    failed = 0
    for name in sys.argv[1:] or SOURCES:
        try:
            known[name] = rows(name)
        except ListingError as exc:
            failed += 1
            print(f"{name}: {exc}; its lines stay as they were", file=sys.stderr)
        else:
            print(f"{name}: {len(known[name])} tools")
    lines = [json.dumps(row, ensure_ascii=False) for name in SOURCES for row in known.get(name, [])]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} tools of {sum(name in SOURCES for name in known)} servers")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
