"""The door between a client and gateways that do as a test says, message by message."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from desks import HELLO, META, PROGRAM, Desk, DeskClient, read_status, until
from fake_gateways import FakeGateway, Link, listening

pytestmark = pytest.mark.anyio

LISTS = {"capabilities": {"tools": {"listChanged": True}, "resources": {}}}


@asynccontextmanager
async def greeted(desk: Desk) -> AsyncIterator[tuple[FakeGateway, Link, DeskClient]]:
    """A gateway of the test's own, its one link, and the client that has greeted it there."""
    async with listening(desk.socket) as gateway, desk.client() as client:
        client.ask("initialize", HELLO, "hello")
        link = await gateway.joined()
        await link.answer("initialize", LISTS)
        client.put({"method": "notifications/initialized"})
        assert (await link.hear())["method"] == "notifications/initialized"
        await client.answer("hello")
        yield gateway, link, client


async def regreeted(gateway: FakeGateway) -> Link:
    """The link to the next gateway, once the handshake was repeated there."""
    link = await gateway.joined()
    assert (await link.answer("initialize", LISTS))["params"] == HELLO
    assert (await link.hear())["method"] == "notifications/initialized"
    return link


async def test_a_door_says_who_it_is_and_nothing_secret(desk: Desk) -> None:
    """The first line names version, folder, servers and settings; variables are told where they are asked for."""
    variables = {"DESK_KEY": "k", "DESK_SECRET": "s", "MCPPROXY_TOP_K": "7", "MCPPROXY_CONFIG_JSON": ""}
    async with listening(desk.socket) as gateway, desk.client("--profile", "few", **variables) as client:
        link = await gateway.next()
        hello = link.hello
        assert (hello["pid"], hello["profile"], hello["directory"]) == (client.pid, "few", str(desk.home))
        assert hello["source"] == os.path.realpath(desk.server_file)
        assert hello["data_dir"] == os.path.realpath(desk.data_dir)
        assert hello["settings"]["MCPPROXY_TOP_K"] == "7"
        assert "DESK" not in json.dumps(hello)
        link.put(b'{"variables": ["DESK_KEY", "DESK_UNSET"]}\n')
        assert await link.hear() == {"variables": {"DESK_KEY": "k"}}
        link.let_in()
        client.stdin.close()
        assert await link.read_rest() == b""
        link.close()
        assert await client.process.wait() == 0


async def test_lines_pass_as_they_are(desk: Desk) -> None:
    """What is no request, and what is no JSON, passes unchanged in both directions, empty lines left out."""
    odd = [
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"nonsense",
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{ "jsonrpc" : "2.0", "id" : [1], "method" : "ping" }',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","id":{"a":1},"result":{}}',
        b'{"jsonrpc":"2.0","id":7,"method":"resources/unsubscribe","params":"x"}',
        b'{"jsonrpc":"2.0","id":8,"method":5,"params":"x"}',
        b"\xff\xfe",
        b"9" * 5_000,
        b"[" * 20_000,
        b'{"jsonrpc":"2.0","id":9,"method":"ping"}\r',
    ]
    async with greeted(desk) as (_, link, client):
        client.stdin.write(b"\n\n  \n".join([*odd, b""]))
        for each in odd:
            assert await link.read() == each + b"\n"
        link.put(b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"\\u00fc \xc3\xbc"}}\n')
        link.put(b'{"id": [1], "jsonrpc": "2.0", "error": {}}\n'.replace(b"[1]", b"null"))
        assert (await client.answer(7))["error"]["message"] == "ü ü"
        assert (await client.answer(None))["error"] == {}


async def test_an_unanswered_call_is_answered_and_searches_are_repeated(desk: Desk) -> None:
    """After a crash a call has an answer that says what is not known; what changes nothing is sent once more."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        client.call({}, key="call")
        search = client.search()
        for _ in range(2):
            await link.hear()
        link.put(b'{"jsonrpc":"2.0","id":"call","resu')  # half a line
        link.close()
        answer = await client.answer("call")
        assert answer["error"]["data"] == {"delivery": "unknown"}
        link = await regreeted(gateway)
        repeated = await link.hear()
        assert (repeated["id"], repeated["params"]["name"]) == (search, "retrieve_tools")
        link.say(id=search, result={"content": []})
        assert (await client.answer(search))["result"] == {"content": []}
        assert [each["method"] for each in client.heard] == ["notifications/tools/list_changed"]
        assert {key: len(each) for key, each in client.answers.items()} == {"hello": 1, "call": 1, search: 1}


async def test_what_a_session_rests_on_is_told_to_the_next_gateway(desk: Desk) -> None:
    """Handshake, level of the log and subscriptions come first, in order, each once, and their answers stay unseen."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        for method, params in (
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "board://a"}),
            ("resources/subscribe", {"uri": "board://b"}),
            ("logging/setLevel", {"level": "error"}),
            ("resources/unsubscribe", {"uri": "board://a"}),
        ):
            key = client.ask(method, params)
            await link.answer(method)
            await client.answer(key)
        before = dict(client.answers)
        link.close()
        search = client.search()
        link = await regreeted(gateway)
        said = [await link.answer("resources/subscribe"), await link.answer("logging/setLevel")]
        assert [each["params"] for each in said] == [{"uri": "board://b"}, {"level": "error"}]
        await link.answer("tools/call")
        await client.answer(search)
        assert client.answers.keys() - before.keys() == {search}
        assert all(len(each) == 1 for each in client.answers.values())


async def test_a_gateway_that_leaves_is_asked_no_more(desk: Desk) -> None:
    """What a leaving gateway has taken it answers, at its leisure; what it has not taken the next one is asked."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        taken, missed, later = (client.call({}, key=each) for each in ("taken", "missed", "later"))
        await client.stdin.drain()
        for _ in range(3):
            await link.hear()
        link.leave(taken=3)  # the greeting's two lines, and a call
        client.call({}, key="last")
        link.say(id=taken, result={"content": [1]})
        assert (await client.answer(taken))["result"] == {"content": [1]}
        assert not gateway.is_awaited()
        link.close()
        link = await regreeted(gateway)
        asked = [(await link.hear())["id"] for _ in range(3)]
        assert asked == [missed, later, "last"]
        for each in asked:
            link.say(id=each, result={})
            await client.answer(each)


async def test_one_that_was_stopped_is_started_again_by_a_request_alone(desk: Desk) -> None:
    """After a stop a door joins the next gateway when its client asks, or has asked what was not taken."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        client.ask("subscriptions/listen", {}, "news")
        await link.hear()
        link.leave(taken=3, is_stopped=True)
        link.close()
        key = client.search()
        link = await regreeted(gateway)
        assert [(await link.hear())["id"] for _ in range(2)] == ["news", key]
        link.leave(taken=3, is_stopped=True)
        link.close()  # the search was not taken
        link = await regreeted(gateway)
        assert [(await link.hear())["id"] for _ in range(2)] == ["news", key]
        link.say(id=key, result={})
        await client.answer(key)


async def test_what_has_not_left_the_door_was_not_sent(desk: Desk) -> None:
    """Calls that a gateway which is killed cannot have read are sent to the next one, whatever they are."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        link.pause()
        keys = [client.call({"text": "x" * 100_000}, key=f"call{each}") for each in range(40)]
        await client.stdin.drain()
        await until(lambda: read_status(client.pid)["State"].startswith("S"))
        link.close()
        link = await regreeted(gateway)
        again = [(await link.hear())["id"]]
        while again[-1] != keys[-1]:
            again.append((await link.hear())["id"])
        assert again == keys[-len(again) :]
        assert 20 < len(again) < 40
        for each in again:
            link.say(id=each, result={})
        answers = [await client.answer(each) for each in keys]
        assert [each["id"] for each in answers if "error" in each] == keys[: -len(again)]
        assert all(len(each) == 1 for each in client.answers.values())


async def test_the_last_answers_of_a_gateway_arrive_though_it_reads_no_more(desk: Desk) -> None:
    """A door that fails to send to a gateway which has closed the connection still reads what it said before."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        taken = client.call({}, key="taken")
        await link.hear()
        os.kill(client.pid, signal.SIGSTOP)
        try:
            await until(lambda: read_status(client.pid)["State"].startswith("T"))
            link.leave(taken=3)
            link.say(id=taken, result={"content": [1]})
            await link.end()
            client.call({}, key="last")
            await client.stdin.drain()
        finally:
            os.kill(client.pid, signal.SIGCONT)
        assert (await client.answer(taken))["result"] == {"content": [1]}
        link = await regreeted(gateway)
        assert (await link.hear())["id"] == "last"
        link.say(id="last", result={})
        await client.answer("last")


async def test_an_answer_to_a_gateway_that_has_ended_reaches_no_other(desk: Desk) -> None:
    """A question of a killed gateway is taken back; a late answer goes nowhere, though the next one counts alike."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        link.say(id=1, method="roots/list")
        assert (await client.hears("roots/list"))["id"] == 1
        link.close()
        assert (await client.hears("notifications/cancelled"))["params"]["requestId"] == 1
        client.search()
        link = await regreeted(gateway)
        assert (await link.hear())["method"] == "tools/call"
        link.say(id=1, method="roots/list")
        question = await client.hears("roots/list")
        client.put({"id": 1, "result": {"roots": ["old"]}})
        client.put({"id": question["id"], "result": {"roots": ["new"]}})
        assert await link.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"roots": ["new"]}}
        link.say(id=2, method="roots/list")
        question = await client.hears("roots/list")
        link.say(method="notifications/cancelled", params={"requestId": 2})
        assert (await client.hears("notifications/cancelled"))["params"]["requestId"] == question["id"]


async def test_gateways_that_end_at_once_are_joined_after_a_rest(desk: Desk) -> None:
    """A request that gateways end of is given up after the third repetition; nothing is asked without end."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        key = client.search()
        for _ in range(3):
            assert (await link.hear())["id"] == key
            link.close()
            link = await regreeted(gateway)
        assert (await link.hear())["id"] == key
        link.close()
        assert (await client.answer(key))["error"]["data"] == {"delivery": "unknown"}
        assert len(client.answers[key]) == 1


@pytest.mark.long
async def test_a_door_rejoins_by_itself_after_its_rest(desk: Desk) -> None:
    """Where gateways end again and again, a request under way waits some seconds and is then sent, unasked for."""
    async with greeted(desk) as (gateway, first, client):
        link = first
        for each in range(4):
            link.close()
            client.search()
            link = await regreeted(gateway)
            assert (await link.hear())["params"]["name"] == "retrieve_tools"
            if each < 3:
                link.say(id=client.search() - 1, result={})
        link.close()
        link = await regreeted(gateway)
        assert (await link.hear())["params"]["name"] == "retrieve_tools"


async def test_who_listens_hears_that_it_may_have_missed_news(desk: Desk) -> None:
    """A subscription of the modern era goes on with the next gateway: news come, its end and beginning do not."""
    async with listening(desk.socket) as gateway, desk.client() as client:
        client.ask("subscriptions/listen", {}, "news")
        first = await gateway.joined()
        await first.hear()
        agreed = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["board://a"]}
        told = {"_meta": {META + "subscriptionId": "news"}, "notifications": agreed}
        first.say(method="notifications/subscriptions/acknowledged", params=told)
        await client.hears("notifications/subscriptions/acknowledged")
        first.leave(taken=1)
        first.say(id="news", result={"resultType": "complete"})
        first.close()
        link = await gateway.joined()
        assert (await link.hear())["id"] == "news"
        link.say(method="notifications/subscriptions/acknowledged", params=told)
        await client.hears("notifications/tools/list_changed")
        assert (await client.hears("notifications/resources/updated"))["params"]["uri"] == "board://a"
        link.say(id="news", result={})
        assert (await client.answer("news"))["result"] == {}
        assert not client.heard


async def test_a_gateway_that_makes_room_for_a_newer_one_counts_for_nothing(desk: Desk) -> None:
    """Doors that a gateway turns away because it is replaced join the next, however many of them there are."""
    async with listening(desk.socket) as gateway, desk.client() as client:
        key = client.ask("initialize", HELLO)
        for _ in range(4):
            link = await gateway.next()
            link.put(b'{"replaced": "1"}\n')
            link.close()
        link = await gateway.joined()
        await link.answer("initialize", LISTS)
        await client.answer(key)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_door_that_is_told_to_end_has_its_calls_answered(desk: Desk, number: signal.Signals) -> None:
    """After a signal nothing more is read; what was asked is answered, then the door ends as the gateway would."""
    async with greeted(desk) as (_, link, client):
        key = client.call({})
        assert (await link.hear())["id"] == key
        client.process.send_signal(number)
        assert await link.read_rest() == b""
        link.say(id=key, result={})
        await client.answer(key)
        link.close()
        assert await client.process.wait() == (130 if number == signal.SIGINT else 0)


async def test_a_client_on_a_socket_may_leave_answers_unread(desk: Desk) -> None:
    """A client whose pipes are sockets, and which closes them with answers unread, ends its door and nothing else."""
    async with listening(desk.socket) as gateway:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, "serve", stdin=theirs, stdout=theirs, env=desk.environ(), cwd=desk.home
            )
            theirs.close()
            ours.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            link = await gateway.joined()
            await link.answer("ping")
            await until(lambda: _is_readable(ours))
        try:
            assert await link.read_rest() == b""
            link.close()
            assert await asyncio.wait_for(process.wait(), 10) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert not desk.gateways()


def _is_readable(link: socket.socket) -> bool:
    try:
        return bool(link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


@pytest.mark.long  # a third of a second of processor time
async def test_a_line_over_the_limit_is_not_kept(desk: Desk) -> None:
    """A line that no gateway would take passes through in pieces; the lines after it are followed as ever."""
    async with greeted(desk) as (_, link, client):
        before = int(read_status(client.pid)["VmRSS"].split()[0])
        size = 120_000_000
        client.stdin.write(b"x" * size + b"\n")
        assert len(await link.read()) == size + 1
        assert int(read_status(client.pid)["VmHWM"].split()[0]) - before < 60_000
        key = client.call({})
        assert (await link.hear())["id"] == key
        link.close()
        assert (await client.answer(key))["error"]["data"] == {"delivery": "unknown"}


@pytest.mark.long  # a third of a second of processor time
async def test_a_client_that_does_not_read_fills_no_memory(desk: Desk) -> None:
    """What a client does not read stays with the gateway: the door keeps some megabytes of it."""
    async with listening(desk.socket) as gateway:
        with subprocess.Popen(
            [*PROGRAM, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=desk.environ(), cwd=desk.home
        ) as process:
            try:
                link = await gateway.joined()
                for _ in range(100):
                    link.say(method="notifications/message", params={"data": "x" * 1_000_000})
                await until(lambda: int(read_status(process.pid)["VmRSS"].split()[0]) > 16_000)
                await until(lambda: read_status(process.pid)["State"].startswith("S"))
                assert int(read_status(process.pid)["VmHWM"].split()[0]) < 45_000
            finally:
                process.kill()
