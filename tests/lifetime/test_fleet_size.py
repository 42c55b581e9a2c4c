"""Many gateways with many tools on one database: what each takes, and what a change costs each of them."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import pytest
from postgres_server import PostgresServer
from replicas import Replica, Story, replica
from worlds import ENVIRON, UPSTREAM, SmallServer, until, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LARGE = tuple(map(int, os.environ.get("FLEET_SIZE", "20x10000").split("x")))
"""Gateways and tools of the soak."""
MOST_MS = 5.0
"""CPU time that a decision, or a change of a list, may cost a gateway that did not make it."""
SPARE_BYTES = 7 << 30
"""Left to the machine."""
REST_S = 5.0


@asynccontextmanager
async def served(folder: Path, tools: Sequence[str]) -> AsyncIterator[SmallServer]:
    """One server over HTTP for all gateways."""
    server = SmallServer(folder)
    (folder / "tools").write_text(" ".join(tools))
    command = [sys.executable, "-S", str(UPSTREAM), str(folder), "0"]
    process = await asyncio.create_subprocess_exec(*command, env=ENVIRON)
    try:
        await until((folder / "port").exists)
        yield server
    finally:
        process.kill()
        await process.wait()


def memory_bytes(each: Replica) -> int:
    """What is resident and its own."""
    lines = Path(f"/proc/{each.process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_", "Shared_Dirty")))


def spare_bytes() -> int:
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")]
    return int(line.split()[1]) << 10


def cpu_s(each: Replica) -> float:
    """CPU time of all its threads."""
    tasks = Path(f"/proc/{each.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def ms_of(others: Sequence[Replica], work_s: float) -> list[float]:
    """CPU time of each over so many seconds."""
    before = [cpu_s(each) for each in others]
    await asyncio.sleep(work_s)
    return [(cpu_s(each) - was) * 1e3 for each, was in zip(others, before, strict=True)]


@pytest.mark.parametrize(
    ("count", "tools", "changes"), [(2, 1_000, 20), pytest.param(*LARGE, 40, marks=pytest.mark.soak)]
)
async def test_a_change_costs_each_gateway_little(
    postgres: PostgresServer, tmp_path: Path, count: int, tools: int, changes: int
) -> None:
    """However many tools there are; each is started on what is stored, one after the other."""
    names = ["echo", *(f"tool{number}" for number in range(tools - 1))]
    url = postgres.url(postgres.new_database())
    async with served(tmp_path / "world", names) as server, AsyncExitStack() as stack:
        port = (server.directory / "port").read_text()
        entry = {"url": f"http://127.0.0.1:{port}/mcp", "trust": "trusted"}
        story = Story(tmp_path, url, servers={"up": entry})
        replicas, took_s = [], []
        for number in range(count):
            began_s = time.monotonic()
            replicas.append(await stack.enter_async_context(replica(f"replica{number}", story)))
            assert await replicas[-1].is_executed("tool7")
            took_s.append(time.monotonic() - began_s)
            assert spare_bytes() > SPARE_BYTES, f"{number + 1} gateways are as many as this machine takes"
        first, *others = replicas
        sizes = [memory_bytes(each) / 1e6 for each in replicas]
        print(
            f"\n{count} gateways, {tools:,} tools: started in {took_s[0]:.1f} s, later ones {median(took_s[1:]):.1f} s"
        )
        print(f"memory {min(sizes):.0f} to {max(sizes):.0f} MB each, {sum(sizes) / 1e3:.2f} GB in all")
        await asyncio.sleep(REST_S)
        idle_ms = [ms / REST_S for ms in await ms_of(others, REST_S)]

        async def block() -> None:
            for number in range(changes):
                await first.decide("unblock" if number % 2 else "block", f"tool{number // 2}")

        async def relist() -> None:
            for number in range(changes):
                server.list_words(*names, *(f"extra{each}" for each in range(number + 1)))
                answer = await first.rest("POST", "servers/up/refresh")
                assert answer.status_code == 200, answer.text

        usual_ms = {}
        for what, change in (("a block or its end", block), ("a tool that comes", relist)):
            began_s, before = time.monotonic(), [cpu_s(each) for each in others]
            await change()
            await asyncio.sleep(REST_S)
            passed_s = time.monotonic() - began_s
            used_ms = [(cpu_s(each) - was) * 1e3 for each, was in zip(others, before, strict=True)]
            each_ms = sorted((used - idle * passed_s) / changes for used, idle in zip(used_ms, idle_ms, strict=True))
            print(
                f"{what}: CPU of a gateway that did not make the change p50 {median(each_ms):.2f} ms, "
                f"most {each_ms[-1]:.2f} ms; at rest {median(idle_ms):.2f} ms a second; {passed_s:.0f} s"
            )
            usual_ms[change] = median(each_ms)
        for each in others:
            await until_so(lambda each=each: each.finds(f"extra{changes - 1}"))
        # Each decision is told by itself, and lists that follow each other together: neither may cost more.
        assert usual_ms[block] <= MOST_MS
        assert usual_ms[relist] <= MOST_MS
