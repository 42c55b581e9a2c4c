"""How the shared gateway ends, and what its clients see of that."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from desks import ENVELOPE, META, PROGRAM, Desk, read_status, until

pytestmark = pytest.mark.anyio

OWN = "This client has a gateway of its own"
VERSIONED = "import os, smart_mcp_proxy\nsmart_mcp_proxy.__version__ = os.environ['PYTHON_DESK_VERSION']\n"
"""A `sitecustomize.py`, which the gateway in the background finds as its starter does."""


@pytest.mark.long  # starts a gateway, seconds of it
async def test_a_gateway_goes_on_for_as_long_as_it_is_told(desk: Desk) -> None:
    """With a keep-alive of 0 the gateway serves its first client, and ends when the last has left."""
    async with desk.client(MCPPROXY_KEEP_ALIVE="0") as first, desk.client(MCPPROXY_KEEP_ALIVE="0") as second:
        await first.greet()
        await second.greet()
        assert await first.text() == await second.text()
        gateway = await desk.gateway()
        assert await first.leave() == 0
        await second.text()
        assert desk.gateways() == [gateway]
        assert await second.leave() == 0
        await until(lambda: not desk.processes(), 5)
    assert desk.log.count("no client for 0 s") == 1


@pytest.mark.long
async def test_who_comes_in_time_keeps_the_gateway(desk: Desk) -> None:
    """A client that comes within the keep-alive is served by the same gateway, also if the last one has crashed."""
    gateway = 0
    for _ in range(2):
        async with desk.client(MCPPROXY_KEEP_ALIVE="1") as client:
            await client.greet()
            await client.text()
            gateway = gateway or await desk.gateway()
            assert desk.gateways() == [gateway]
    await until(lambda: not desk.processes(), 6)


@pytest.mark.long  # a third of a second of processor time
async def test_a_stop_answers_calls_and_is_no_end_for_clients(desk: Desk) -> None:
    """`mcpproxy stop` waits for a call under way; a client that asks afterwards starts the next gateway."""
    async with desk.client() as client, desk.client() as idle:
        await client.greet()
        await idle.greet()
        await client.text()
        gateway = await desk.gateway()
        key = client.call({"wait": "stop"})
        await until(lambda: "stop" in desk.notes("waiting"))
        stop = asyncio.create_task(desk.run("stop"))
        await until(lambda: not Path(desk.socket).exists())
        late = client.search()
        desk.let_go("stop")
        assert "result" in await client.answer(key)
        assert (await stop)[0] == 0
        assert (await stop)[2] == f"Stopped process {gateway}.\n"
        assert not (await client.answer(late))["result"].get("isError")
        again = await desk.gateway()
        assert again != gateway
        assert await idle.text() == await client.text()
        assert desk.gateways() == [again]
        assert await client.leave() == await idle.leave() == 0
        assert OWN not in desk.stderr


@pytest.mark.long
async def test_an_idle_client_starts_nothing_after_a_stop(desk: Desk) -> None:
    """After `mcpproxy stop` nothing runs but the doors, until one of their clients asks for something."""
    async with desk.client() as client, desk.client() as modern:
        await client.greet()
        await modern.answer(modern.ask("server/discover", {"_meta": ENVELOPE}))
        listen = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
        modern.ask("subscriptions/listen", listen, "news")
        await modern.hears("notifications/subscriptions/acknowledged")
        await desk.run("stop")
        assert sorted(desk.processes()) == sorted([client.pid, modern.pid])
        assert await client.leave() == 0
        answer = await modern.answer(modern.search(**ENVELOPE))
        assert not answer["result"].get("isError")
        assert (await modern.hears("notifications/tools/list_changed"))["params"]["_meta"][
            META + "subscriptionId"
        ] == "news"
        assert "news" not in modern.answers
        assert "notifications/subscriptions/acknowledged" not in {each["method"] for each in modern.heard}


async def test_the_last_words_of_a_client_are_answered(desk: Desk) -> None:
    """Calls that are under way when stdin closes are answered, and those of other clients go on."""
    async with desk.client() as client, desk.client() as other:
        await client.greet()
        await other.greet()
        await client.text()
        keys = [client.call({"wait": f"last{each}"}) for each in range(3)]
        theirs = other.call({"wait": "theirs"})
        await until(lambda: len(desk.notes("waiting")) == 4)
        client.stdin.close()
        for each in range(3):
            desk.let_go(f"last{each}")
        for each in keys:
            assert "result" in await client.answer(each)
        assert await client.process.wait() == 0
        desk.let_go("theirs")
        assert "result" in await other.answer(theirs)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_door_that_is_told_to_end(desk: Desk, number: signal.Signals) -> None:
    """A signal to a door ends it as it ends a gateway: the call under way is answered; the gateway goes on."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        key = client.call({"wait": "signal"})
        await until(lambda: desk.notes("waiting"))
        client.process.send_signal(number)
        desk.let_go("signal")
        assert "result" in await client.answer(key)
        assert await client.process.wait() == (130 if number == signal.SIGINT else 0)
        assert len(desk.gateways()) == 1


@pytest.mark.long
async def test_a_client_that_does_not_read_holds_nobody_up(desk: Desk) -> None:
    """Results that nobody reads fill little memory of the door, delay no other client, and no stop for ever."""
    async with desk.client() as other:
        await other.greet()
        await other.text()
        gateway = await desk.gateway()
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            "serve",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=desk.environ(),
            limit=512,
        )
        assert process.stdin is not None
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "deaf", "version": "1"}}
        call = {"name": "call_tool_read", "arguments": {"name": "up:work", "args": {"size": 4_000_000}}}
        said = [{"id": 0, "method": "initialize", "params": hello}, {"method": "notifications/initialized"}]
        said += [{"id": each, "method": "tools/call", "params": call} for each in range(1, 60)]
        process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in said)
        try:
            await until(lambda: int(read_status(process.pid)["VmRSS"].split()[0]) > 18_000)
            for _ in range(20):
                await asyncio.wait_for(other.text(), 5)
            assert int(read_status(process.pid)["VmHWM"].split()[0]) < 60_000
            assert int(read_status(gateway)["VmRSS"].split()[0]) < 700_000
            assert await desk.run("stop") == (0, "", f"Stopped process {gateway}.\n")
        finally:
            process._transport.close()  # type: ignore[attr-defined]


def _be_version(desk: Desk, version: str) -> dict[str, str]:
    """Variables with which a client and what it starts are another version of this program."""
    (desk.folder / "sitecustomize.py").write_text(VERSIONED)
    return {"PYTHONPATH": str(desk.folder), "PYTHON_DESK_VERSION": version}


async def test_a_newer_program_takes_the_place_of_an_older_one(desk: Desk) -> None:
    """A newer program's client replaces the gateway; calls under way are answered there, later ones by the next."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        gateway = await desk.gateway()
        keys = [client.call({"wait": "old", "mark": f"m{each}"}) for each in range(3)]
        await until(lambda: len(desk.notes("waiting")) == 3)
        async with desk.client(**_be_version(desk, "999.0")) as newer:
            greeting = asyncio.create_task(newer.greet())
            await until(lambda: "takes the place of this one" in desk.log)
            later = [client.call({"mark": f"later{each}"}) for each in range(20)]
            desk.let_go("old")
            for each in [*keys, *later]:
                assert "result" in await client.answer(each)
            await greeting
            await until(lambda: gateway not in desk.gateways())
            assert OWN not in desk.stderr
            assert len(desk.gateways()) == 1
            assert await newer.text() == await client.text()
        began = desk.notes("began")
        assert len(began) == len(set(began))
        assert OWN not in desk.stderr


@pytest.mark.long
async def test_an_older_program_joins_a_newer_gateway(desk: Desk) -> None:
    """An older program's client is served by the gateway that runs, which stays."""
    async with desk.client() as client, desk.client(**_be_version(desk, "0.0.1")) as older:
        await client.greet()
        gateway = await desk.gateway()
        await older.greet()
        assert await older.text() == await client.text()
        assert desk.gateways() == [gateway]


@pytest.mark.long
async def test_no_call_is_lost_when_gateways_are_replaced_under_load(desk: Desk) -> None:
    """While clients call without a pause, stops and replacements lose no call, carry out none twice, refuse none."""
    clients = [await desk.start() for _ in range(3)]
    try:
        for each in clients:
            await each.greet()
            await each.text()
        is_over = False
        outcomes: list[dict[str, object]] = []

        async def call_on(number: int) -> None:
            count = 0
            while not is_over:
                keys = []
                for _ in range(20):
                    count += 1
                    keys.append(clients[number].call({"mark": f"c{number}-{count}"}))
                outcomes.extend([await clients[number].answer(key) for key in keys])

        calling = [asyncio.create_task(call_on(each)) for each in range(3)]
        for _ in range(4):
            gateway = await desk.gateway()
            before = len(outcomes)
            await until(lambda: len(outcomes) > before + 200)  # noqa: B023
            os.kill(gateway, signal.SIGTERM)
            await until(lambda: gateway not in desk.gateways())  # noqa: B023
        is_over = True
        await asyncio.gather(*calling)
        odd = [each for each in outcomes if "error" in each or each["result"].get("isError")]  # type: ignore[attr-defined]
        told = {json.dumps(each.get("error") or each["result"])[:300] for each in odd}
        assert not [each for each in told if "not ready" not in each], told
        began = desk.notes("began")
        assert len(began) == len(set(began))
        assert all(len(found) == 1 for each in clients for found in each.answers.values())
    finally:
        for each in clients:
            await each.end()


@pytest.mark.long
async def test_a_question_to_a_client_ends_with_its_gateway(desk: Desk) -> None:
    """A server's question that is open when the gateway is killed is taken back; the next one is answered anew."""
    desk.write_servers(up=desk.entry(connection="per_client"))
    async with desk.client() as client:
        await client.greet(roots={}, elicitation={})
        await client.text()
        key = client.call({"ask": "form"})
        question = await client.hears("elicitation/create")
        os.kill(await desk.gateway(), signal.SIGKILL)
        assert (await client.answer(key))["error"]["data"] == {"delivery": "unknown"}
        assert (await client.hears("notifications/cancelled"))["params"]["requestId"] == question["id"]
        client.search()
        await client.text()
        client.put({"id": question["id"], "result": {"action": "accept", "content": {"name": "old"}}})
        key = client.call({"ask": "form"})
        question = await client.hears("elicitation/create")
        client.put({"id": question["id"], "result": {"action": "accept", "content": {"name": "new"}}})
        answer = await client.answer(key)
        assert json.loads(answer["result"]["content"][0]["text"])["content"] == {"name": "new"}


@pytest.mark.long
async def test_what_a_client_has_subscribed_to_survives_its_gateway(desk: Desk) -> None:
    """Subscriptions are told to the next gateway, and through it to the server."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        listed = await client.answer(client.ask("resources/list"))
        uri = next(each["uri"] for each in listed["result"]["resources"] if "board" in each["uri"])
        assert "result" in await client.answer(client.ask("resources/subscribe", {"uri": uri}))
        before = desk.notes("told")
        assert before
        os.kill(await desk.gateway(), signal.SIGKILL)
        await client.text()
        await until(lambda: len(desk.notes("told")) > len(before))
        assert all(len(each) == 1 for each in client.answers.values())


@pytest.mark.long
async def test_ten_thousand_requests_at_once(desk: Desk) -> None:
    """A client that sends all before it reads anything has every answer, and its door stays small."""
    async with desk.client() as client:
        await client.greet()
        await client.text()
        keys = [client.call({}) for _ in range(10_000)]
        for each in keys:
            assert "result" in await client.answer(each)
        assert int(read_status(client.pid)["VmHWM"].split()[0]) < 60_000
        keys = [client.call({}, key="same") for _ in range(3)]
        await client.text()
        client.stdin.write(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\nnonsense\n{"jsonrpc":"2.0","id":null}\n')
        await client.text()
