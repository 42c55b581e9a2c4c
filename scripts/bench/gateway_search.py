"""What a search costs an agent: `retrieve_tools` through a gateway in front of many tools, beside a tool of the same
gateway that does hardly anything, `describe_tool` with one name and an answer of about 2 KB."""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from bench.load import PipeLink, time_limit
from bench.targets import spawn
from bench.wire import BadReplyError, Template

__all__ = ["measure_gateway"]

_ANSWER_BYTES = 2_000
_DESCRIBED = 60
"""Tools described to find one with an answer of that size."""

_ROUNDS = 5
_CALLS = 5
"""Calls of one kind in a row before the other kind has its turn, so that the machine's noise hits both."""

_PAUSE_S = 0.2
_LIMIT_S = 300.0


def measure_gateway(tools: Path, size: int, queries: Sequence[str], folder: Path) -> dict[str, Any]:
    """Median milliseconds and answer sizes of both tools over stdio, and their ratio: for the benchmark's raw client,
    whose own work is next to nothing, and for FastMCP's client, as an agent library has it.

    Args:
        tools: JSON lines that one upstream lists.
        size: How many they are.
        queries: Asked in turn.
        folder: For configuration, data and logs.
    """
    upstream = Path(__file__).with_name("catalog_upstream.py")
    config = folder / "mcp_config.json"
    entry = {"command": sys.executable, "args": ["-S", str(upstream), str(tools)]}
    config.write_text(json.dumps({"mcpServers": {"big": entry}}))
    command = [sys.executable, "-m", "bench.serve_gateway", "stdio", str(config), str(folder / "data")]
    began_s = time.monotonic()
    with spawn(command, folder / "gateway.log") as process, time_limit(_LIMIT_S, "the gateway"):
        link = PipeLink(process)
        link.open("handshake")
        while _asked(link, _call(link, "retrieve_tools", query=queries[0]))["total"] < size:
            time.sleep(_PAUSE_S)
        listed_s = time.monotonic() - began_s
        searches = [_call(link, "retrieve_tools", query=query) for query in queries]
        described = _described(link, searches)
        describe = _call(link, "describe_tool", names=[described])
        times: dict[str, list[float]] = {"search": [], "describe": []}
        for _ in range(_ROUNDS):
            for search in searches:
                times["search"] += link.sequential(search, _CALLS, _LIMIT_S)
                times["describe"] += link.sequential(describe, _CALLS, _LIMIT_S)
        search_bytes = statistics.median(len(json.dumps(_asked(link, search))) for search in searches)
        describe_bytes = len(json.dumps(_asked(link, describe)))
    by_client = anyio.run(_by_client, command, folder, queries, size, described)
    return {
        "tools": size,
        "listed_s": listed_s,
        "search_bytes": search_bytes,
        "describe_bytes": describe_bytes,
        "raw": _compared(times),
        "client": _compared(by_client),
    }


def _compared(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    search_ms, describe_ms = statistics.median(times["search"]), statistics.median(times["describe"])
    return {"search_p50_ms": search_ms, "describe_p50_ms": describe_ms, "ratio": search_ms / describe_ms}


async def _by_client(
    command: list[str], folder: Path, queries: Sequence[str], size: int, described: str
) -> dict[str, list[float]]:
    """The same calls by FastMCP's client, to a gateway that starts from the catalog stored before."""
    scripts = str(Path(__file__).parent.parent)
    log = folder / "client.log"
    transport = StdioTransport(command[0], command[1:], cwd=scripts, log_file=log, keep_alive=False)
    times: dict[str, list[float]] = {"search": [], "describe": []}
    async with Client(transport) as client:

        async def timed(kind: str, tool: str, arguments: dict[str, Any]) -> Any:
            for _ in range(_CALLS):
                start = time.perf_counter()
                result = await client.call_tool(tool, arguments)
                times[kind].append((time.perf_counter() - start) * 1000)
            return result.structured_content

        with anyio.fail_after(_LIMIT_S):
            while (await timed("search", "retrieve_tools", {"query": queries[0]}))["total"] < size:
                await anyio.sleep(_PAUSE_S)
            times["search"].clear()
            for _ in range(_ROUNDS):
                for query in queries:
                    await timed("search", "retrieve_tools", {"query": query})
                    await timed("describe", "describe_tool", {"names": [described]})
    return times


def _call(link: PipeLink, tool: str, **arguments: Any) -> Template:
    return link.template(tool, {"arguments": arguments})


def _asked(link: PipeLink, request: Template) -> Any:
    """The structured answer of a call.

    Raises:
        BadReplyError: It has none, or is an error.
    """
    result = link.ask(request).get("result", {})
    if result.get("isError") or "structuredContent" not in result:
        raise BadReplyError(f"the gateway answers {str(result)[:300]}")
    return result["structuredContent"]


def _described(link: PipeLink, searches: Sequence[Template]) -> str:
    """Of the tools that searches find, the one whose description is nearest to 2 KB."""
    names = dict.fromkeys(tool["name"] for search in searches for tool in _asked(link, search)["tools"])

    def distance(name: str) -> int:
        return abs(len(json.dumps(_asked(link, _call(link, "describe_tool", names=[name])))) - _ANSWER_BYTES)

    return min(list(names)[:_DESCRIBED], key=distance)
