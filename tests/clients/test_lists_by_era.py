"""What both Python clients are listed before and after a search, and what they hear, by era, transport and routing.

`pytest -m clients -rP tests/clients/test_lists_by_era.py` prints a row for each.

In CI the two libraries take turns at the rows, so that each row is met and each library meets every way and every
routing; what the other one would see there runs with `make soak`.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp.client.transports import SSETransport, StdioTransport
from installed import Installation, serving
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation
from stories import OWN_TOOLS

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

LIMIT_S = 60
PAUSE_S = 0.02
FOUND = "todo__add_task"
CHANGED = "notifications/tools/list_changed"
Mode = Literal["auto", "legacy", "2026-07-28"]
HEEDING, UNSEEN = "claude-code", "somebody"
ROUTINGS = [("CALL_TOOL", UNSEEN), ("DYNAMIC", UNSEEN), ("AUTO", UNSEEN), ("AUTO", HEEDING)]
WAYS: list[tuple[str, Mode]] = [
    *(("stdio", mode) for mode in ("auto", "legacy", "2026-07-28")),
    *(("http", mode) for mode in ("auto", "legacy")),
    ("sse", "legacy"),
]


class Visitor:
    """A client of one library, and what happened to it in order."""

    def __init__(self, library: str, target: Any, name: str, mode: Mode) -> None:
        self.events: list[str] = []
        info = Implementation(name=name, version="1")
        make: Any = FastMCPClient if library == "fastmcp" else Client
        self.client = make(target, client_info=info, mode=mode, message_handler=self._hear)

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", "") == CHANGED:
            self.events.append("list_changed")

    async def listed(self) -> list[str]:
        found = await self.client.list_tools()
        return [tool.name for tool in getattr(found, "tools", found)]

    async def searched(self) -> dict[str, Any]:
        """The answer to a search, once the server is listed; only what comes with this one counts."""
        while True:
            self.events.clear()
            result = await self.client.call_tool(
                "retrieve_tools", {"query": "todo:add_task", "limit": 1, "servers": ["todo"]}
            )
            self.events.append("answer")
            answer: dict[str, Any] = result.structured_content
            if answer["tools"]:
                return answer
            await anyio.sleep(PAUSE_S)


@asynccontextmanager
async def target_of(library: str, transport: str, installation: Installation, folder: Path) -> AsyncIterator[Any]:
    """What this client is pointed at."""
    if transport == "stdio":
        command, *arguments = installation.command
        given: dict[str, Any] = {"command": command, "args": arguments, "env": installation.env}
        yield StdioTransport(**given, keep_alive=False) if library == "fastmcp" else StdioServerParameters(**given)
        return
    with serving(installation, folder) as url:
        if transport == "http":
            yield url
        else:
            at = url.removesuffix("/mcp") + "/sse"
            yield SSETransport(at) if library == "fastmcp" else sse_client(at)


def is_refused(transport: str, mode: Mode, routing: str, name: str) -> bool:
    """Whether a client that knows nothing else than the modern era is not served."""
    is_withheld = routing == "DYNAMIC" or (routing == "AUTO" and name == HEEDING)
    return transport == "stdio" and mode == "2026-07-28" and is_withheld


def list_rows() -> list[Any]:
    """Every library in every way with every routing; those of every second row are for `make soak`."""
    rows = itertools.product(enumerate(["fastmcp", "mcp"]), enumerate(WAYS), enumerate(ROUTINGS))
    return [
        pytest.param(library, *way, *routing, marks=[pytest.mark.soak] if (turn + at + number) % 2 else [])
        for (turn, library), (at, way), (number, routing) in rows
    ]


@pytest.mark.parametrize(("library", "transport", "mode", "routing", "name"), list_rows())
async def test_a_search_does_to_the_list_what_era_transport_and_routing_say(
    library: str, transport: str, mode: Mode, routing: str, name: str, installation: Installation, tmp_path: Path
) -> None:
    """Registered and announced where a session's list grows; else a toolset or the reason, if it was to grow."""
    settings = {"MCPPROXY_ROUTING_TYPE": routing, "MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    own = replace(installation, env=installation.env | settings)
    asks_to_grow = routing == "DYNAMIC" or (routing == "AUTO" and name == HEEDING)
    is_session = mode == "legacy" or (mode == "auto" and transport == "stdio" and asks_to_grow)
    row = f"{routing:<9} {name:<11} {transport:<5} {library:<7} {mode:<10}"
    with anyio.fail_after(LIMIT_S):
        async with target_of(library, transport, own, tmp_path) as target:
            visitor = Visitor(library, target, name, mode)
            if is_refused(transport, mode, routing, name):
                async with visitor.client:
                    with pytest.raises(MCPError, match="MCPPROXY_STDIO_ERA=both"):
                        await visitor.listed()
                print(row, "refused: the error names MCPPROXY_STDIO_ERA=both")
                return
            async with visitor.client:
                before = await visitor.listed()
                answer = await visitor.searched()
                while is_session and asks_to_grow and "list_changed" not in visitor.events:
                    await anyio.sleep(PAUSE_S)
                after = await visitor.listed()
    toolset = "a toolset" if answer["toolset"] else "no toolset"
    print(row, f"{len(before)} -> {len(after)} listed; {', '.join(visitor.events)}; {toolset}")
    assert before[: len(OWN_TOOLS)] == OWN_TOOLS
    assert after == ([*OWN_TOOLS, FOUND] if is_session and asks_to_grow else OWN_TOOLS)
    assert ("list_changed" in visitor.events) is (is_session and asks_to_grow)
    assert bool(answer["toolset"]) is (transport == "http" and not is_session and routing != "CALL_TOOL")
    assert ("stays as it is" in answer["hint"]) is (not is_session and routing != "CALL_TOOL")
