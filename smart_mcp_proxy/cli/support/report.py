"""Start report of a gateway over HTTP: what is there, and how to connect a client."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from smart_mcp_proxy.cli.support.api import Api
from smart_mcp_proxy.cli.support.output import clean, console, plural
from smart_mcp_proxy.cli.support.render import servers_table, tokens_line

SAMPLE_WORDS = 6
"""Enough to say what a tool does."""
_LARGE_CATALOG = 5_000
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The gateway's address for agents.

    Attributes:
        host: Address it listens on.
        port: Port it listens on.
        is_sse: Whether clients are to use the older transport.
        has_token: Whether they need a token.
    """

    host: str
    port: int
    is_sse: bool = False
    has_token: bool = False

    @property
    def _base(self) -> str:
        host = "localhost" if self.host in _WILDCARDS else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"{self._base}/{'sse' if self.is_sse else 'mcp'}"

    @property
    def health_url(self) -> str:
        """Answers 200 while the process lives."""
        return f"{self._base}/healthz"

    def snippets(self) -> list[tuple[str, str]]:
        """Configuration to paste, for each common client. A token is referred to, never shown."""
        kind = "sse" if self.is_sse else "http"
        cursor: dict[str, Any] = {"url": self.url}
        claude: dict[str, Any] = {"type": kind, "url": self.url}
        command = f"claude mcp add -t {kind} mcpproxy {self.url}"
        if self.has_token:
            cursor["headers"] = {"Authorization": "Bearer ${env:MCPPROXY_AUTH_TOKEN}"}
            claude["headers"] = {"Authorization": "Bearer ${MCPPROXY_AUTH_TOKEN}"}
            command += ' --header "Authorization: Bearer $MCPPROXY_AUTH_TOKEN"'
        return [
            ("Cursor, in .cursor/mcp.json or ~/.cursor/mcp.json", _entry(cursor)),
            ("Claude Code", command),
            ("Claude Code, in .mcp.json", _entry(claude)),
        ]


def _entry(server: Mapping[str, Any]) -> str:
    return json.dumps({"mcpServers": {"mcpproxy": server}})


async def summarize(api: Api) -> dict[str, Any]:
    """Servers, totals, and one search as an agent might do it; `sample` is None while no tool is known."""
    status = await api.status()
    # Of a large catalog one server's tools will do: all of them would be megabytes, for a few words.
    names = [row["name"] for row in status["servers"] if row["tools"]]
    server = names[len(names) // 2] if status["tools"] > _LARGE_CATALOG else None
    query = _sample_query(await api.tools(server))
    return {
        "servers": status["servers"],
        "tools": status["tools"],
        "catalog_tokens": status["catalog_tokens"],
        "degraded": status["degraded"],
        "sample": await api.search(query) if query else None,
    }


def _sample_query(tools: list[dict[str, Any]]) -> str:
    """The first words of what some tool says it does: a search that can find something here."""
    described = [tool["description"] for tool in tools if len(tool["description"].split()) > 1]
    if not described:
        return ""
    words = described[len(described) // 2].split()
    return " ".join(words[:SAMPLE_WORDS]).rstrip(".,;:")


def show_report(
    summary: Mapping[str, Any], address: GatewayAddress | None, page: str = "", *, to_stdout: bool = False
) -> None:
    """Writes the servers, a search and its saving, and if the gateway serves how to reach it and its page."""
    parts: list[RenderableType] = []
    if summary["servers"]:
        parts += [servers_table(summary["servers"]), ""]
    if (sample := summary["sample"]) is not None:
        found = plural(len(sample["tools"]), "tool")
        parts += [Text(clean(f'A search for "{sample["query"]}" finds {found}. {tokens_line(sample)}')), ""]
    parts += [Text(clean(reason), style="yellow") for reason in summary["degraded"]]
    if not summary["servers"]:
        parts += [Text("No servers are configured, so there is nothing to find yet. Try: mcpproxy demo --serve"), ""]
    if address is not None:
        for title, snippet in address.snippets():
            parts += [Text(title, style="bold"), Text(f"  {snippet}"), ""]
        parts += [Text(f"MCP     {address.url}"), Text(f"Health  {address.health_url}"), Text(f"Page    {page}")]
        parts.append(Text("Ctrl-C stops it."))
    stream = sys.stdout if to_stdout else sys.stderr
    console(stream).print(Group(*parts), soft_wrap=True)
