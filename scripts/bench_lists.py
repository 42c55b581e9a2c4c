"""Measures lists that change: how soon a client holds the tools it has just found, and what each routing costs.

The delay is the time from the answer of `retrieve_tools` to the client's having been told, having asked for its list
and holding the new one; in the modern era, whose lists stay, to its having connected to the toolset that it was given
and holding that list. The official Python SDK is in this process, the gateway in another, bundled sample servers are
behind it. The costs are those of the list alone, in tokens of four bytes, before the first search and after ten.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import Implementation

from smart_mcp_proxy.demo import demo_servers

COMMAND = (sys.executable, "-m", "smart_mcp_proxy", "serve")
LIMIT_MS = 20.0
"""Of the 95th percentile."""
HUNG_S = 1.0
"""A search that takes longer than this, on average, hangs."""
SEARCHES = 200
ROUNDS = 3
"""A bound on latency holds for the best of so many rounds."""
WAYS = ("stdio", "http", "sse", "toolset")
"""Three transports of the handshake era, and streamable HTTP in the modern one."""
PAIR = ("todo:add_task", "clock:now")
QUERIES = (
    "add a task to the todo list",
    "convert a time to another time zone",
    "days between two dates",
    "add a task",
    "find the name of a color",
    "delete a task",
    "mix two colors",
    "name the day of a date",
    "list the time zones",
    "mark a task as done",
)
ROUTES = (("CALL_TOOL", "any"), ("DYNAMIC", "any"), ("AUTO", "claude-code"), ("AUTO", "cursor"))
BYTES_PER_TOKEN = 4


class Listener:
    """A client of the handshake era that asks for its list whenever it is told that it changed.

    Args:
        target: An address, a command to start, or a transport.
        name: What it calls itself.
        mode: The era, in the SDK's words.
    """

    def __init__(self, target: Any, name: str = "bench", mode: Any = "legacy") -> None:
        self._told = anyio.Event()
        info = Implementation(name=name, version="1")
        self.client = Client(target, mode=mode, message_handler=self._hear, client_info=info)

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._told.set()

    async def search(self, query: str, **more: Any) -> Any:
        """The answer of `retrieve_tools`, once all servers are listed."""
        while True:
            result = await self.client.call_tool("retrieve_tools", {"query": query, **more})
            answer: Any = result.structured_content
            if not answer["not_covered"]:
                return answer
            await anyio.sleep(0.05)

    async def delay_s(self, query: str) -> float:
        """Seconds from the answer of a search that changes the list to holding the new one."""
        self._told = anyio.Event()
        answer = await self.search(query, limit=1)
        answered_s = time.perf_counter()
        await self._told.wait()
        names = [tool.name for tool in (await self.client.list_tools()).tools]
        return _held(names, answer["newly_registered"], answered_s)

    async def list_tokens(self) -> int:
        """What the list costs."""
        listed = (await self.client.list_tools()).model_dump(mode="json", by_alias=True, exclude_none=True)
        tools = json.dumps({"tools": listed["tools"]}, ensure_ascii=False, separators=(",", ":"))
        return len(tools.encode()) // BYTES_PER_TOKEN


class Newcomer(Listener):
    """A modern client, which finds what it searched for at the address of a toolset.

    It has one HTTP client for all addresses, as applications do: to make one takes longer than all that is measured.
    """

    def __init__(self, target: Any, name: str = "bench") -> None:
        super().__init__(target, name, "auto")
        self._http = create_mcp_http_client()

    async def delay_s(self, query: str) -> float:
        """Seconds from the answer of a search to holding the list of the toolset that it made."""
        answer = await self.search(query, limit=1)
        answered_s = time.perf_counter()
        async with Client(streamable_http_client(answer["toolset"]["url"], http_client=self._http)) as own:
            names = [tool.name for tool in (await own.list_tools()).tools]
            return _held(names, [tool["listed_name"] for tool in answer["tools"]], answered_s)


def _held(names: Collection[str], wanted: Collection[str], answered_s: float) -> float:
    """Seconds since the answer.

    Raises:
        RuntimeError: The list does not hold what was found.
    """
    held_s = time.perf_counter()
    if not wanted or not set(wanted) <= set(names):
        raise RuntimeError(f"the list does not hold what was found: {wanted}")
    return max(0.0, held_s - answered_s)


def servers(names: Collection[str] = ()) -> str:
    """The configuration of these sample servers, or of all."""
    return json.dumps(
        {"mcpServers": {name: each for name, each in demo_servers().items() if not names or name in names}}
    )


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Of a gateway process."""
    own = {"CONFIG_JSON": servers(), "DATA_DIR": str(folder), "LOG_LEVEL": "ERROR", "EMBEDDER": "BM25"}
    return {"PATH": os.environ["PATH"], "HOME": str(folder)} | {
        f"MCPPROXY_{name}": value for name, value in (own | settings).items()
    }


@contextmanager
def target(transport: str, folder: Path, **settings: str) -> Iterator[Any]:
    """What a client is pointed at."""
    variables = environment(folder, **settings)
    if transport == "stdio":
        yield StdioServerParameters(command=COMMAND[0], args=list(COMMAND[1:]), env=variables)
        return
    command = [*COMMAND, "--http", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            yield sse_client(f"{url.removesuffix('/mcp')}/sse") if transport == "sse" else url
        finally:
            process.terminate()


@asynccontextmanager
async def connected(transport: str, name: str = "bench", **settings: str) -> AsyncIterator[Listener]:
    """A client of a gateway of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        target(transport, Path(folder), **settings) as found,
    ):
        listener = Newcomer(found, name) if transport == "toolset" else Listener(found, name)
        async with listener.client:
            yield listener


async def delays(transport: str, searches: int) -> list[float]:
    """Of one round, in milliseconds; one found tool fits into the list, so each search changes it."""
    pair = servers([query.partition(":")[0] for query in PAIR])
    async with connected(transport, CONFIG_JSON=pair, ROUTING_TYPE="DYNAMIC", TOOLS_LIMIT="1") as listener:
        for query in PAIR:  # the last one stays in the list, and the first one measured takes its place
            await listener.search(query, limit=1)
        with anyio.fail_after(HUNG_S * searches):
            return [await listener.delay_s(PAIR[number % 2]) * 1000 for number in range(searches)]


async def costs() -> list[tuple[str, str, int, int]]:
    """Routing, client, and tokens of its list before and after ten searches."""
    rows = []
    for routing, name in ROUTES:
        async with connected("stdio", name, ROUTING_TYPE=routing) as listener:
            before = await listener.list_tokens()
            for query in QUERIES:
                await listener.search(query)
            rows.append((routing, name, before, await listener.list_tokens()))
    return rows


async def main(options: argparse.Namespace) -> int:
    is_late = False
    if options.only != "costs":
        is_late = await measure_delays(options)
    if options.only != "delays":
        print("\ntokens of the list       before   after ten searches")
        for routing, name, before, after in await costs():
            print(f"  {routing:<10} {name:<12}{before:>7}{after:>12}", flush=True)
    return int(is_late)


async def measure_delays(options: argparse.Namespace) -> bool:
    """Whether a list came later than it may, over any transport; prints how late it came over each."""
    is_late = False
    print(f"list held after the answer, ms ({options.searches} searches, best of {options.rounds} rounds)")
    for transport in WAYS:
        rounds = [sorted(await delays(transport, options.searches)) for _ in range(options.rounds)]
        best = min(rounds, key=lambda found: found[int(len(found) * 0.95)])
        p95 = best[int(len(best) * 0.95)]
        is_late |= p95 > LIMIT_MS
        print(
            f"  {transport:<8} p50 {statistics.median(best):6.2f}   p95 {p95:6.2f}   (limit {LIMIT_MS:g})", flush=True
        )
    return is_late


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=SEARCHES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=("delays", "costs"), help="default: both")
    raise SystemExit(anyio.run(main, parser.parse_args()))
