"""kill -9 of door, gateway, server and client in every order, in the middle of calls."""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from desks import ENVELOPE, Desk, DeskClient, kill, until

pytestmark = pytest.mark.anyio

VICTIMS = ("door", "gateway", "server", "client")
CLIENTS = 4
LONGEST_S = 25.0


class Company:
    """Clients that call at the same time, every second of the modern era.

    Args:
        desk: Theirs.
        rng: Chooses.
    """

    def __init__(self, desk: Desk, rng: random.Random) -> None:
        self._desk = desk
        self._rng = rng
        self._marks = itertools.count()
        self.members: list[DeskClient] = []
        self.is_modern: dict[DeskClient, bool] = {}
        self.outcomes: Counter[str] = Counter()
        self.slowest_s = 0.0

    async def fill(self) -> None:
        """Starts clients until all are there."""
        while len(self.members) < CLIENTS:
            client = await self._desk.start()
            self.members.append(client)
            is_modern = self.is_modern[client] = len(self.is_modern) % 2 == 1
            if is_modern:
                await client.answer(client.ask("server/discover", {"_meta": ENVELOPE}), LONGEST_S)
            else:
                await client.greet()

    async def end(self) -> None:
        """Ends all members."""
        for each in self.members:
            await each.end()

    def ask(self) -> list[tuple[DeskClient, Any]]:
        """Has every client call and search; returns what is asked."""
        asked = []
        for client in self.members:
            meta = ENVELOPE if self.is_modern[client] else {}
            for _ in range(self._rng.randint(1, 4)):
                mark = f"m{next(self._marks)}"
                asked.append((client, client.call({"mark": mark, "size": self._rng.choice((1, 200_000))}, **meta)))
            asked.append((client, client.search(**meta)))
            asked.append((client, client.ask("tools/list", {"_meta": meta} if meta else {})))
        return asked

    async def strike(self, victim: str) -> None:
        """Kills one of its kind."""
        await asyncio.sleep(self._rng.random() * 0.05)
        if victim == "gateway":
            kill(self._desk.gateways())
        elif victim == "server":
            kill(self._desk.servers())
        else:
            client = self.members.pop(self._rng.randrange(len(self.members)))
            if victim == "door":
                client.process.kill()
            else:  # both of its pipes break, and its door is to see it
                client.stdin.transport.abort()
                transport = client.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
                transport.close()
            await asyncio.wait_for(client.process.wait(), LONGEST_S)
            await client.end()

    async def collect(self, asked: list[tuple[DeskClient, Any]]) -> None:
        """Awaits all answers of the clients that are there; each is the only one."""
        began = time.monotonic()
        for client, key in asked:
            if client in self.members:
                answer = await client.answer(key, LONGEST_S)
                self.outcomes[_tell(answer)] += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        for client in self.members:
            assert all(len(each) == 1 for each in client.answers.values()), client.answers
            client.heard.clear()


def _tell(answer: dict[str, Any]) -> str:
    """An outcome in a word or two."""
    if "error" in answer:
        return f"error {json.dumps(answer['error'].get('data', answer['error']))[:60]}"
    if answer["result"].get("isError"):
        error = answer["result"]["structuredContent"]["error"]
        return f"{error['code']} {error.get('delivery')}"
    return "result"


async def strike_again_and_again(desk: Desk, rounds: int) -> Company:
    """Kills in every order, round by round; returns what was left of the company."""
    rng = random.Random(rounds)
    orders = itertools.cycle(itertools.chain.from_iterable(itertools.permutations(VICTIMS)))
    company = Company(desk, rng)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(company.end)
        for each, victim in zip(range(rounds), orders, strict=False):
            await company.fill()
            asked = company.ask()
            await company.strike(victim)
            try:
                await company.collect(asked)
            except (AssertionError, TimeoutError) as exc:
                raise AssertionError(f"round {each}, {victim} killed: {exc!r} {desk.log[-2_000:]}") from exc
            # For a moment there are two in the list: a gateway that starts a server is forked first.
            await until(lambda: len(desk.gateways()) <= 1, 2)
        began = desk.notes("began")
        assert len(began) == len(set(began)), "a call was carried out twice"
        for client in company.members:
            assert await client.leave() == 0
    left = desk.gateways()  # none where the last one was killed, and nobody has asked for anything since
    assert len(left) <= 1
    for gateway in left:
        os.kill(gateway, signal.SIGTERM)
    await until(lambda: not desk.processes())
    return company


@pytest.mark.long
async def test_every_request_is_answered_once_whatever_is_killed(desk: Desk) -> None:
    """In 24 rounds each request has one answer, no call is carried out twice, there is one gateway and then none."""
    await strike_again_and_again(desk, 24)
    assert "gateway of its own" not in desk.stderr


@pytest.mark.soak
async def test_two_hundred_kills(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """In 200 rounds each request has one answer, no call is carried out twice, there is one gateway and then none."""
    company = await strike_again_and_again(desk, 200)
    assert "gateway of its own" not in desk.stderr
    with capsys.disabled():
        print(f"\n{dict(company.outcomes)}, slowest round {company.slowest_s:.1f} s")
