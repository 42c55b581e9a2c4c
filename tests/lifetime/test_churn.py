"""Servers that are killed and come back every second, under load."""

import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from worlds import ENVIRON, UPSTREAM, World, end, is_alive, until

from smart_mcp_proxy.gateway import Gateway
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
CALLER = Caller("local", {}, None)


class HttpServer:
    """The small server over HTTP, always on the same port."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it listens."""
        port_file = self.world.directory / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-S", str(UPSTREAM), str(self.world.directory), str(self.port)]
        self._process = await asyncio.create_subprocess_exec(*command, env=ENVIRON)
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
                self._gateway.agent.offer_at("", LOCAL), "call_tool_write", request, CALLER, "handshake"
            )
            result = msgspec.json.decode(raw)
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
async def opened(directory: Path) -> AsyncIterator[tuple[Gateway, World, HttpServer]]:
    """A gateway with the servers `pipe` and `http`."""
    pipe, http = World(directory / "pipe"), HttpServer(directory / "http")
    await http.start()
    try:
        entries = {"pipe": pipe.entry, "http": {"url": f"http://127.0.0.1:{http.port}/mcp"}}
        servers = load_servers(msgspec.json.encode({"mcpServers": entries}).decode()).servers
        async with Gateway(Settings(data_dir=directory / "data"), servers, environ=ENVIRON) as gateway:
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


async def churn(directory: Path, duration_s: float, share: float) -> None:
    """The load and the outages; that `share` of the recoveries took 2 s at most."""
    async with opened(directory) as (gateway, pipe, http):
        load = Load(gateway)
        before = held()
        memory: list[int] = []
        callers = [asyncio.ensure_future(load.call_for_ever(name)) for name in ("pipe", "http") * (CALLERS // 2)]
        outages, until_s = 0, time.monotonic() + duration_s
        while time.monotonic() < until_s:
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
            memory.append(resident_kb())
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
        third = len(memory) // 3
        print(
            f"\n{duration_s:g} s, {outages} outages, {len(recovered)} recoveries: p{share * 100:.0f} {slowest:.2f} s,"
            f" longest {recovered[-1]:.2f} s;"
            f" calls {load.counts}; descriptors and tasks {before} -> {held()};"
            f" memory {memory[third] / 1024:.0f} -> {memory[-1] / 1024:.0f} MB"
        )
        assert slowest <= RECOVERED_S
        assert load.counts["ok"] > outages * 5
        assert memory[-1] - memory[third] < max(1024 * duration_s / 600, 4096)


async def test_servers_that_die_every_second_are_found_again(tmp_path: Path) -> None:
    """Every answer belongs to its call, and nothing is left over from a connection that broke.

    Ten seconds hold about ten recoveries, whose p95 is the longest of all: the median stands for them.
    """
    await churn(tmp_path, 10, 0.5)


@pytest.mark.soak
async def test_servers_that_die_every_second_for_minutes(tmp_path: Path) -> None:
    """The same for five minutes, or LIFETIME_SOAK_S seconds."""
    await churn(tmp_path, SOAK_S, 0.95)
