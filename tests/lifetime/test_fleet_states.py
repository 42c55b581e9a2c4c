"""What outlives one request, at two gateways on one database: begun at one of them, gone on with at the other."""

import asyncio
import json
import runpy
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx2
import keyring
import pytest
from asgi_server import listening
from keyring.backends.fail import Keyring as NoKeyring
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider, consent
from postgres_server import PostgresServer
from replicas import HOUR_S, KEY, META, MODERN, Replica, Story, by_wrong_clock, replica
from sign_in_fakes import Guarded, Person, guarded, redirect_of
from worlds import until_so

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import SignIn, SignIns

pytestmark = [pytest.mark.anyio, pytest.mark.long]

ASKING = Path(__file__).parents[1] / "interaction" / "asking_upstream.py"
EXTENDED = ASKING.with_name("extended_upstream.py")
TASKS = "io.modelcontextprotocol/tasks"
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
KNOWS_TASKS = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
KEYS = {"key": KEY, "no key": ""}
"""Of gateways that were given a secret key, and of those that share what the database has; an empty one is none."""
with_key = pytest.mark.parametrize("world", [KEY], ids=["key"], indirect=True)
MOST_CHARS = "3000"
"""A longer result is cut."""
NOTICED_S = 20.0
"""Much less than a token that was verified is trusted without another look."""
LOGIN = "/api/v1/servers/{}/login"
"""Of a server."""


@asynccontextmanager
async def pair(
    tmp_path: Path,
    postgres: PostgresServer,
    servers: dict[str, Any],
    database: str | None = None,
    ahead_s: int = 0,
    **settings: str,
) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two gateways in front of these servers and the small one, on a database of their own if none is named.

    The clock of the second is ahead by so much.
    """
    story = Story(tmp_path, postgres.url(database or postgres.new_database()), servers=servers, settings=settings)
    other = story._replace(main=by_wrong_clock(ahead_s)) if ahead_s else story
    async with replica("one", story) as one, replica("two", other) as two:
        yield one, two


async def call(each: Replica, tool: str, path: str = "/mcp", **more: Any) -> dict[str, Any]:
    """The answer to `tools/call` of a client that can be asked."""
    return await request(each, "tools/call", tool, path, **{"name": tool, "_meta": ABLE, **more})


async def request(each: Replica, method: str, named: str, path: str = "/mcp", **params: Any) -> dict[str, Any]:
    """The result of a request, which has to come to one."""
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
        "mcp-name": named,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = await each.client.post(f"{each.base}{path}", json=body, headers=headers)
    answer: dict[str, Any] = reply.json()
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


class World(NamedTuple):
    """Two gateways that no test here ends, and what is behind both.

    Attributes:
        one: The first gateway.
        two: The other one.
        ledger: Of the server `tasks`: a line for each request.
        server: `web`, which wants a sign-in, and gives tokens that are soon over.
    """

    one: Replica
    two: Replica
    ledger: Path
    server: Guarded


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: gateways that no test ends serve several."""
    return "asyncio"


@pytest.fixture(scope="module", params=KEYS.values(), ids=KEYS)
async def world(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """In front of a server that asks, and one with tasks; with a key, also of two that want a sign-in.

    Those are `web` and `again`; gateways that were given no key keep no sign-ins in a database.
    """
    folder = tmp_path_factory.mktemp("world")
    state, ledger = folder / "state", folder / "tasks"
    state.write_text(json.dumps({"extensions": {TASKS: {}}}))
    ledger.touch()
    extended = runpy.run_path(str(EXTENDED))
    asking = {"command": sys.executable, "args": ["-S", str(ASKING), str(folder / "ledger")], "input_requests": True}
    settings = {"SECRET_KEY": str(request.param), "ROUTING_TYPE": "DYNAMIC", "TRUNCATE_OUTPUT_LEN": MOST_CHARS}
    async with (
        listening(extended["asgi"](extended["Extended"]("modern", state, ledger))) as base,
        guarded() as web,
        guarded() as again,
    ):
        web.provider.lifetime_s = again.provider.lifetime_s = 8
        signed = {name: {"url": server.url, "oauth": True} for name, server in (("web", web), ("again", again))}
        servers = {"asking": asking, "tasks": {"url": f"{base}/mcp"}, **(signed if request.param else {})}
        async with pair(folder, postgres, servers, **settings) as (one, two):
            yield World(one, two, ledger, web)


async def test_a_server_s_questions_are_answered_at_the_other_one(world: World) -> None:
    """Round after round, each at another gateway than the one that passed on the question."""
    one, two, *_ = world
    arguments = {"name": "asking:ask", "args": {"label": "Luca", "rounds": 3}}
    result = await call(one, "call_tool_destructive", arguments=arguments)
    for number, each in enumerate((two, one, two), start=1):
        assert result["resultType"] == "input_required", result
        (name, question), *_ = result["inputRequests"].items()
        assert f"round {number}" in question["params"]["message"]
        given = {name: {"action": "accept", "content": {"name": f"answer {number}"}}}
        more = {"requestState": result["requestState"], "inputResponses": given}
        result = await call(each, "call_tool_destructive", arguments=arguments, **more)
    said = json.loads(result["content"][0]["text"])
    assert said["state"] == "Luca/3" and said["answers"]["name"]["content"] == {"name": "answer 3"}


async def test_a_task_is_looked_at_and_cancelled_at_the_other_one(world: World) -> None:
    """Under the id that its client got at the first, which holds there as before."""
    one, two, ledger, _ = world
    states = [{"status": "working", "statusMessage": f"look {number}"} for number in range(4)]
    arguments = {"name": "tasks:work", "args": {"states": states}}
    begun = await call(one, "call_tool_destructive", arguments=arguments, _meta=KNOWS_TASKS)
    assert begun["resultType"] == "task" and begun["status"] == "working", begun
    task = {"taskId": begun["taskId"], "_meta": KNOWS_TASKS}
    seen = [(await request(each, "tasks/get", begun["taskId"], **task))["statusMessage"] for each in (two, one)]
    assert seen == ["look 1", "look 2"]
    await request(two, "tasks/cancel", begun["taskId"], **task)
    assert "tasks/cancel" in [json.loads(line)[0] for line in ledger.read_text().splitlines()]


@with_key
async def test_a_toolset_and_a_cut_result_are_found_at_the_other_one(world: World) -> None:
    """The address of a toolset answers there, and the rest of a long result is read there."""
    one, two, *_ = world
    found = (await call(one, "retrieve_tools", arguments={"query": "up:tool3"}))["structuredContent"]
    handle = found["toolset"]["handle"]
    result = await call(two, "up__tool3", f"/mcp/t/{handle}", arguments={"text": "y" * 5_000})
    key = next(iter(result["_meta"].values()))["key"]
    page = await call(one, "read_output", arguments={"key": key, "offset": 0})
    assert "yyyy" in page["content"][0]["text"], page


async def asked(each: Replica, verb: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
    """The answer to the operator."""
    headers = {"authorization": f"Bearer {each.operator}"}
    return await each.client.request(verb, f"{each.base}{path}", json=body, headers=headers)


@with_key
async def test_a_sign_in_at_a_server_is_finished_at_the_other_one(world: World) -> None:
    """It is shown there, takes the address at which the browser ended, and serves both; each renewal is made once."""
    one, two, _, server = world
    login = LOGIN.format("web")
    assert (await asked(two, "GET", login)).json()["state"] == "none"
    begun = (await asked(one, "POST", login)).json()
    shown = (await asked(two, "GET", login)).json()
    assert shown == begun and shown["state"] == "waiting"
    ended = await redirect_of(shown["url"])
    wrong = await asked(two, "POST", f"{login}/address", {"address": ended.replace("state=", "state=x")})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "sign_in_unknown")
    taken = await asked(two, "POST", f"{login}/address", {"address": ended})
    assert taken.status_code == 200, taken.text
    for each in (one, two):

        async def is_done(each: Replica = each) -> bool:
            return bool((await asked(each, "GET", login)).json()["state"] == "done")

        async def is_served(each: Replica = each) -> bool:
            result = await call(each, "call_tool_destructive", arguments={"name": "web:whoami", "args": {}})
            return not result.get("isError", False)

        await until_so(is_done)
        await until_so(is_served)
    await server.until(lambda: len(server.refreshes) >= 2)
    for result in await asyncio.gather(
        *(call(each, "call_tool_destructive", arguments={"name": "web:whoami", "args": {}}) for each in (one, two))
    ):
        assert result["content"][0]["text"] == "somebody"
    used = [seen.form["refresh_token"] for seen in server.refreshes]
    assert len(set(used)) == len(used)


@with_key
async def test_a_sign_in_that_is_begun_again_at_the_other_one_is_that_one_s(world: World) -> None:
    """The address of the first no longer ends anything, at either gateway."""
    one, two, *_ = world
    login = LOGIN.format("again")
    first = (await asked(one, "POST", login)).json()
    second = (await asked(two, "POST", login)).json()
    assert first["url"] != second["url"]

    async def is_second(each: Replica = one) -> bool:
        return bool((await asked(each, "GET", login)).json() == second)

    await until_so(is_second)
    for each in (one, two):
        ended = await redirect_of(first["url"])
        assert (await asked(each, "POST", f"{login}/address", {"address": ended})).status_code == 409
    taken = await asked(one, "POST", f"{login}/address", {"address": await redirect_of(second["url"])})
    assert taken.status_code == 200, taken.text

    async def is_done() -> bool:
        return bool((await asked(one, "GET", login)).json()["state"] == "done")

    await until_so(is_done)


class Turns:
    """A balancer that gives each connection to the next gateway.

    Attributes:
        base: Its address.
        given: Connections by gateway.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.given = [0, 0]
        self.ports: list[int] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on what both ends of a connection say."""
        number = sum(self.given) % 2
        self.given[number] += 1
        theirs, to_them = await asyncio.open_connection("127.0.0.1", self.ports[number])
        await asyncio.gather(self._pass_on(reader, to_them), self._pass_on(theirs, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def front_doors(
    postgres: PostgresServer, tmp_path: Path, ahead_s: int = 0
) -> AsyncIterator[tuple[tuple[Replica, Replica], SignIns, ServerConfig, str]]:
    """Two gateways at which people sign in, behind a balancer; how they do, and the gateways' database.

    The clock of the second is ahead by so much.
    """
    keyring.set_keyring(NoKeyring())
    provider, listener = OpenIdProvider(), socket.create_server(("127.0.0.1", 0))
    turns = Turns(listener)
    async with listening(provider.app) as provider.base:
        settings = {
            "OIDC_URL": provider.config_url,
            "OIDC_CLIENT_ID": CLIENT_ID,
            "OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "OIDC_USERS": "ann@example.com=destructive",
            "PUBLIC_URL": turns.base,
        }
        database = postgres.new_database()
        async with pair(tmp_path, postgres, {}, database, ahead_s, **settings) as replicas:
            turns.ports = [int(each.base.rpartition(":")[2]) for each in replicas]
            async with await asyncio.start_server(turns.take, sock=listener):
                config = ServerConfig("gateway", "http", url=f"{turns.base}/mcp", oauth={})
                yield replicas, SignIns(tmp_path / "agent"), config, database
                assert min(turns.given) > 0, turns.given


async def signed_in(sign_ins: SignIns, config: ServerConfig) -> SignIn:
    """What a person holds who has just signed in."""
    async with Person(consent).browser() as browser:
        return await sign_ins.authorize_server(config, browser)


@pytest.mark.parametrize(
    "ahead_s",
    [
        pytest.param(0, id="right clocks", marks=pytest.mark.soak),
        pytest.param(-HOUR_S, id="one behind"),
        pytest.param(HOUR_S, id="one ahead", marks=pytest.mark.soak),
    ],
)
async def test_a_person_signs_in_through_both_and_is_known_at_both(
    postgres: PostgresServer, tmp_path: Path, ahead_s: int
) -> None:
    """Registration, consent, the way back and the token come in at either; so do calls, a renewal, and its end."""
    async with front_doors(postgres, tmp_path, ahead_s) as (replicas, sign_ins, config, _):
        held = await signed_in(sign_ins, config)
        for each in replicas:
            assert await said(each, held.access_token) == "said hello"
        renewed = await sign_ins._flow(config).renew(held)
        await sign_ins.store.write(config.name, config.url, renewed)
        for each in replicas:
            assert await said(each, renewed.access_token) == "said hello"
        assert (await sign_ins.sign_out(config)).is_revoked

        async def is_over(each: Replica) -> bool:
            return await said(each, renewed.access_token) == "401"

        for each in replicas:
            await until_so(partial(is_over, each), NOTICED_S)


@pytest.mark.soak
async def test_people_who_are_known_stay_so_while_the_database_is_gone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Longer than a token is trusted: who calls all the time, who does not, and who is not known yet."""
    async with front_doors(postgres, tmp_path) as ((one, two), sign_ins, config, database):
        known, held = [await signed_in(sign_ins, config) for _ in range(2)]
        unknown = await sign_ins._flow(config).renew(held)  # no gateway has seen it
        for each in (one, two):
            assert await said(each, known.access_token) == "said hello"
        postgres.refuse(database)
        try:
            await until_so(one.is_lost)
            for _ in range(80):
                assert await said(one, known.access_token) == "said hello"
                await asyncio.sleep(1)
            assert await said(two, known.access_token) == "said hello"
            assert [await said(each, unknown.access_token) for each in (one, two)] == ["503", "503"]
        finally:
            postgres.accept(database)
        for each in (one, two):
            await until_so(each.is_back)
            assert await said(each, unknown.access_token) == "said hello"
        took_s = []
        with postgres.frozen():
            for _ in range(80):
                begun_s = time.monotonic()
                assert await said(one, known.access_token) == "said hello"
                took_s.append(time.monotonic() - begun_s)
                await asyncio.sleep(1)
        print(f"while it stood still a call took {median(took_s) * 1e3:.1f} ms, {max(took_s) * 1e3:.1f} at most")
        assert max(took_s) < 1, "a look at the database took it up"


async def said(each: Replica, token: str) -> str:
    """What the small server says to whoever has this token; the status of a refusal."""
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "call_tool_destructive",
        "authorization": f"Bearer {token}",
    }
    params = {
        "name": "call_tool_destructive",
        "arguments": {"name": "up:echo", "args": {"text": "hello"}},
        "_meta": META,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reply = await each.client.post(f"{each.base}/mcp", json=body, headers=headers)
    if reply.status_code != 200:
        return str(reply.status_code)
    text: str = reply.json()["result"]["content"][0]["text"]
    return text
