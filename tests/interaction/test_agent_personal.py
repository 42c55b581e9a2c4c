"""Servers that know each client: asked and told is the client for whom the server works, and nobody else."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from extended_servers import SHOWS_APPS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from personal_agents import (
    asked_at,
    asked_on_stdio,
    asked_over_http,
    asking_gateway,
    asking_server,
    echoed,
    living,
    never,
    wait_listed,
    wait_until,
)
from transports import in_memory, over_http, settled, spawned

from smart_mcp_proxy.catalog.tables.activity import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.telemetry import Activity

pytestmark = [pytest.mark.anyio, pytest.mark.long]

CHANNELS = pytest.mark.parametrize("channel", ["http", "stdio"])


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def questions(gateway: Gateway) -> Sequence[Activity]:
    return [each.activity for each in await gateway.catalog.activity_page(ActivityFilter(kind="question"), 10)]


@CHANNELS
@pytest.mark.requirement("own-asked")
async def test_a_server_asks_the_user_and_the_model_and_the_roots_of_the_client_that_called(
    channel: str, tmp_path: Path
) -> None:
    """What the client answers is what the tool works with; a form names the server that asks."""
    async with asked_at(channel, tmp_path) as agent:
        form = json.loads(text_of(await agent.use("ask", "What colour?")))
        assert form == {"action": "accept", "content": {"answer": "Server 'asking' asks: What colour?"}}
        words = json.loads(text_of(await agent.use("sample", "Say it")))
        assert words["content"] == {"type": "text", "text": "Say it"}
        assert json.loads(text_of(await agent.use("roots")))["roots"][0]["uri"] == "file:///here"
        assert text_of(await agent.use("ping")) == "{}"
        assert [(await agent.asked.get())["method"] for _ in range(3)] == [
            "elicitation/create",
            "sampling/createMessage",
            "roots/list",
        ]
        assert agent.asked.empty()  # a ping asks after the connection, whose other end is the gateway


@CHANNELS
@pytest.mark.requirement("own-told")
async def test_log_messages_reach_their_client_before_the_answer_and_from_the_level_it_asked_for(
    channel: str, tmp_path: Path
) -> None:
    """The greeting offers it; the level holds for a later connection, too. They are cleaned as results are."""
    async with asked_at(channel, tmp_path) as agent:
        assert agent.greeting["result"]["capabilities"]["logging"] == {}
        assert (await agent.request("logging/setLevel", level="info"))["result"] == {}
        await agent.use("log", "o\x1b[31mne")
        assert agent.logged() == ["one"]
        assert agent.told[-1]["params"]["logger"] == "asking/work"
        assert json.loads(text_of(await agent.use("state")))["level"] == "info"
        assert (await agent.request("logging/setLevel", level="debug"))["result"] == {}
        await agent.use("log", "two")
        assert agent.logged() == ["one", "two", "debug two"]
        assert "error" in await agent.request("logging/setLevel", level="loud")


@CHANNELS
@pytest.mark.requirement("own-declared")
async def test_a_server_is_told_exactly_what_its_client_declared(channel: str, tmp_path: Path) -> None:
    """And that its roots have changed; what was not declared is not asked."""
    async with asked_at(channel, tmp_path, {"roots": {"listChanged": True}, "experimental": {"x": {}}}) as agent:
        assert json.loads(text_of(await agent.use("state")))["capabilities"] == {"roots": {"listChanged": True}}
        await agent.notify("notifications/roots/list_changed")
        async with asyncio.timeout(30):
            while json.loads(text_of(await agent.use("state")))["roots"] != 1:
                pass
        assert json.loads(text_of(await agent.use("ask", "Hello?")))["code"] == -32601
        assert agent.asked.empty()


@pytest.mark.requirement("own-secret")
async def test_a_form_that_asks_for_a_password_is_refused_and_written_down(tmp_path: Path) -> None:
    """The server hears why, the client hears nothing; each question has its line in the log, without its content."""
    async with asking_gateway(tmp_path) as (gateway, base), asked_over_http(base) as agent:
        error = json.loads(text_of(await agent.use("secret")))
        assert "which no form may ask for" in error["message"]
        assert agent.asked.empty()
        await agent.use("ask", "a very private matter")
        async with asyncio.timeout(30):
            while len(records := await questions(gateway)) < 2:
                pass
        assert sorted((each.subject, each.outcome, each.server) for each in records) == [
            ("asking:elicitation/create", "ok", "asking"),
            ("asking:elicitation/create", "secret_asked", "asking"),
        ]
        assert "private" not in str(records)


@pytest.mark.requirement("own-apart")
async def test_each_client_has_a_process_of_its_own_and_a_modern_one_shares(tmp_path: Path) -> None:
    """The shared one lists and serves those without a session; interfaces alone are declared to it, for its lists."""
    async with (
        asking_gateway(tmp_path) as (_, base),
        asked_over_http(base) as one,
        asked_over_http(base) as other,
        over_http(base, "modern") as modern,
    ):
        pids = [text_of(await agent.use("pid")) for agent in (one, other, one)]
        shared = await modern.call("call_tool_write", name="asking:pid", args={})
        state = await modern.call("call_tool_write", name="asking:state", args={})
        assert pids[0] == pids[2]
        assert len({*pids, text_of(shared)}) == 3
        assert json.loads(text_of(state))["capabilities"] == {"extensions": SHOWS_APPS}
        await one.leave()
        await wait_until(lambda: pids[0] not in living(tmp_path / "ledger"))
        assert text_of(await other.use("pid")) == pids[1]


@pytest.mark.requirement("own-apart")
async def test_of_interleaved_questions_and_log_messages_not_one_byte_crosses(tmp_path: Path) -> None:
    """Whatever the order in which two clients call and are called back."""
    async with asking_gateway(tmp_path) as (_, base), asked_over_http(base) as one, asked_over_http(base) as other:
        loop = asyncio.get_running_loop()

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.tuples(st.booleans(), st.sampled_from(["ask", "log", "sample"])), min_size=2, max_size=8))
        def interleaved(steps: list[tuple[bool, str]]) -> None:
            asyncio.run_coroutine_threadsafe(round_of(steps), loop).result(60)

        async def round_of(steps: list[tuple[bool, str]]) -> None:
            one.told.clear()
            other.told.clear()
            calls = [
                (name, words := f"{name}-{number}", (one if is_one else other).use(kind, words))
                for number, (is_one, kind) in enumerate(steps)
                for name in ("one" if is_one else "other",)
            ]
            for (_, words, _), answer in zip(calls, await asyncio.gather(*(call for *_, call in calls)), strict=True):
                assert words in text_of(answer)
            for name, agent in (("one", one), ("other", other)):
                heard = json.dumps([*agent.told, *[agent.asked.get_nowait() for _ in range(agent.asked.qsize())]])
                assert ("other-" if name == "one" else "one-") not in heard
                for caller, words, _ in calls:
                    assert caller != name or words in heard

        await asyncio.to_thread(interleaved)


@pytest.mark.requirement("own-gone")
async def test_a_client_that_leaves_in_the_middle_of_a_question_takes_its_process_along(tmp_path: Path) -> None:
    """Over HTTP when its session ends; the shared process stays."""
    async with asking_gateway(tmp_path) as (_, base), asked_over_http(base) as agent:
        agent.on_asked = never
        shared = living(tmp_path / "ledger")
        call = await agent.begin("tools/call", name="call_tool_write", arguments={"name": "asking:ask"})
        await asyncio.wait_for(agent.asked.get(), 30)
        assert len(living(tmp_path / "ledger")) == 2
        await agent.leave()
        await wait_until(lambda: living(tmp_path / "ledger") == shared)
        call.answer.cancel()


@pytest.mark.requirement("own-gone")
async def test_at_the_end_of_input_a_question_that_nobody_can_answer_holds_nothing_up(tmp_path: Path) -> None:
    """On pipes: the gateway and all that it started end."""
    async with spawned(tmp_path, {"asking": asking_server(tmp_path / "ledger")}) as process:
        async with asked_on_stdio(process) as agent:
            await wait_listed(agent)
            agent.on_asked = never
            await agent.begin("tools/call", name="call_tool_write", arguments={"name": "asking:ask"})
            await asyncio.wait_for(agent.asked.get(), 30)
            assert process.stdin is not None
            process.stdin.close()
            await asyncio.wait_for(process.wait(), 30)
        await wait_until(lambda: not living(tmp_path / "ledger"))


@pytest.mark.requirement("own-cancelled")
async def test_a_call_that_is_cancelled_takes_its_question_back(tmp_path: Path) -> None:
    """The server is told of the one, and the client of the other."""
    async with asked_at("stdio", tmp_path) as agent:
        agent.on_asked = never
        call = await agent.begin("tools/call", name="call_tool_write", arguments={"name": "asking:ask"})
        question = await asyncio.wait_for(agent.asked.get(), 30)
        await agent.cancel(call)
        await wait_until(lambda: "cancelled" in (tmp_path / "ledger").read_text())
        taken_back = {"method": "notifications/cancelled", "id": question["id"]}
        await wait_until(lambda: taken_back in [_cancelled(told) for told in agent.told])
        agent.on_asked = echoed
        assert not (await agent.use("ask", "again")).get("isError")


def _cancelled(told: dict[str, Any]) -> dict[str, Any]:
    """What a notification takes back; other ones may come at any time."""
    return {"method": told["method"], "id": told.get("params", {}).get("requestId")}


@pytest.mark.requirement("instructions-stay")
@pytest.mark.parametrize("passthrough", [None, "asking"])
async def test_what_a_server_instructs_its_clients_to_do_reaches_no_agent(
    passthrough: str | None, tmp_path: Path
) -> None:
    """Nobody approves it, so nobody is told it: neither in a greeting nor in any answer about servers and tools."""
    servers = {"asking": asking_server(tmp_path / "ledger")}
    async with settled(tmp_path / "data", servers, passthrough=passthrough, manage=True) as gateway:
        for era in ("handshake", "modern"):
            async with in_memory(gateway, era) as agent:
                heard = [agent.greeting, await agent.request("tools/list"), await agent.request("prompts/list")]
                if passthrough is None:
                    heard.append(await agent.call("retrieve_tools", query="orders of the server"))
                    heard.append(await agent.call("describe_tool", names=["asking:ask"]))
                    heard.append(await agent.call("upstream_servers", operation="list"))
                assert '"ask"' in json.dumps(heard) or "asking:ask" in json.dumps(heard)
                assert "Orders of" not in json.dumps(heard)


@pytest.mark.requirement("own-gone")
async def test_what_is_no_longer_configured_keeps_no_clients_process(tmp_path: Path) -> None:
    """A server that is removed ends with all its connections."""
    async with asking_gateway(tmp_path) as (gateway, base), asked_over_http(base) as agent:
        await agent.use("pid")
        assert len(living(tmp_path / "ledger")) == 2
        await gateway.apply({})
        await wait_until(lambda: not living(tmp_path / "ledger"))


@pytest.mark.requirement("own-apart")
async def test_prompts_are_got_over_the_clients_own_connection(tmp_path: Path) -> None:
    """The same one as for tools; and only as they were approved."""
    async with asking_gateway(tmp_path) as (_, base), asked_over_http(base) as agent:
        got = await agent.request("prompts/get", name="asking__whose")
        assert got["result"]["messages"][0]["content"]["text"] == text_of(await agent.use("pid"))
    async with asking_gateway(tmp_path / "changed", kind="changed") as (_, base), asked_over_http(base) as agent:
        error = (await agent.request("prompts/get", name="asking__whose"))["error"]
        assert error["data"]["code"] == "quarantined"


@pytest.mark.requirement("own-gone")
async def test_the_death_of_a_clients_process_fails_its_call_and_the_next_one_starts_another(tmp_path: Path) -> None:
    """The others notice nothing."""
    async with asking_gateway(tmp_path) as (_, base), asked_over_http(base) as one, asked_over_http(base) as other:
        first, theirs = text_of(await one.use("pid")), text_of(await other.use("pid"))
        one.on_asked = never
        asked = asyncio.create_task(one.use("ask"))
        await asyncio.wait_for(one.asked.get(), 30)
        os.kill(int(first), signal.SIGKILL)
        result = await asked
        assert result["isError"] and "signal 9" in text_of(result)
        assert text_of(await one.use("pid")) not in (first, theirs)
        assert text_of(await other.use("pid")) == theirs


@pytest.mark.requirement("own-limit")
async def test_more_clients_than_the_limit_are_refused_while_all_are_busy(tmp_path: Path) -> None:
    """The refusal names the limit; one that does nothing makes room."""
    limits = {"client_connections": 1}
    async with (
        asking_gateway(tmp_path, limits=limits) as (_, base),
        asked_over_http(base) as one,
        asked_over_http(base) as other,
    ):
        one.on_asked = never
        call = await one.begin("tools/call", name="call_tool_write", arguments={"name": "asking:ask"})
        question = await asyncio.wait_for(one.asked.get(), 30)
        error = (await other.use("pid"))["structuredContent"]["error"]
        assert error["code"] == "too_many_connections" and error["delivery"] == "not_sent"
        assert "'client_connections' under 'limits'" in error["hint"]
        await one.reply({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert "decline" in text_of((await asyncio.wait_for(call.answer, 30))["result"])
        async with asyncio.timeout(30):
            while (await other.use("pid")).get("isError"):
                pass


@pytest.mark.requirement("own-limit")
async def test_a_connection_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    """The next call opens another."""
    limits = {"client_idle_s": 0.3}
    async with asking_gateway(tmp_path, limits=limits) as (_, base), asked_over_http(base) as agent:
        first = text_of(await agent.use("pid"))
        await wait_until(lambda: first not in living(tmp_path / "ledger"))
        assert text_of(await agent.use("pid")) != first


@pytest.mark.requirement("own-approved")
async def test_a_definition_that_only_one_client_is_shown_is_refused_to_it(tmp_path: Path) -> None:
    """What was approved is what the shared connection lists; another one behind a client's back is not called."""
    async with (
        asking_gateway(tmp_path, kind="changed") as (_, base),
        asked_over_http(base) as asked,
        asked_over_http(base, {}) as plain,
    ):
        error = (await asked.use("ask"))["structuredContent"]["error"]
        assert error["code"] == "quarantined" and "does not list tool 'asking:ask' here" in error["message"]
        assert asked.asked.empty()
        assert not (await asked.use("pid")).get("isError")
        assert json.loads(text_of(await plain.use("ask")))["code"] == -32601


@pytest.mark.requirement("own-approved")
async def test_a_definition_that_changes_on_a_clients_connection_is_refused_from_then_on(tmp_path: Path) -> None:
    """The server says that its list changed, and it is looked at again before the next call."""
    async with asking_gateway(tmp_path) as (_, base), asked_over_http(base) as agent:
        assert not (await agent.use("ask", "before")).get("isError")
        await agent.use("turn")
        assert (await agent.use("ask", "after"))["structuredContent"]["error"]["code"] == "quarantined"
        assert not (await agent.use("pid")).get("isError")
