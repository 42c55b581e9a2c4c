"""Learning from use through the agent's transports: whose search and whose call belong together."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from agents import Agent, Era
from transports import in_memory, odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy.catalog import Example
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import ToolKey

# Marked long: a gateway of their own.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

QUESTION = "paint the lighthouse garishly"
PAINT = ToolKey("new", "paint")


async def score_of_paint(agent: Agent) -> float:
    """How well the tool fits the question."""
    answer = (await agent.call("retrieve_tools", query=QUESTION, servers=["new"]))["structuredContent"]
    return next(tool["score"] for tool in answer["tools"] if tool["name"] == "new:paint")


async def ask_and_call(asking: Agent, calling: Agent) -> None:
    found = (await asking.call("retrieve_tools", query=QUESTION, servers=["new"]))["structuredContent"]
    assert "new:paint" in [tool["name"] for tool in found["tools"]]
    result = await calling.call("call_tool_write", name="new:paint", args={"colour": "red"})
    assert not result.get("isError"), result


@asynccontextmanager
async def learned_after(gateway: Gateway) -> AsyncIterator[list[Example]]:
    """Fills the list with what is known of the paint tool once something new is; the body makes it happen."""
    known: list[Example] = []
    before = await gateway.catalog.read_examples(PAINT)
    yield known
    with anyio.fail_after(20):
        while (now := await gateway.catalog.read_examples(PAINT)) == before:
            await anyio.lowlevel.checkpoint()
    known.extend(now)


@pytest.mark.parametrize(
    "channel", [("memory", "handshake"), ("memory", "modern"), ("http", "handshake"), ("http", "modern")]
)
async def test_a_question_that_led_to_a_call_twice_becomes_an_example(tmp_path: Path, channel: tuple[str, Era]) -> None:
    """On every transport: the tool fits it better; the definition and its digest stay what they were."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            opened_gateway(tmp_path, odd_servers(tmp_path / "ledger"), learn=True)
        )
        if channel[0] == "memory":
            agent = await stack.enter_async_context(in_memory(gateway, channel[1]))
        else:
            base = await stack.enter_async_context(served(gateway))
            agent = await stack.enter_async_context(over_http(base, channel[1]))
        assert await gateway.wait_settled(20)
        before = gateway.catalog.snapshot.by_key[PAINT]
        before_score = await score_of_paint(agent)
        for uses in (1, 2):
            async with learned_after(gateway) as known:
                await ask_and_call(agent, agent)
            assert [(example.question, example.uses) for example in known] == [(QUESTION, uses)]
        with anyio.fail_after(20):
            while await score_of_paint(agent) <= before_score:
                await anyio.lowlevel.checkpoint()
        after = gateway.catalog.snapshot.by_key[PAINT]
        assert (after.examples, after.id, after.digest, after.raw) == (
            (QUESTION,),
            before.id,
            before.digest,
            before.raw,
        )


async def test_one_session_does_not_teach_with_another_ones_search(tmp_path: Path) -> None:
    """Two agents of one principal: the call of one is no answer to the question of the other."""
    async with (
        opened_gateway(tmp_path, odd_servers(tmp_path / "ledger"), learn=True) as gateway,
        served(gateway) as base,
        over_http(base, "handshake") as ann,
        over_http(base, "handshake") as bob,
    ):
        assert await gateway.wait_settled(20)
        # The first calls of a session go through the SDK, later ones through the fast path.
        for _ in range(3):
            await ask_and_call(asking=ann, calling=bob)
        async with learned_after(gateway) as known:
            await ask_and_call(asking=bob, calling=bob)
        assert [example.uses for example in known] == [1]


async def test_nothing_is_learned_unless_it_is_asked_for(tmp_path: Path) -> None:
    """The default stores no questions besides the activity log."""
    async with (
        opened_gateway(tmp_path, odd_servers(tmp_path / "ledger")) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        assert await gateway.wait_settled(20)
        await ask_and_call(agent, agent)
        assert gateway.lists.learning is None
        assert await gateway.catalog.read_examples(PAINT) == ()
