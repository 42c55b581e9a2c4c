"""Servers that are killed and come back every second, under load."""

import asyncio
import gc
import logging
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import combinations
from pathlib import Path
from statistics import median

import msgspec
import pytest
from run_wire import noting
from worlds import ENVIRON, UPSTREAM, SmallServer, end, is_alive, until

from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import LOCAL
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.long]

PERIOD_S = 1.0
DOWN_S = 0.2
CALLERS = 4
RECOVERED_S = 2.0
"""95 of 100 outages are over so soon after the server is back."""
SOAK_S = float(os.environ.get("LIFETIME_SOAK_S", "300"))
WARM_UP_ROUNDS = 200
"""Until then caches fill: SQLite's alone takes 2 MB."""
JUDGED_ROUNDS = 100
"""So many show the slope: resident memory is read to within 20 KB, so it is known to within 0.1 MB per 10 minutes."""
FLAT_KB_PER_S = 1024 / 600
"""Source: docs/design/limits.md#figures-in-tests"""
CALLER = Caller("local", {}, None)


class HttpServer:
    """The small server over HTTP, always on the same port."""

    def __init__(self, directory: Path) -> None:
        self.small = SmallServer(directory)
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it listens."""
        port_file = self.small.directory / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-S", str(UPSTREAM), str(self.small.directory), str(self.port)]
        self._process = await asyncio.create_subprocess_exec(*command, env=ENVIRON | noting())
        await until(port_file.exists)
        self.port = int(port_file.read_text())

    async def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Load:
    """Callers of two servers, and how their calls went.

    Args:
        gateway: In front of both.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._calls = 0
        self.counts = {"ok": 0, "not_sent": 0, "unknown": 0}
        self.last_ok: dict[str, float] = {}
        self.back_s: dict[str, float] = {}
        self.recovered_s: list[float] = []

    async def call_for_ever(self, server: str) -> None:
        """One caller."""
        while True:
            self._calls += 1
            nonce = f"{server} {self._calls}"
            began = time.monotonic()
            request = {"name": f"{server}:echo", "args": {"text": nonce}}
            raw = await self._gateway.agent.answer(
                self._gateway.agent.require_tools("", LOCAL).call, "call_tool_write", request, CALLER, "handshake"
            )
            result = msgspec.json.decode(raw.text)
            if result.get("isError"):
                self.counts[result["structuredContent"]["error"]["delivery"]] += 1
                await asyncio.sleep(0.02)
                continue
            assert result["content"][0]["text"] == f"said {nonce}", result
            self.counts["ok"] += 1
            back = self.back_s.get(server)
            if back is not None and began >= back:
                self.recovered_s.append(time.monotonic() - self.back_s.pop(server))
            await asyncio.sleep(0.002)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[Gateway, SmallServer, HttpServer]]:
    """A gateway with the servers `pipe` and `http`."""
    pipe, http = SmallServer(directory / "pipe"), HttpServer(directory / "http")
    await http.start()
    try:
        entries = {"pipe": pipe.entry, "http": {"url": f"http://127.0.0.1:{http.port}/mcp"}}
        servers = load_servers(msgspec.json.encode({"mcpServers": entries}).decode()).servers
        async with open_gateway(Settings(data_dir=directory / "data"), servers, environ=ENVIRON) as gateway:
            gateway.start_upstreams()
            assert await gateway.wait_settled(20)
            yield gateway, pipe, http
    finally:
        await http.kill()
        end(pipe.pids())


def resident_kb() -> int:
    """Memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def held() -> tuple[int, int]:
    """Open descriptors and tasks of this process."""
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


def slope_kb_per_s(samples: list[tuple[float, int]]) -> float:
    """How fast memory grows: the median of the slopes between any two samples.

    A step of the allocator, some 100 KB once in a while, is not in half of the pairs; a leak is in every one.
    """
    return median((late[1] - soon[1]) / (late[0] - soon[0]) for soon, late in combinations(samples, 2))


@contextmanager
def unkept_log() -> Iterator[None]:
    """Keeps the log from pytest, which would hold on to every record: it is the gateway's memory that is measured.

    Not a fixture: before a test's body pytest puts its handler on every logger that does not propagate by then.
    """
    with pytest.MonkeyPatch.context() as patch:
        ours = logging.getLogger("mcpproxy")
        patch.setattr(ours, "propagate", False)
        patch.setattr(ours, "handlers", [logging.NullHandler()])
        yield


async def churn(directory: Path, rounds: int, share: float) -> None:
    """The load and the outages; that `share` of the recoveries took 2 s at most, and memory is flat in the end."""
    async with opened(directory) as (gateway, pipe, http):
        load = Load(gateway)
        before = held()
        memory: list[tuple[float, int]] = []
        callers = [asyncio.ensure_future(load.call_for_ever(name)) for name in ("pipe", "http") * (CALLERS // 2)]
        outages = 0
        for _ in range(rounds):
            next_s = time.monotonic() + PERIOD_S
            if is_alive(pipe.pids()[-1]):
                end(pipe.pids()[-1:])
                outages += 1
                load.back_s.setdefault("pipe", time.monotonic())
            await http.kill()
            await asyncio.sleep(DOWN_S * random.random())
            await http.start()
            outages += 1
            load.back_s.setdefault("http", time.monotonic())
            memory.append((time.monotonic(), resident_kb()))
            assert not any(caller.done() for caller in callers), callers
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        await until(lambda: not load.back_s)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert await gateway.wait_settled(20)
        await until(lambda: held()[0] <= before[0] + 3 and held()[1] <= before[1] + 3)
        recovered = sorted(load.recovered_s)
        slowest = recovered[int(len(recovered) * share)]
        judged = memory[WARM_UP_ROUNDS:]
        slope = slope_kb_per_s(judged) if len(judged) >= JUDGED_ROUNDS else None
        print(
            f"\n{rounds} rounds, {outages} outages, {len(recovered)} recoveries: p{share * 100:.0f} {slowest:.2f} s,"
            f" longest {recovered[-1]:.2f} s;"
            f" calls {load.counts}; descriptors and tasks {before} -> {held()};"
            f" memory {memory[0][1] / 1024:.1f} -> {memory[-1][1] / 1024:.1f} MB, "
            + ("too short to judge" if slope is None else f"then {slope * 600 / 1024:+.2f} MB per 10 minutes")
        )
        assert slowest <= RECOVERED_S
        assert load.counts["ok"] > outages * 5
        assert slope is None or slope < FLAT_KB_PER_S


async def test_servers_that_die_every_second_are_found_again(tmp_path: Path) -> None:
    """Every answer belongs to its call, and nothing is left over from a connection that broke.

    Ten seconds hold about ten recoveries, whose p95 is the longest of all: the median stands for them.
    """
    await churn(tmp_path, 10, 0.5)


@pytest.mark.soak
async def test_servers_that_die_every_second_for_minutes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same for five minutes, or LIFETIME_SOAK_S seconds; memory is judged if it is five minutes or more."""
    with unkept_log():
        await churn(tmp_path, round(SOAK_S / PERIOD_S), 0.95)
    assert not caplog.records


def test_a_slope_is_that_of_a_leak_and_not_of_a_step() -> None:
    """What the judgement above rests on."""
    rng = random.Random(1)
    noise = [rng.randint(0, 20) for _ in range(JUDGED_ROUNDS)]
    leak = FLAT_KB_PER_S * 1.2
    assert slope_kb_per_s([(at, 160_000 + round(leak * at) + noise[at]) for at in range(100)]) > FLAT_KB_PER_S
    for step in (10, 30, 50, 70):
        assert slope_kb_per_s([(at, 160_000 + 128 * (at > step) + noise[at]) for at in range(100)]) < FLAT_KB_PER_S
