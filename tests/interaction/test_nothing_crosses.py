"""Two principals at work at once, with questions, progress and subscriptions in any order: what each of them hears."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import httpx2
import pytest
from agents import Era, Exchange
from askable_agents import ALL, AskableHttp, greeted, reply_as
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from personal_agents import asking_server as personal_server
from plain_http import plain_client
from test_agent_asking import asking_server
from test_agent_subscriptions import ERAS, LAST, LISTED, MEMOS, UPDATED, shown, watched
from transports import served, settled

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 120
MOST_ACTS = 8
"""A server may have as many questions open at one client."""
NAMES = ("ann", "bob")
WATCHED = {"memos": "handshake", "notes": "modern"}
"""Servers whose resources change, and their era."""
OWN = dict(zip(NAMES, MEMOS, strict=False))
"""The resource that only this one subscribes to, at each of them."""
Act = Literal["asked by its own server", "asked by a shared server", "touches its own", "touches the other's"]
ACTS: tuple[Act, ...] = (
    "asked by its own server",
    "asked by a shared server",
    "touches its own",
    "touches the other's",
)


class AnswerBarrier:
    """Lets nobody answer before everybody was asked, and then in the order of their numbers.

    Args:
        order: The numbers of those that are asked.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._waiting = set(order)
        self._all_there = anyio.Event()
        self._passed = {number: anyio.Event() for number in order}
        self._before = dict(zip(order[1:], order, strict=False))
        if not order:
            self._all_there.set()

    async def pass_by(self, number: int) -> None:
        """Returns when it is this one's turn."""
        self._waiting.discard(number)
        if not self._waiting:
            self._all_there.set()
        await self._all_there.wait()
        if (before := self._before.get(number)) is not None:
            await self._passed[before].wait()
        self._passed[number].set()


class Visitor(AskableHttp):
    """One client of one principal, that keeps every byte it hears.

    Attributes:
        mark: In all that it says.
        lines: What it heard, all ways together.
        turnstile: Says when it may answer.
    """

    mark = ""

    def __init__(self, era: Era, url: str, client: httpx2.AsyncClient) -> None:
        super().__init__(era, url, client)
        self.lines: list[str] = []
        self.barrier = AnswerBarrier(())

    def _take(self, exchange: Exchange, data: str) -> None:
        self.lines.append(data)
        super()._take(exchange, data)

    async def keep_hearing(self) -> None:
        """Listens to what belongs to no request; a session of the handshake era has a stream for that."""
        async for message in self.hear():
            self.lines.append(json.dumps(message))

    async def subscribe(self, *owns: str) -> None:
        """Subscribes to these resources, at every server."""
        uris = [shown(own, server) for own in owns for server in WATCHED]
        if self.era == "modern":
            await self.begin("subscriptions/listen", notifications={"resourceSubscriptions": uris})
            return
        for uri in uris:
            assert (await self.request("resources/subscribe", uri=uri))["result"] == {}

    async def touch(self, own: str) -> None:
        """Has every server change this resource."""
        for server in WATCHED:
            await self.call("call_tool_write", name=f"{server}:touch", args={"uris": [own]})

    async def has_heard_the_last(self) -> None:
        """Returns when it hears of `LAST` at every server; what was on its way before has come by then."""
        before = len(self.lines)
        wanted = {shown(LAST, server) for server in WATCHED}
        while wanted - set(updates_in(self.lines[before:])):
            await self.touch(LAST)
            await asyncio.sleep(0.05)

    async def _answer(self, response: dict[str, Any]) -> None:
        await self.barrier.pass_by(_number_in(self.asked, response["id"]))
        await super()._answer(response)

    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        if "inputResponses" in params:  # the second round, with which a modern client answers
            await self.barrier.pass_by(_number_of(params["arguments"]["args"]["label"]))
        return await super().request(method, **params)


def _number_in(asked: Sequence[dict[str, Any]], question_id: Any) -> int:
    question = next(each for each in asked if each.get("id") == question_id)
    return _number_of(question["params"]["message"].partition(", round")[0].removesuffix("?"))


def _number_of(label: str) -> int:
    return int(label.rpartition("/")[2])


@dataclass
class TokenGateway:
    """A gateway with servers that ask and servers that tell, and the tokens of those who may visit."""

    gateway: Gateway
    base: str
    tokens: dict[str, str] = field(default_factory=dict)
    visits: int = 0

    @asynccontextmanager
    async def visit(self, name: str, era: Era) -> AsyncIterator[Visitor]:
        """A visitor that has subscribed to what is its own."""
        self.visits += 1
        mark = f"{name}-{self.visits:04}"
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        async with plain_client(timeout=LIMIT_S, headers=headers) as client:
            visitor = Visitor(era, f"{self.base}/mcp", client)
            visitor.mark = mark
            async with greeted(visitor, ALL, reply_in_kind(mark)):
                hearing = asyncio.create_task(visitor.keep_hearing()) if era == "handshake" else None
                await visitor.subscribe(OWN[name], LAST)
                await visitor.has_heard_the_last()
                yield visitor
                if hearing is not None:
                    hearing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await hearing


def reply_in_kind(mark: str) -> Any:
    """Answers in this name, whatever the field of a form is called."""

    def reply(method: str, params: Any) -> dict[str, Any]:
        answered = reply_as(f"I am {mark}")(method, params)
        answered["result"]["content"]["answer"] = answered["result"]["content"]["name"]
        return answered

    return reply


def updates_in(lines: Sequence[str]) -> list[str]:
    """The resources that were said to have changed."""
    return [json.loads(line)["params"]["uri"] for line in lines if UPDATED in line]


@pytest.fixture(scope="module")
async def token_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TokenGateway]:
    directory = tmp_path_factory.mktemp("crossing")
    (directory / "ledger").touch()
    (directory / "listed").write_text(json.dumps(LISTED))
    servers = {
        "own": personal_server(directory / "own-ledger"),
        "shared": asking_server(directory / "ledger", input_requests=True),
        **{name: watched(era, directory / "listed") for name, era in WATCHED.items()},
    }
    async with settled(directory / "data", servers) as gateway, served(gateway, token="own") as base:
        token_gateway = TokenGateway(gateway, base)
        for name in NAMES:
            token_gateway.tokens[name] = (
                await gateway.admin.agent_tokens.create(name, Scope(None, "destructive"))
            ).secret
        yield token_gateway


@pytest.mark.requirement("principals-apart")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    eras=st.tuples(st.sampled_from(ERAS), st.sampled_from(ERAS)),
    acts=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(ACTS)), min_size=3, max_size=MOST_ACTS),
    order=st.permutations(range(MOST_ACTS)),
)
async def test_of_questions_progress_and_updates_in_any_order_not_one_byte_crosses(
    token_gateway: TokenGateway, eras: tuple[Era, Era], acts: list[tuple[str, Act]], order: list[int]
) -> None:
    """Each hears all that is its own and nothing of the other's, whose progress goes by the same tokens.

    Every question is open before the first is answered, and they are answered in another order; meanwhile resources
    change that one of the two has subscribed to, or both.
    """
    asked = [number for number in order if number < len(acts) and acts[number][1].startswith("asked")]
    with anyio.fail_after(LIMIT_S):
        async with token_gateway.visit("ann", eras[0]) as ann, token_gateway.visit("bob", eras[1]) as bob:
            present = {"ann": ann, "bob": bob}
            ann.barrier = bob.barrier = AnswerBarrier(asked)
            async with anyio.create_task_group() as group:
                for number, (name, act) in enumerate(acts):
                    group.start_soon(do, act, present, name, number)
            for visitor in present.values():
                await visitor.has_heard_the_last()
    for name, other in (NAMES, NAMES[::-1]):
        lines, mark = present[name].lines, present[name].mark
        assert not [line for line in lines if present[other].mark in line]
        assert not {shown(OWN[other], server) for server in WATCHED} & set(updates_in(lines))
        progress = [line for line in lines if "notifications/progress" in line]
        assert all(mark in line for line in progress)
        own = [number for number, (who, _) in enumerate(acts) if who == name and number in asked]
        assert all(any(f'"{mark}/{number}"' in line for line in progress) for number in own)
        assert len(present[name].asked) == len(own)
        if {"touches its own"} & {act for who, act in acts if who == name}:
            assert {shown(OWN[name], server) for server in WATCHED} <= set(updates_in(lines))


async def do(act: Act, present: Mapping[str, Visitor], name: str, number: int) -> None:
    """One of them does something, and gets its own answer."""
    visitor = present[name]
    if act.startswith("touches"):
        await visitor.touch(next(OWN[each] for each in NAMES if (each == name) == (act == "touches its own")))
        return
    label = f"{visitor.mark}/{number}"
    # A modern client has no session, and so no connection of its own anywhere.
    if act == "asked by its own server" and visitor.era == "handshake":
        arguments = {"name": "own:ask", "args": {"text": label}}
    else:
        arguments = {"name": "shared:ask", "args": {"label": label}}
    answer = await visitor.answered("tools/call", name="call_tool_write", arguments=arguments, token=True)
    assert not answer["result"].get("isError") and f"I am {visitor.mark}" in json.dumps(answer), answer
