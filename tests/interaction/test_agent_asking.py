"""Servers that want to know more: what their clients are asked, in both eras, and what nobody can be made to say."""

import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Era, wait_covered
from askable_agents import ALL, Askable, askable_at, greeted, on_pipes, reply_as
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp_types import ElicitResult, ListRootsResult, Root
from pydantic import FileUrl
from transports import opened_gateway, rest_at, served, spawned

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.web.serve import open_socket

pytestmark = pytest.mark.anyio

LIMIT_S = 60
OWN = "the-gateways-own-token"
CHANNELS = [
    ("memory", "handshake"),
    ("memory", "modern"),
    ("http", "handshake"),
    ("http", "modern"),
    ("sse", "handshake"),
]
ON_ALL_CHANNELS = pytest.mark.parametrize(("transport", "era"), CHANNELS)


def asking_server(ledger: Path, **entry: Any) -> dict[str, Any]:
    upstream = Path(__file__).parent / "asking_upstream.py"
    return {"command": sys.executable, "args": ["-S", str(upstream), str(ledger)], **entry}


class GatewayAndServers:
    """A gateway with two servers that ask, of which one may, and what they were sent."""

    def __init__(self, gateway: Gateway, base: str, ledger: Path) -> None:
        self.gateway = gateway
        self.base = base
        self.ledger = ledger

    def at(self, transport: str, era: Era, able: dict[str, Any] = ALL, name: str = "Ann", **headers: str) -> Any:
        return askable_at(transport, era, self.gateway, self.base, able, reply_as(name), **headers)

    def sent(self) -> list[dict[str, Any]]:
        """The params of what the servers were sent, in order."""
        return [json.loads(line) for line in self.ledger.read_text("utf-8").splitlines()]

    async def outcomes(self, tool: str, many: int) -> list[str]:
        """How the calls of a server's tool ended, oldest first, once there are so many."""
        wanted = ActivityFilter(server="may", tool=tool)
        while len(rows := await self.gateway.catalog.activity_page(wanted, 50)) < many:
            await anyio.sleep(0.02)
        return [row.activity.outcome for row in reversed(rows)]


@pytest.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayAndServers]:
    """The house most tests here visit."""
    directory = tmp_path_factory.mktemp("asking")
    ledger = directory / "ledger"
    ledger.touch()
    servers = {"may": asking_server(ledger, input_requests=True, pin=["ask"]), "not": asking_server(ledger)}
    async with opened_gateway(directory / "data", servers) as gateway, served(gateway) as base:
        assert await gateway.wait_settled(20)
        yield GatewayAndServers(gateway, base, ledger)


def by_call_tool(server: str = "may", tool: str = "ask", **arguments: Any) -> dict[str, Any]:
    """Params of a call by the gateway's own tool."""
    return {"name": "call_tool_write", "arguments": {"name": f"{server}:{tool}", "args": arguments}}


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """What the server knew when it answered."""
    result = answer["result"]
    assert not result.get("isError"), result
    text: dict[str, Any] = json.loads(result["content"][0]["text"])
    return text


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The error that a call ended with."""
    result = answer["result"]
    assert result["isError"], result
    error: dict[str, Any] = json.loads(result["content"][0]["text"])["error"]
    return error


@pytest.mark.requirement("input-asked")
@ON_ALL_CHANNELS
async def test_a_client_is_asked_and_the_server_gets_its_answer(
    fleet: GatewayAndServers, transport: str, era: Era
) -> None:
    """A modern client by a result, an older one over its own session; twice in a row, if the server wants."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era) as agent:
            params = by_call_tool(label="the keeper", rounds=2)
            known = said(await agent.answered("tools/call", **params))
    assert known == {
        "label": "the keeper",
        "able": ALL,
        "state": "the keeper/2",
        "answers": {"name": {"action": "accept", "content": {"name": "Ann"}}},
    }
    messages = [each["params"]["message"] for each in agent.asked]
    assert messages == [f"Server 'may' asks: Who is the keeper, round {round}?" for round in (1, 2)]


@pytest.mark.requirement("input-asked")
@ON_ALL_CHANNELS
async def test_user_model_and_roots_can_be_asked_at_once(fleet: GatewayAndServers, transport: str, era: Era) -> None:
    """Each answer comes under the key of its question."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era) as agent:
            known = said(await agent.answered("tools/call", **by_call_tool(label="x", kind="all")))
    assert sorted(known["answers"]) == ["name", "roots", "word"]
    assert known["answers"]["roots"] == {"roots": [{"uri": "file:///Ann"}]}
    assert known["answers"]["word"]["content"]["text"] == "Ann"
    assert {each["method"] for each in agent.asked} == {"elicitation/create", "sampling/createMessage", "roots/list"}


@pytest.mark.requirement("input-asked")
@ON_ALL_CHANNELS
async def test_a_prompt_and_a_resource_may_ask_too(fleet: GatewayAndServers, transport: str, era: Era) -> None:
    """In the same way; the answer then is the usual one."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era) as agent:
            got = await agent.answered("prompts/get", name="may__brief", arguments={"label": "tower"})
            read = await agent.answered("resources/read", uri="mcpproxy://may/test%3A%2F%2Fpage")
    assert "result" in got, got
    known = json.loads(got["result"]["messages"][0]["content"]["text"])
    assert (known["state"], known["answers"]["name"]["content"]) == ("tower/1", {"name": "Ann"})
    assert read["result"]["contents"][0]["uri"] == "mcpproxy://may/test%3A%2F%2Fpage"
    assert json.loads(read["result"]["contents"][0]["text"])["answers"]["name"]["content"] == {"name": "Ann"}
    assert len(agent.asked) == 2


@pytest.mark.requirement("input-asked")
@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.long  # a whole start; over HTTP it stays quick
async def test_a_client_on_a_pipe_is_asked_in_every_call(tmp_path: Path, era: Era) -> None:
    """Also in those that the gateway would answer without the SDK, for a client that cannot be asked."""
    servers = {"may": asking_server(tmp_path / "ledger", input_requests=True, pin=["ask"])}
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(spawned(tmp_path / "data", servers))
            agent = await stack.enter_async_context(greeted(on_pipes(process, era), ALL, reply_as("Ann")))
            await wait_covered(agent)
            for label in ("first", "second"):
                known = said(await agent.answered("tools/call", name="may__ask", arguments={"label": label}))
                assert (known["label"], known["answers"]["name"]["content"]) == (label, {"name": "Ann"})
    assert len(agent.asked) == 2


@pytest.mark.requirement("input-asked")
@pytest.mark.parametrize("transport", ["memory", "http", "sse"])
async def test_a_client_that_gives_its_call_up_is_asked_no_longer(fleet: GatewayAndServers, transport: str) -> None:
    """And the server is not called again."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, "handshake") as agent:
            asked, told = anyio.Event(), anyio.Event()
            agent.on_question, agent.on_cancelled = asked.set, told.set
            before = len(fleet.sent())
            exchange = await agent.begin("tools/call", **by_call_tool())
            await asked.wait()
            await agent.cancel(exchange)
            await told.wait()
            await agent.request("tools/list")
            assert len(fleet.sent()) == before + 1


@pytest.mark.requirement("input-asked")
@pytest.mark.parametrize(("transport", "era"), [("http", "handshake"), ("http", "modern")])
async def test_a_server_that_is_passed_through_asks_under_its_own_names(
    tmp_path: Path, transport: str, era: Era
) -> None:
    """A listed tool, called directly."""
    ledger = tmp_path / "ledger"
    servers = {"may": asking_server(ledger, input_requests=True)}
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            opening = opened_gateway(tmp_path / "data", servers, passthrough="may")
            gateway = await stack.enter_async_context(opening)
            base = await stack.enter_async_context(served(gateway))
            assert await gateway.wait_settled(20)
            fleet = GatewayAndServers(gateway, base, ledger)
            agent = await stack.enter_async_context(fleet.at(transport, era))
            known = said(await agent.answered("tools/call", name="ask", arguments={"label": "y"}))
    assert known["answers"]["name"]["content"] == {"name": "Ann"}


@pytest.mark.requirement("input-asked")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_is_asked_and_answers(fleet: GatewayAndServers, mode: Any) -> None:
    """With its own loop of rounds, its own callbacks, and its own check of everything that comes."""
    heard: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ann"})

    async def roots(context: Any) -> ListRootsResult:
        heard.append("roots")
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///ann"))])

    with anyio.fail_after(LIMIT_S):
        client = Client(f"{fleet.base}/mcp", mode=mode, elicitation_callback=elicit, list_roots_callback=roots)
        async with client:
            for kind, key in (("form", "name"), ("roots", "roots")):
                result = await client.call_tool(**by_call_tool(label="lamp", kind=kind, rounds=2))
                assert not result.is_error, result
                assert key in json.loads(result.content[0].text)["answers"]  # type: ignore[union-attr]
    assert heard == [f"Server 'may' asks: Who is lamp, round {round}?" for round in (1, 2)] + ["roots"] * 2


@pytest.mark.requirement("input-declared")
@ON_ALL_CHANNELS
async def test_a_server_hears_what_its_caller_can_be_asked_and_no_more(
    fleet: GatewayAndServers, transport: str, era: Era
) -> None:
    """Of the client that makes the call; nothing for one that declares nothing, or where the server may not ask."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era, {"sampling": {}, "experimental": {"x": {}}}) as one:
            assert said(await one.answered("tools/call", **by_call_tool(rounds=0)))["able"] == {"sampling": {}}
            assert said(await one.answered("tools/call", **by_call_tool("not", rounds=0)))["able"] == {}
        async with fleet.at(transport, era, {}) as other:
            assert said(await other.answered("tools/call", **by_call_tool(rounds=0)))["able"] == {}


@pytest.mark.requirement("input-declared")
@ON_ALL_CHANNELS
async def test_a_question_that_was_not_declared_is_an_error(fleet: GatewayAndServers, transport: str, era: Era) -> None:
    """The client is not asked, and nobody knows how far the server has come."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era, {"roots": {}}) as agent:
            error = error_of(await agent.answered("tools/call", **by_call_tool()))
            assert (error["code"], error["delivery"]) == ("upstream_protocol", "unknown")
            assert "asks for elicitation, which the client did not declare" in error["message"]
            error = error_of(await agent.answered("tools/call", **by_call_tool("not")))
            assert "which its user has not allowed" in error["message"]
            assert '"input_requests": true' in error["hint"]
        async with fleet.at(transport, era, {}) as mute:
            assert (
                "this caller cannot be asked" in error_of(await mute.request("tools/call", **by_call_tool()))["message"]
            )
    assert (agent.asked, mute.asked) == ([], [])


@pytest.mark.requirement("input-secrets")
@ON_ALL_CHANNELS
async def test_a_form_for_a_password_reaches_nobody(fleet: GatewayAndServers, transport: str, era: Era) -> None:
    """Whoever calls, and whatever was declared."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, era) as agent:
            error = error_of(await agent.answered("tools/call", **by_call_tool(kind="secret")))
    assert (error["code"], error["delivery"]) == ("secret_asked", "unknown")
    assert agent.asked == []


@pytest.mark.requirement("input-declined")
@pytest.mark.parametrize("transport", ["memory", "http", "sse"])
async def test_an_older_client_that_answers_with_an_error_ends_the_call(
    fleet: GatewayAndServers, transport: str
) -> None:
    """The error says what it said; a user who declines is an answer, which the server gets."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, "handshake") as agent:
            agent.reply = lambda method, params: {"error": {"code": -1, "message": "not today"}}
            error = error_of(await agent.request("tools/call", **by_call_tool()))
            assert (error["code"], error["data"]["client_code"]) == ("input_failed", -1)
            agent.reply = lambda method, params: {"result": {"action": "decline"}}
            known = said(await agent.request("tools/call", **by_call_tool()))
    assert known["answers"] == {"name": {"action": "decline"}}


@pytest.mark.requirement("input-state")
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_state_fits_only_the_call_it_was_given_for(fleet: GatewayAndServers, transport: str) -> None:
    """Another tool, other arguments, a prompt, a changed character: -32602, and the server sees nothing of it."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at(transport, "modern") as agent:
            first = (await agent.request("tools/call", **by_call_tool(label="a")))["result"]
            assert "a/1" not in json.dumps(first["requestState"])
            more = {"requestState": first["requestState"], "inputResponses": {}}
            before = len(fleet.sent())
            for params in (
                by_call_tool(label="b") | more,
                by_call_tool(tool="ask_again", label="a") | more,
                by_call_tool(label="a") | more | {"requestState": first["requestState"] + "x"},
                by_call_tool(label="a") | more | {"requestState": "a/1"},
            ):
                answer = await agent.request("tools/call", **params)
                assert answer["error"]["code"] == -32602, answer
                assert "requestState is not valid for this request" in answer["error"]["message"]
            answer = await agent.request("prompts/get", name="may__brief", arguments={"label": "a"}, **more)
            assert answer["error"]["code"] == -32602
            assert len(fleet.sent()) == before
            # The same tool with the same arguments is the same call, by whichever name.
            answer = await agent.request("tools/call", name="may__ask", arguments={"label": "a"}, **more)
            assert said(answer)["state"] == "a/1"


@pytest.mark.requirement("input-recorded")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_all_rounds_stand_in_the_activity_log(fleet: GatewayAndServers, era: Era) -> None:
    """Each question, and what came of it, on behalf of whoever called."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at("http", era) as agent:
            await agent.answered("tools/call", **by_call_tool(tool=f"ask_{era}", rounds=2))
        outcomes = await fleet.outcomes(f"ask_{era}", 3)
    assert outcomes == ["input_required", "input_required", "ok"]


@pytest.mark.requirement("input-declared")
async def test_only_calls_at_which_a_question_comes_are_answered_with_a_stream(fleet: GatewayAndServers) -> None:
    """An older client that can be asked gets its question before the answer; a call that needs none has a body."""
    with anyio.fail_after(LIMIT_S):
        async with fleet.at("http", "handshake") as agent:
            listing = await agent.begin("tools/list")
            asked = await agent.begin("tools/call", **by_call_tool(tool="ask_handshake", rounds=1))
            call = await agent.begin("tools/call", **by_call_tool(rounds=0))
            await listing.answer, await asked.answer, await call.answer
        async with fleet.at("http", "handshake", {}) as mute:
            plain = await mute.begin("tools/call", **by_call_tool(rounds=0))
            await plain.answer
    assert asked.content_type == "text/event-stream"
    assert {each.content_type for each in (listing, call, plain)} == {"application/json"}


@pytest.fixture(scope="module")
async def tokened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayAndServers, dict[str, str]]]:
    """A house whose visitors are told apart by their tokens."""
    directory = tmp_path_factory.mktemp("asking-tokens")
    ledger = directory / "ledger"
    ledger.touch()
    servers = {"may": asking_server(ledger, input_requests=True)}
    async with opened_gateway(directory / "data", servers) as gateway, served(gateway, token=OWN) as base:
        assert await gateway.wait_settled(20)
        tokens = {}
        for name in ("ann", "bob"):
            made = await gateway.admin.agent_tokens.create(name, Scope(None, "destructive"))
            tokens[name] = f"Bearer {made.secret}"
        yield GatewayAndServers(gateway, base, ledger), tokens


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("input-principals")
async def test_a_state_is_of_no_use_to_another_principal(tokened: tuple[GatewayAndServers, dict[str, str]]) -> None:
    """Though everything else is the same."""
    fleet, tokens = tokened
    with anyio.fail_after(LIMIT_S):
        async with (
            fleet.at("http", "modern", authorization=tokens["ann"]) as ann,
            fleet.at("http", "modern", authorization=tokens["bob"]) as bob,
        ):
            params = by_call_tool(label="mine")
            more = {"requestState": (await ann.request("tools/call", **params))["result"]["requestState"]}
            before = len(fleet.sent())
            assert (await bob.request("tools/call", **params, **more))["error"]["code"] == -32602
            assert len(fleet.sent()) == before
            assert said(await ann.request("tools/call", **params, **more))["state"] == "mine/1"


@pytest.mark.requirement("input-principals")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.long  # many clients
async def test_interleaved_questions_of_several_clients_never_meet(
    tokened: tuple[GatewayAndServers, dict[str, str]], seed: int
) -> None:
    """Two principals with two clients each, in both eras, all in the middle of calls at once: not one byte crosses."""
    fleet, tokens = tokened
    dice = random.Random(seed)
    words: dict[str, list[str]] = {}

    async def visit(who: str, era: Era) -> None:
        mark = f"{who}-{era}-{dice.getrandbits(64):016x}"
        heard = words[mark] = []
        async with fleet.at("http", era, name=f"I am {mark}", authorization=tokens[who]) as agent:
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(talk, agent, mark, number, heard)
            heard += [json.dumps(question) for question in agent.asked]

    async def talk(agent: Askable, mark: str, number: int, heard: list[str]) -> None:
        kind = dice.choice(["form", "model", "roots", "all"])
        params = by_call_tool(label=f"{mark}/{number}", kind=kind, rounds=dice.randint(1, 3))
        answer = await agent.answered("tools/call", **params)
        assert f"I am {mark}" in json.dumps(said(answer)["answers"])
        heard.append(json.dumps(answer))

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            for who in tokens:
                for era in ("handshake", "modern"):
                    group.start_soon(visit, who, era)
    for mark, heard in words.items():
        assert any(mark in text for text in heard)
        assert not [text for text in heard for other in words if other != mark and other in text]
    for params in fleet.sent():  # and no server got the answer of one client in the call of another
        label = params["arguments"]["label"].rpartition("/")[0]
        if label in words:
            assert f"I am {label}" in json.dumps(params) or "inputResponses" not in params
            assert not [other for other in words if other != label and other in json.dumps(params)]


@pytest.mark.requirement("input-nobody")
@pytest.mark.long  # starts programs, a second of it
async def test_where_a_question_has_no_place_the_error_says_so(tmp_path: Path) -> None:
    """In a script, in the proxy tool, and over REST: one answer, and nobody there to ask."""
    servers = {"may": asking_server(tmp_path / "ledger", input_requests=True)}
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            opening = opened_gateway(tmp_path / "data", servers, proxy_tool="proxy", code="python", code_timeout_s=20)
            gateway = await stack.enter_async_context(opening)
            base = await stack.enter_async_context(served(gateway))
            assert await gateway.wait_settled(20)
            fleet = GatewayAndServers(gateway, base, tmp_path / "ledger")
            for era in ("handshake", "modern"):
                agent = await stack.enter_async_context(fleet.at("http", era))
                operation = {"action": "call", "type": "tool", "path": "may__ask", "args": {}}
                answer = await agent.request("tools/call", name="proxy", arguments=operation)
                assert "this caller cannot be asked" in json.dumps(answer)
                script = {"language": "python", "code": 'call_tool("may:ask", {})'}
                answer = await agent.request("tools/call", name="code_execution", arguments=script)
                assert "this caller cannot be asked" in json.dumps(answer)
                assert agent.asked == []
            socket_file = await stack.enter_async_context(open_socket(gateway))
            rest = await stack.enter_async_context(rest_at(socket_file))
            reply = await rest.post("call", json={"name": "may:ask", "arguments": {}})
            assert "this caller cannot be asked" in reply.text
