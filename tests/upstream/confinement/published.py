"""Published servers of npm and PyPI, in versions that were tried, and one harmless call of each, as data."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

NPX: Final = ("npx", "-y")
UVX: Final = ("uvx",)


class Published(NamedTuple):
    """A server, started as its own documentation says; `$` is a folder of the user's, `@` a page on this machine.

    Attributes:
        runner: Starts it.
        package: With its version.
        args: After it.
        tool: That is called.
        arguments: Of the call.
        entry: What stands in its entry besides.
    """

    runner: tuple[str, ...]
    package: str
    args: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any] = {}
    entry: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """In the server file: short, so that tools keep their names."""
        return self.package.rpartition("@")[0].rpartition("/")[2]


CHROMIUM: Final = "/usr/bin/chromium"
PLAYWRIGHT: Final = ("--headless", "--no-sandbox", "--executable-path", CHROMIUM)
DEVTOOLS: Final = ("--headless", "--chromeArg=--no-sandbox", "--executablePath", CHROMIUM, "--usageStatistics=false")
LAUNCH: Final = {"executablePath": CHROMIUM, "args": ["--no-sandbox"], "headless": True}
PUPPETEER: Final = {"url": "@", "launchOptions": LAUNCH, "allowDangerous": True}
THOUGHT: Final = {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
ENTITY: Final = {"name": "lamp", "entityType": "thing", "observations": ["bright"]}
FOLDER: Final = {"allow": {"write": ["$"]}}
"""For servers that are told in a call which files they are about."""
OF: Final = "@modelcontextprotocol/server-"

FEW: Final = (
    Published(NPX, f"{OF}everything@2026.8.31", (), "echo", {"message": "a"}),
    Published(UVX, "mcp-server-time@2026.10.19", (), "get_current_time", {"timezone": "Europe/Berlin"}),
)
BATCHES: Final = (
    (
        Published(NPX, f"{OF}filesystem@2026.8.31", ("$",), "list_directory", {"path": "$"}),
        Published(NPX, f"{OF}memory@2026.8.31", (), "create_entities", {"entities": [ENTITY]}),
        Published(NPX, f"{OF}sequential-thinking@2026.8.31", (), "sequentialthinking", THOUGHT),
        Published(NPX, f"{OF}postgres@0.6.2", ("postgresql://127.0.0.1:1/db",), "query", {"sql": "select 1"}),
        Published(UVX, "mcp-server-git@2026.10.19", ("--repository", "$"), "git_status", {"repo_path": "$"}),
        Published(UVX, "mcp-server-fetch@2026.10.24", ("--allow-private-ips",), "fetch", {"url": "@"}),
        Published(
            ("uvx", "--with", "mcp<2"), "mcp-server-sqlite@2025.4.25", ("--db-path", "$/data/new.db"), "list_tables"
        ),
    ),
    (
        Published(NPX, "@playwright/mcp@0.0.83", PLAYWRIGHT, "browser_navigate", {"url": "@"}),
        Published(NPX, "chrome-devtools-mcp@1.11.0", DEVTOOLS, "new_page", {"url": "@"}),
        Published(
            NPX,
            f"{OF}puppeteer@2025.5.12",
            (),
            "puppeteer_navigate",
            PUPPETEER,
            {"env": {"PUPPETEER_SKIP_DOWNLOAD": "true"}},
        ),
        Published(NPX, "@wonderwhy-er/desktop-commander@0.2.52", (), "list_directory", {"path": "$"}, FOLDER),
        Published(NPX, "mcp-server-commands@0.5.0", (), "run_command", {"command": "ls $"}, FOLDER),
        Published(NPX, "mcp-server-kubernetes@4.1.7", (), "ping"),
    ),
    (
        Published(
            NPX,
            "@upstash/context7-mcp@4.1.1",
            (),
            "resolve-library-id",
            {"query": "a", "libraryName": "a"},
            {"env": {"CONTEXT7_API_URL": "@"}},
        ),
        Published(UVX, "duckduckgo-mcp-server@0.7.0", ("--allow-private-urls",), "fetch_content", {"url": "@"}),
        Published(UVX, "arxiv-mcp-server@0.8.2", (), "list_papers"),
        Published(UVX, "excel-mcp-server@2.2.2", ("stdio",), "create_workbook", {"path": "$/new.xlsx"}, FOLDER),
        Published(UVX, "markitdown-mcp@0.0.1a8", (), "convert_to_markdown", {"uri": "file://$/page.html"}, FOLDER),
        Published(UVX, "redis-mcp-server@0.5.1", ("--url", "redis://127.0.0.1:1/0"), "get", {"key": "a"}),
    ),
)
"""What is called `127.0.0.1:1` refuses: the call is answered with an error, the same one in either case."""
