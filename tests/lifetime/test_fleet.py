"""Three gateways on one PostgreSQL database: a decision at one holds at all, and nothing is lost but what was local."""

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median, quantiles

import httpx2
import psycopg
import pytest
from balancers import BALANCERS
from plain_http import plain_client
from pooler import pooled
from postgres_server import PostgresServer, free_port
from replicas import TOOLS, Replica, fleet
from worlds import until_so

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOLD_S, POLLED_S = 0.25, 2.0
"""A decision holds everywhere so long after it was acknowledged: for nearly all, and for every one."""
BUSY_S = 20.0
"""For every one on a machine that other tests keep busy."""


async def interleave(replicas: list[Replica], decisions: int, limit_s: float, tools: list[str]) -> list[float]:
    """Random decisions at random gateways, each followed by calls at random others until it holds there.

    Returns:
        Seconds from each acknowledgement to the first call that was answered accordingly.
    """
    rng = random.Random(f"{decisions} {tools}")
    blocked: set[str] = set()
    took_s = []
    for _ in range(decisions):
        tool = rng.choice(tools)
        decider, other = rng.sample(replicas, 2)
        is_blocked = tool not in blocked
        await decider.decide("block" if is_blocked else "unblock", tool)
        blocked ^= {tool}
        decided_s = time.monotonic()
        assert await decider.is_executed(tool) != is_blocked
        while True:
            began_s = time.monotonic()
            if await other.is_executed(tool) != is_blocked:
                break
            assert began_s - decided_s < limit_s, (
                f"{tool} is not {'blocked' if is_blocked else 'free'} after {limit_s} s"
            )
        took_s.append(began_s - decided_s)
    return took_s


def shown(took_s: list[float], what: str) -> float:
    p99 = quantiles(took_s, n=100)[98]
    print(f"{what}: {len(took_s)} decisions, p50 {median(took_s) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, ", end="")
    print(f"longest {max(took_s) * 1e3:.1f} ms")
    return p99


async def test_a_decision_at_one_holds_at_all(postgres: PostgresServer, tmp_path: Path) -> None:
    """At once, as the database tells of it."""
    url = postgres.url(postgres.new_database())
    async with fleet(tmp_path, url) as replicas:
        shown(await interleave(replicas, 60, BUSY_S, TOOLS), "told")


async def test_a_decision_holds_at_all_through_a_pooler(postgres: PostgresServer, tmp_path: Path) -> None:
    """Notifications do not pass it; the gateways say so once, and look every second."""
    with pooled(postgres, postgres.new_database()) as url:
        async with fleet(tmp_path, url) as replicas:
            shown(await interleave(replicas, 30, BUSY_S, TOOLS), "through a pooler")
    for replica in replicas:
        log = replica.log.read_text()
        assert log.count("the database does not tell of changes (a pooler may be in between)") == 1, log


@pytest.mark.soak
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not-told"])
async def test_a_thousand_decisions(postgres: PostgresServer, tmp_path: Path, is_told: bool) -> None:
    """With notifications, and without any: the triggers that make them are dropped."""
    database = postgres.new_database()
    async with fleet(tmp_path, postgres.url(database)) as replicas:
        if not is_told:
            with psycopg.connect(postgres.url(database), autocommit=True) as connection:
                for name, table in connection.execute(
                    "SELECT tgname, tgrelid::regclass FROM pg_trigger WHERE tgname LIKE 'mcpproxy_catalog_changes%'"
                ).fetchall():
                    connection.execute(f"DROP TRIGGER {name} ON {table}")  # type: ignore[call-overload]  # no user's text
        # Without notifications each takes a second or so: ten at a time.
        groups = [TOOLS] if is_told else [TOOLS[place::10] for place in range(10)]
        each = [interleave(replicas, 1_000 // len(groups), POLLED_S, group) for group in groups]
        took_s = [took for group in await asyncio.gather(*each) for took in group]
        p99 = shown(took_s, "told" if is_told else "not told")
        if is_told:
            assert p99 <= TOLD_S


@asynccontextmanager
async def balanced(folder: Path, replicas: list[Replica]) -> AsyncIterator[Replica]:
    """The gateways behind haproxy: each request comes in on a connection of its own, at any of them."""
    balancer, port = BALANCERS["haproxy"], free_port()
    ports = [int(each.base.rpartition(":")[2]) for each in replicas]
    file = balancer.at(folder, port, {"gateway-a": ports[0], "gateway-b": ports[1]})
    with file.open("a", encoding="utf-8") as text:
        text.writelines(f"    server gateway-{port} 127.0.0.1:{port}\n" for port in ports[2:])
    process = await asyncio.create_subprocess_exec(
        balancer.program("haproxy"), *balancer.start(file), stdout=asyncio.subprocess.DEVNULL
    )
    limits = httpx2.Limits(max_keepalive_connections=0)
    try:
        async with plain_client(timeout=60, limits=limits) as client:
            whole = replicas[0]._replace(base=f"http://127.0.0.1:{port}", client=client)

            async def is_open() -> bool:
                with suppress(httpx2.HTTPError, AssertionError, ValueError, KeyError):
                    return await whole.is_executed(TOOLS[0])
                return False

            await until_so(is_open)
            yield whole
    finally:
        process.kill()
        await process.wait()


@pytest.mark.soak
async def test_a_thousand_decisions_through_a_balancer(postgres: PostgresServer, tmp_path: Path) -> None:
    """From each acknowledgement on calls are made, until so many in a row were refused: which gateway is not known."""
    in_a_row = 9
    rng = random.Random(21)
    late_s = []
    async with (
        fleet(tmp_path, postgres.url(postgres.new_database())) as replicas,
        balanced(tmp_path, replicas) as whole,
    ):
        for _ in range(500):
            tool = rng.choice(TOOLS)
            await whole.decide("block", tool)
            decided_s, last_s, refused = time.monotonic(), 0.0, 0
            while refused < in_a_row:
                began_s = time.monotonic()
                is_executed = await whole.is_executed(tool)
                refused = 0 if is_executed else refused + 1
                last_s = began_s - decided_s if is_executed else last_s
                assert last_s < POLLED_S
            late_s.append(last_s)
            await whole.decide("unblock", tool)

            async def is_free(tool: str = tool) -> bool:
                return all([await each.is_executed(tool) for each in replicas])

            await until_so(is_free)
        assert shown(late_s, "through haproxy, last executed") <= TOLD_S


async def test_a_killed_gateway_takes_only_its_own_along(postgres: PostgresServer, tmp_path: Path) -> None:
    """Calls at the others go on while it is killed under load, and a decision made there stands."""
    async with fleet(tmp_path, postgres.url(postgres.new_database())) as replicas:
        victim, *others = replicas
        await victim.decide("block", TOOLS[0])
        calls = [asyncio.ensure_future(replica.call("echo", f"{n}")) for n in range(50) for replica in replicas]
        await asyncio.sleep(0)
        victim.process.send_signal(signal.SIGKILL)
        results = await asyncio.gather(*calls, return_exceptions=True)
        for number, result in enumerate(results):
            if number % 3:
                assert isinstance(result, dict) and result["content"][0]["text"] == f"said {number // 3}"
        for replica in others:
            assert not await replica.is_executed(TOOLS[0])
            assert await replica.is_executed(TOOLS[1])


@pytest.mark.soak
async def test_calls_go_on_while_the_database_stands_still(postgres: PostgresServer, tmp_path: Path) -> None:
    """SIGSTOP of the whole server for 30 s: calls take as long as before; what was decided holds, and new decisions
    are possible once it goes on."""
    async with fleet(tmp_path, postgres.url(postgres.new_database()), 2) as replicas:

        async def p50_s(seconds: float) -> float:
            took_s = []
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                began_s = time.monotonic()
                assert await replicas[0].is_executed("echo")
                took_s.append(time.monotonic() - began_s)
            return median(took_s)

        await replicas[0].decide("block", TOOLS[0])
        before_s = await p50_s(5)
        with postgres.frozen():
            during_s = await p50_s(30)
            assert not await replicas[0].is_executed(TOOLS[0])
        print(f"p50 {before_s * 1e3:.2f} ms before, {during_s * 1e3:.2f} ms while the database stood still")
        assert during_s <= before_s * 1.5 + 0.001

        async def is_decided() -> bool:
            return (await replicas[1].asked_to("block", TOOLS[1])).status_code == 200

        async def holds() -> bool:
            return not await replicas[0].is_executed(TOOLS[1])

        await until_so(is_decided)
        await until_so(holds)
