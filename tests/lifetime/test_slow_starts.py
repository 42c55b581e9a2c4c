"""Many programs that take long to start, beside one that does not."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from worlds import ENVIRON

from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest, ServerState
from smart_mcp_proxy.servers import ServerConfig, load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

SERVER = Path(__file__).with_name("late_server.py")
SLOW = 50
SLOWEST_S = 120
LIMIT_S = 400
PAUSE_S = 0.1
ROUNDS = 100
RATIO_LIMIT = 3.0


def configured(folder: Path, delays_s: Mapping[str, float]) -> Mapping[str, ServerConfig]:
    """Servers that answer so many seconds after their start."""
    entries = {
        name: {
            "command": sys.executable,
            "args": ["-S", "-E", str(SERVER), str(folder / name), str(delay_s)],
            "trust": "trusted",
        }
        for name, delay_s in delays_s.items()
    }
    return load_servers(json.dumps({"mcpServers": entries})).servers


async def use(gateway: Gateway) -> tuple[float, float]:
    """Seconds that a call and a search take."""
    began_s = time.perf_counter()
    await gateway.calls.call(CallRequest("fast:work", {}, "write"))
    called_s = time.perf_counter()
    answer = await gateway.retrieval.retrieve(Question(query="do the work", limit=5))
    assert answer["tools"]
    return called_s - began_s, time.perf_counter() - called_s


async def used(gateway: Gateway, rounds: int) -> tuple[float, float]:
    """Medians of as many calls and searches, one after the other, with pauses."""
    times = []
    for _ in range(rounds):
        times.append(await use(gateway))
        await asyncio.sleep(PAUSE_S)
    calls, searches = zip(*times, strict=True)
    return statistics.median(calls), statistics.median(searches)


async def test_fifty_slow_programs_are_started_once_each_and_hold_up_nobody(tmp_path: Path) -> None:
    """Starts of up to two minutes: each is ready from its first one, and the fast server is used meanwhile."""
    slow = {f"slow-{number}": 1 + (SLOWEST_S - 1) * number / (SLOW - 1) for number in range(SLOW)}
    alone = configured(tmp_path, {"fast": 0})
    together = configured(tmp_path, slow) | alone
    async with (
        asyncio.timeout(LIMIT_S),
        open_gateway(Settings(data_dir=tmp_path / "data"), alone, environ=ENVIRON) as gateway,
    ):
        gateway.start_upstreams()
        assert await gateway.wait_settled(LIMIT_S)
        alone_s = await used(gateway, ROUNDS)
        began_s = time.monotonic()
        await gateway.apply(together)
        beside_s = await used(gateway, ROUNDS)
        assert not gateway.is_settled()  # the servers were starting while the fast one was measured
        assert await gateway.wait_settled(LIMIT_S)
        took_s = time.monotonic() - began_s
        states = {server.name: server.state for server in gateway.status().servers}
    assert states == dict.fromkeys(together, ServerState.READY)
    assert {name: (tmp_path / name).read_text().count("boot") for name in together} == dict.fromkeys(together, 1)
    for what, lone_s, busy_s in zip(("call", "search"), alone_s, beside_s, strict=True):
        print(f"{what}: {lone_s * 1000:.2f} ms alone, {busy_s * 1000:.2f} ms beside {SLOW} starts")
        assert busy_s < RATIO_LIMIT * lone_s
    print(f"all ready after {took_s:.0f} s")
