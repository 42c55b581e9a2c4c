"""Three gateways on one PostgreSQL database: a decision at one holds at all, and nothing is lost but what was local."""

import asyncio
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
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
from worlds import DEADLINE_S, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOLD_S, POLLED_S = 0.25, 2.0
"""A decision holds everywhere so long after it was acknowledged: for nearly all, and for every one."""
BUSY_S = 20.0
"""For every one on a machine that other tests keep busy."""
HELD_UP_S = 2.0
"""Far less than a statement waits for a database that does not answer."""
DECISIONS = {"block", "unblock", "approve", "make a token", "revoke"}
CALLERS = 4
"""At each gateway."""
PAUSE_S = 0.02
"""Between two calls while a decision does not hold yet: calls without end would hold the gateways up."""
IN_A_ROW = 9
"""Calls through a balancer after which a decision holds at all three gateways: it takes them about in turn."""


class Interleaving:
    """Random decisions at random gateways, each followed by calls at random others until it holds there.

    Args:
        replicas: The gateways.
        tools: Of their servers; no other decisions are made on these.
        limit_s: For each.
        whole: All of them behind a balancer: then decisions are made and calls come in there. At which gateway is not
            known, so that each decision has to hold so many times in a row.

    Attributes:
        took_s: Seconds from each acknowledgement to the first call that was answered accordingly, as were all after it,
            by decision.
    """

    def __init__(self, replicas: list[Replica], tools: list[str], limit_s: float, whole: Replica | None = None) -> None:
        self.took_s: dict[str, list[float]] = {}
        self._replicas, self._tools, self._limit_s, self._whole = replicas, tools, limit_s, whole
        self._in_a_row = 1 if whole is None else IN_A_ROW
        self._rng = random.Random(str(tools))
        self._blocked: set[str] = set()
        self._token: str | None = None
        self._tokens = 0

    async def decide(self, times: int) -> None:
        """Decides so many times."""
        for _ in range(times):
            tool = self._rng.choice(self._tools)
            decider, other = [self._whole] * 2 if self._whole else self._rng.sample(self._replicas, 2)
            kind = self._rng.choice(("block", "approve", "token"))
            if kind == "token":
                await self._make_or_revoke(decider, other)
            elif kind == "approve" and tool not in self._blocked:
                await self._approve(tool, decider, other)
            else:
                await self._block_or_unblock(tool, decider, other)

    async def _block_or_unblock(self, tool: str, decider: Replica, other: Replica) -> None:
        decision = "unblock" if tool in self._blocked else "block"
        await decider.decide(decision, tool)
        self._blocked ^= {tool}
        await self._holds(decision, partial(other.is_executed, tool), is_free=decision == "unblock")
        assert await decider.is_executed(tool) == (decision == "unblock")

    async def _approve(self, tool: str, decider: Replica, other: Replica) -> None:
        """A definition that changes at all servers is called nowhere before it is approved."""
        for each in self._replicas:
            each.change(tool)
        for each in self._replicas:

            async def is_refused(each: Replica = each) -> bool:
                return not await each.is_executed(tool)

            await until_so(is_refused)
        await until_so(partial(decider.approves, tool))
        await self._holds("approve", partial(other.is_executed, tool), is_free=True)
        for each in self._replicas:
            await until_so(partial(each.is_executed, tool))

    async def _make_or_revoke(self, decider: Replica, other: Replica) -> None:
        """A token of an agent: made by one decision, revoked by the next one."""
        name = f"{self._tools[0]}-{self._tokens}"
        if (token := self._token) is None:
            made = await decider.rest("POST", "tokens", {"name": name, "access": "destructive"})
            token = self._token = made.json()["token"]
            await self._holds("make a token", partial(other.admits, token), is_free=True)
        else:
            revoked = await decider.rest("DELETE", f"tokens/{name}")
            assert revoked.status_code == 200, revoked.text
            self._token = None
            self._tokens += 1
            await self._holds("revoke", partial(other.admits, token), is_free=False)
        assert await decider.admits(token) == (self._token is not None)

    async def _holds(self, decision: str, is_let_through: Callable[[], Awaitable[bool]], *, is_free: bool) -> None:
        decided_s = began_s = held_s = time.monotonic()
        in_a_row = 0
        while in_a_row < self._in_a_row:
            if await is_let_through() == is_free:
                held_s = held_s if in_a_row else began_s
                in_a_row += 1
            else:
                late_s = began_s - decided_s
                assert late_s < self._limit_s, f"{decision} does not hold after {late_s:.2f} s"
                in_a_row = 0
                await asyncio.sleep(PAUSE_S)
            began_s = time.monotonic()
        self.took_s.setdefault(decision, []).append(held_s - decided_s)


async def interleave(
    replicas: list[Replica],
    decisions: int,
    limit_s: float,
    tools: list[str] = TOOLS,
    groups: int = 1,
    whole: Replica | None = None,
) -> dict[str, list[float]]:
    """What `Interleaving` finds with its decisions on these tools, by so many at a time."""
    at_once = [Interleaving(replicas, tools[place::groups], limit_s, whole) for place in range(groups)]
    await asyncio.gather(*(each.decide(decisions // groups) for each in at_once))
    took_s: dict[str, list[float]] = {}
    for each in at_once:
        for decision, seconds in each.took_s.items():
            took_s.setdefault(decision, []).extend(seconds)
    return took_s


def shown(took_s: dict[str, list[float]], what: str) -> float:
    """The p99 of all decisions together, printed with p50 and the longest."""
    together = [seconds for each in took_s.values() for seconds in each]
    p99 = quantiles(together, n=100)[98]
    print(f"{what}: {len(together)} decisions, p50 {median(together) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, ", end="")
    print(f"longest {max(together) * 1e3:.1f} ms")
    for decision, seconds in sorted(took_s.items()):
        print(f"  {decision}: {len(seconds)}, p50 {median(seconds) * 1e3:.1f} ms, longest {max(seconds) * 1e3:.1f} ms")
    return p99


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: a fleet that is whole serves several."""
    return "asyncio"


@pytest.fixture(scope="module")
async def whole_fleet(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Replica]]:
    """Three gateways; the last test that has them kills one."""
    url = postgres.url(postgres.new_database())
    async with fleet(tmp_path_factory.mktemp("whole"), url, trust="manual") as replicas:
        yield replicas


async def test_a_decision_at_one_holds_at_all(whole_fleet: list[Replica]) -> None:
    """At once, as the database tells of it."""
    took_s = await interleave(whole_fleet, 20, BUSY_S, TOOLS[2:])
    shown(took_s, "told")
    assert set(took_s) == DECISIONS


async def test_a_killed_gateway_takes_only_its_own_along(whole_fleet: list[Replica]) -> None:
    """Calls and sessions at the others go on while it is killed under load, and a decision made there stands."""
    await kill_one(whole_fleet, calls=50)


@pytest.mark.soak
async def test_a_gateway_that_is_killed_under_long_load_takes_only_its_own_along(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The same for about two seconds of load."""
    async with fleet(tmp_path, postgres.url(postgres.new_database())) as replicas:
        await kill_one(replicas, calls=200)


async def kill_one(replicas: list[Replica], calls: int) -> None:
    """Kills the first gateway while each caller of the others makes so many calls; asserts on all that is left."""
    victim, *others = replicas
    await victim.decide("block", TOOLS[0])
    lost, *kept = [await replica.new_session() for replica in replicas]
    await kill_halfway((victim, lost), list(zip(others, kept, strict=True)), calls)
    for replica in others:
        assert not await replica.is_executed(TOOLS[0])
        assert await replica.is_executed(TOOLS[1])
    echo = {"name": "call_tool_destructive", "arguments": {"name": "up:echo", "args": {"text": "x"}}}
    for replica, session in zip(others, kept, strict=True):
        assert (await replica.in_session(lost, "tools/call", echo)).status_code == 404
        answer = await replica.in_session(session, "tools/call", echo)
        assert answer.json()["result"]["content"][0]["text"] == "said x", answer.text
    with pytest.raises(httpx2.TransportError):
        await victim.in_session(lost, "tools/call", echo)


async def kill_halfway(victim: tuple[Replica, str], others: list[tuple[Replica, str]], calls: int) -> None:
    """Kills a gateway once half of the calls at the others were answered; each of those is answered rightly.

    Args:
        victim: The gateway and a session of it. What the kill leaves unanswered there is nobody's fault.
        others: Likewise. One of the callers at each calls in the session, the others without one.
        calls: Of each caller at one of the others.
    """
    answered: Counter[str] = Counter()
    is_halfway = asyncio.Event()

    async def call_on(replica: Replica, session: str | None, caller: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            text = f"{caller}-{number}"
            assert await said(replica, text, session) == f"said {text}"
            answered[replica.base] += 1
            if sum(answered[other.base] for other, _ in others) >= len(others) * CALLERS * calls // 2:
                is_halfway.set()

    async def call_until_killed(replica: Replica, session: str | None, caller: int) -> None:
        with pytest.raises(httpx2.TransportError):
            await call_on(replica, session, caller, itertools.count())
        assert is_halfway.is_set()

    began_s = time.monotonic()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            for replica, session in others:
                group.create_task(call_on(replica, None if caller else session, caller, range(calls)))
            group.create_task(call_until_killed(victim[0], None if caller else victim[1], caller))
        await is_halfway.wait()
        victim[0].process.send_signal(signal.SIGKILL)
        killed_s, before = time.monotonic(), dict(answered)
    counts = [(before.get(replica.base, 0), answered[replica.base]) for replica, _ in (victim, *others)]
    print(f"killed after {killed_s - began_s:.2f} s of {time.monotonic() - began_s:.2f} s; calls answered: {counts}")
    assert counts[0][0] > 0
    assert all(0 < then < now == CALLERS * calls for then, now in counts[1:])


async def said(replica: Replica, text: str, session: str | None) -> str:
    """What the small server's `echo` answers, in a session of the handshake era or without one."""
    if session is None:
        result = await replica.call("echo", text)
    else:
        echo = {"name": "call_tool_destructive", "arguments": {"name": "up:echo", "args": {"text": text}}}
        answer = await replica.in_session(session, "tools/call", echo)
        assert answer.status_code == 200, answer.text
        result = answer.json()["result"]
    answered: str = result["content"][0]["text"]
    return answered


async def test_a_decision_holds_at_all_through_a_pooler(postgres: PostgresServer, tmp_path: Path) -> None:
    """Notifications do not pass it; the gateways say so once, and look every second."""
    with pooled(postgres, postgres.new_database()) as url:
        async with fleet(tmp_path, url, 2, trust="manual") as replicas:
            shown(await interleave(replicas, 12, BUSY_S), "through a pooler")
    for replica in replicas:
        log = replica.log.read_text()
        assert log.count("the database does not tell of changes (a pooler may be in between)") == 1, log


def drop_triggers(url: str) -> None:
    """Lets a database tell of no change any more."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, table in connection.execute(
            "SELECT tgname, tgrelid::regclass FROM pg_trigger WHERE tgname ~ '^mcpproxy_.*_change'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name} ON {table}")  # type: ignore[call-overload]  # no user's text


@pytest.mark.soak
@pytest.mark.parametrize("way", ["told", "not-told", "pooled"])
async def test_a_thousand_decisions(postgres: PostgresServer, tmp_path: Path, way: str) -> None:
    """With notifications, and without any: the triggers that make them are dropped, or a pooler keeps them back."""
    database = postgres.new_database()
    direct = postgres.url(database)
    with pooled(postgres, database) if way == "pooled" else nullcontext(direct) as url:
        async with fleet(tmp_path, url, trust="manual") as replicas:
            if way == "not-told":
                drop_triggers(direct)
            # Without notifications each takes a second or so: ten at a time.
            took_s = await interleave(replicas, 1_000, POLLED_S, groups=1 if way == "told" else 10)
            p99 = shown(took_s, way)
            assert set(took_s) == DECISIONS
            if way == "told":
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
    """Every kind of decision holds at whichever gateway a call comes in, wherever it was made."""
    async with (
        fleet(tmp_path, postgres.url(postgres.new_database()), trust="manual") as replicas,
        balanced(tmp_path, replicas) as whole,
    ):
        took_s = await interleave(replicas, 1_000, POLLED_S, whole=whole)
        assert set(took_s) == DECISIONS
        assert shown(took_s, "through haproxy") <= TOLD_S


@pytest.mark.soak
async def test_calls_go_on_while_the_database_stands_still(postgres: PostgresServer, tmp_path: Path) -> None:
    """SIGSTOP of the whole server for 30 s: calls take as long as before, at a toolset's address too; what was decided
    holds, and new decisions are possible once it goes on."""
    url = postgres.url(postgres.new_database())
    async with fleet(tmp_path, url, 2, ROUTING_TYPE="DYNAMIC") as replicas:
        found = await replicas[1].ask("retrieve_tools", {"query": "up:echo"})  # made by the other one
        place = f"/mcp/t/{found['structuredContent']['toolset']['handle']}"

        async def call_plainly() -> bool:
            return await replicas[0].is_executed("echo")

        async def call_in_toolset() -> bool:
            return not (await replicas[0].ask("up__echo", {"text": "x"}, place)).get("isError", False)

        ways = {"a call": call_plainly, "a call in a toolset": call_in_toolset}

        async def times_s(seconds: float) -> dict[str, list[float]]:
            took_s: dict[str, list[float]] = {way: [] for way in ways}
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                for way, is_executed in ways.items():
                    began_s = time.monotonic()
                    assert await is_executed()
                    took_s[way].append(time.monotonic() - began_s)
            return took_s

        await replicas[0].decide("block", TOOLS[0])
        before_s = await times_s(5)
        with postgres.frozen():
            during_s = await times_s(30)
            assert not await replicas[0].is_executed(TOOLS[0])
        for way in ways:
            p50_s, frozen_p50_s, longest_s = median(before_s[way]), median(during_s[way]), max(during_s[way])
            print(f"{way}: p50 {p50_s * 1e3:.2f} ms before; while the database stood still ", end="")
            print(f"{frozen_p50_s * 1e3:.2f} ms, longest {longest_s * 1e3:.1f} ms")
            assert frozen_p50_s <= p50_s * 1.5 + 0.001
            assert longest_s < HELD_UP_S

        async def is_decided() -> bool:
            return (await replicas[1].asked_to("block", TOOLS[1])).status_code == 200

        async def holds() -> bool:
            return not await replicas[0].is_executed(TOOLS[1])

        await until_so(is_decided)
        await until_so(holds)
