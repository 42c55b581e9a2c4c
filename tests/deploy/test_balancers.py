"""Two real gateways behind each balancer, on the configuration that is shipped."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest
from balancers import BALANCERS
from fleet import DEADLINE_S, HOST, NAMES, Fleet, Session, free_port, opened_fleet, running, until_serving
from plain_http import TRUSTS_NOBODY
from postgres_server import PostgresServer
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.web.common.forwarded import ForwardedClients
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.server.uvicorn_server import serve_app

pytestmark = [pytest.mark.anyio, pytest.mark.long]

CALLS = 50
SOME = 12
"""Calls of each of eight sessions: one that went astray in turn or by chance would be seen."""
SURE = 10
"""New sessions in a row that go to one gateway only: balancers that know two take turns."""
NEVER_S = "600"
AT_ONCE_S = 10
MOST_BYTES = 16 * 1024 * 1024
"""Default of MCPPROXY_MAX_MESSAGE_BYTES."""
OPERATOR = "an-operator-of-the-tests"
STEP = {
    "name": "call_tool_read",
    "arguments": {"name": "named:step", "args": {"text": "four"}},
    "_meta": {"progressToken": "token"},
}
"""Tells of progress, and goes on until the test lets it end."""


class Rig:
    """What a fleet is opened with.

    Attributes:
        kind: Which balancer.
        balancer: Its row.
        folder: Of the test.
        shared: Settings that both gateways have.
    """

    def __init__(self, kind: str, folder: Path, **shared: str) -> None:
        self.kind = kind
        self.balancer = BALANCERS[kind]
        self.folder = folder
        self.shared = shared

    def opened(self, **settings: str) -> AbstractAsyncContextManager[Fleet]:
        """The fleet, as long as it is open."""
        return opened_fleet(self.kind, self.balancer, self.folder, **self.shared, **settings)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: a fleet that no test ends serves several."""
    return "asyncio"


@pytest.fixture(scope="module", params=BALANCERS)
async def shared_fleet(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Rig, Fleet]]:
    """Each balancer that is installed, in front of gateways that share a database, and stop when they are told twice.

    Tests that end a gateway make it whole before.
    """
    kind = str(request.param)
    BALANCERS[kind].program(kind)
    database = postgres.url(postgres.new_database())
    rig = Rig(kind, tmp_path_factory.mktemp(kind), DATABASE_URL=database, OPERATOR_TOKEN=OPERATOR)
    async with rig.opened(STOP_DELAY_S=NEVER_S) as fleet:
        yield rig, fleet


async def until_new_sessions_go_to(fleet: Fleet, wanted: str) -> None:
    """Returns when the balancer sends no new client to the other gateway."""
    in_a_row = 0
    async with asyncio.timeout(DEADLINE_S):
        while in_a_row < SURE:
            in_a_row = in_a_row + 1 if await (await fleet.session()).where() == wanted else 0


@pytest.mark.parametrize("calls", [SOME, pytest.param(CALLS, marks=pytest.mark.soak)])
async def test_a_session_stays_at_its_gateway_and_other_requests_go_to_both(
    shared_fleet: tuple[Rig, Fleet], calls: int
) -> None:
    """Its id names the gateway, and each of its calls is made on a connection of its own."""
    rig, fleet = shared_fleet
    async with asyncio.timeout(DEADLINE_S):
        homes = await _homes_of_sessions(fleet, calls)
        assert all(session_id.endswith(f".{home}") for session_id, home in homes.items())
        served = Counter([await fleet.modern() for _ in range(2 * SURE)])
        assert set(served) == set(NAMES)
        print(f"{rig.kind}: {len(homes)} sessions of {calls} calls; 2026-07-28: {dict(served)}")


async def test_haproxy_learns_where_a_session_is(tmp_path: Path) -> None:
    """Where gateways share nothing an id does not name them."""
    async with Rig("haproxy", tmp_path).opened() as fleet, asyncio.timeout(DEADLINE_S):
        assert not any("." in session_id for session_id in await _homes_of_sessions(fleet, SOME))


async def _homes_of_sessions(fleet: Fleet, calls: int) -> dict[str, str]:
    """Ids of sessions, and the gateway that served all calls of each; both gateways have some."""
    homes = {}
    for _ in range(8):
        session = await fleet.session()
        (homes[session.id],) = {await session.where() for _ in range(calls)}
    assert set(homes.values()) == set(NAMES), homes
    return homes


async def test_events_are_passed_on_as_they_come_and_so_are_clients_that_leave(shared_fleet: tuple[Rig, Fleet]) -> None:
    """Progress arrives while the call is still under way: the call ends only afterwards. To leave cancels it."""
    rig, fleet = shared_fleet
    async with asyncio.timeout(DEADLINE_S):
        await fleet.make_whole(NAMES[0])
        await _leaves(fleet, rig.folder)
        session = await fleet.session()
        messages = session.messages(STEP)
        told = await anext(messages)
        assert told["params"]["progressToken"] == "token", told
        (rig.folder / "go").touch()
        (last,) = [message async for message in messages]
        assert last["result"]["content"][0]["text"] == f"{await session.where()} 4"


async def _leaves(fleet: Fleet, folder: Path) -> None:
    """Closes the connection of a call of the modern era, of whose answer not a byte has come, and sees it cancelled."""
    call = asyncio.create_task(fleet.post_modern({**STEP, "_meta": {}}))
    begun, cancelled = folder / "steps", folder / "cancelled"
    while not begun.exists():
        await asyncio.sleep(0.01)
    call.cancel()
    async with asyncio.timeout(AT_ONCE_S):
        while not cancelled.exists():
            await asyncio.sleep(0.01)
    assert cancelled.read_text() == begun.read_text()


async def test_the_host_and_bodies_of_the_default_size_are_passed_on(shared_fleet: tuple[Rig, Fleet]) -> None:
    """A call of nearly 16 MiB is served, one of more is 413; another host than the fleet's is refused by a gateway."""
    _, fleet = shared_fleet
    async with asyncio.timeout(DEADLINE_S), fleet.client() as client:
        call, operator = fleet.url.replace("/mcp", "/api/v1/call"), {"authorization": f"Bearer {OPERATOR}"}
        for size, status in ((MOST_BYTES - 1024, 200), (MOST_BYTES + 1, 413)):
            body = {"name": "named:whoami", "arguments": {"text": "x" * size}}
            reply = await client.post(call, json=body, headers=operator)
            assert reply.status_code == status, reply.text
            assert status != 200 or f" {size}" in reply.json()["content"][0]["text"]
        for host, status in ((HOST, 400), ("other.example", 421)):
            headers = {"host": host, "content-type": "application/json"}
            reply = await client.post(fleet.url, content=b"{}", headers=headers)
            assert reply.status_code == status, reply.text


async def test_a_gateway_that_stops_keeps_its_sessions_and_gets_no_new_ones(shared_fleet: tuple[Rig, Fleet]) -> None:
    """Until it is gone; then its clients are told to begin anew, and do so at the other."""
    rig, fleet = shared_fleet
    if not rig.balancer.asks:
        pytest.skip(f"{rig.kind} does not ask gateways how they are")
    async with asyncio.timeout(DEADLINE_S):
        session, home, other = await _session_and_gateways(fleet)
        fleet.gateways[home].send_signal(signal.SIGTERM)
        await until_new_sessions_go_to(fleet, other)
        assert {await fleet.modern() for _ in range(SURE)} == {other}
        assert {await session.where() for _ in range(CALLS)} == {home}
        fleet.gateways[home].send_signal(signal.SIGTERM)  # the second ends it at once
        await fleet.gateways[home].wait()
        await _begins_anew(session, other)


async def test_no_request_fails_while_a_gateway_stops(shared_fleet: tuple[Rig, Fleet]) -> None:
    """Those of the modern era, from before the signal until its end and after it; sessions begin anew after a 404."""
    rig, fleet = shared_fleet
    delay_s = "5" if rig.balancer.asks else "0"
    async with asyncio.timeout(DEADLINE_S):
        session, home, other = await _session_and_gateways(fleet, STOP_DELAY_S=delay_s)
        if rig.balancer.asks:
            print(f"{rig.kind}: {dict(await _served_while_it_stops(fleet, home))} while a gateway stopped, none failed")
        else:  # it notices only that connections fail: what arrives just before the end is refused
            fleet.gateways[home].send_signal(signal.SIGTERM)
        assert await fleet.gateways[home].wait() == 0
        assert {await fleet.modern() for _ in range(CALLS)} == {other}
        await until_new_sessions_go_to(fleet, other)
        await _begins_anew(session, other)


async def test_a_call_that_a_killed_gateway_had_begun_fails_and_is_not_sent_again(
    shared_fleet: tuple[Rig, Fleet],
) -> None:
    """Nobody knows whether it was carried out. All later ones are the other gateway's."""
    rig, fleet = shared_fleet
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as calls:
        await fleet.make_whole(NAMES[0])
        sessions = [await fleet.session() for _ in range(SURE)]
        homes = [await session.where() for session in sessions]
        call = calls.create_task(fleet.post_modern({**STEP, "_meta": {}}))  # silent: not a byte of an answer
        begun = rig.folder / "steps"
        while not begun.exists():
            await asyncio.sleep(0.01)
        home = begun.read_text().strip()
        other = next(name for name in NAMES if name != home)
        fleet.gateways[home].kill()
        assert (await call).status_code in (502, 503)
        await fleet.gateways[home].wait()
        assert set(await asyncio.gather(*(fleet.modern() for _ in range(CALLS)))) == {other}
        assert {await fleet.modern() for _ in range(CALLS)} == {other}
        await _begins_anew(sessions[homes.index(home)], other)
        assert await sessions[homes.index(other)].where() == other
        assert begun.read_text().split() == [home]


async def _session_and_gateways(fleet: Fleet, **settings: str) -> tuple[Session, str, str]:
    """A session, the gateway that has it, with these settings, and the other one."""
    home, other = NAMES
    await fleet.make_whole(home, **settings)
    session = await fleet.session()
    while await session.where() != home:
        session = await fleet.session()
    return session, home, other


async def _begins_anew(session: Session, other: str) -> None:
    assert (await session.call()).status_code == 404
    await session.open()
    assert await session.where() == other


async def _served_while_it_stops(fleet: Fleet, home: str) -> Counter[str]:
    """Requests by the gateway that served them, of 4 clients that go on from before the signal until it has ended."""
    served = Counter[str]()

    async def ask() -> None:
        while fleet.gateways[home].returncode is None:
            served[await fleet.modern()] += 1

    async with asyncio.TaskGroup() as clients:
        for _ in range(4):
            clients.create_task(ask())
        while set(served) != set(NAMES):
            await asyncio.sleep(0.01)
        fleet.gateways[home].send_signal(signal.SIGTERM)
    return served


@pytest.mark.parametrize("kind", BALANCERS)
async def test_gateways_learn_who_asks_and_nobody_can_pose_as_another(kind: str, tmp_path: Path) -> None:
    """Each client by the address that it has, whatever it sends in the fields that balancers write."""
    told = {"x-forwarded-for": "198.51.100.9", "forwarded": "for=198.51.100.9"}

    async def tell_address(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["client"][0])(scope, receive, send)

    balancer, door, listener = BALANCERS[kind], free_port(), bind("127.0.0.1", 0)
    file, log = balancer.at(tmp_path, door, dict.fromkeys(NAMES, listener.getsockname()[1])), tmp_path / "balancer.log"
    async with (
        serve_app(ForwardedClients(tell_address, ["127.0.0.1"]), listener),
        running(balancer.program(kind), *balancer.start(file), log=log) as process,
        asyncio.timeout(DEADLINE_S),
    ):
        for address in ("127.0.0.2", "127.0.0.3"):
            way = httpx2.AsyncHTTPTransport(local_address=address, verify=TRUSTS_NOBODY)
            async with httpx2.AsyncClient(transport=way) as client:
                await until_serving(client, url := f"http://127.0.0.1:{door}/who", process, log)
                assert (await client.get(url, headers=told)).text == address
