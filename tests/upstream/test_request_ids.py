"""Ids of requests to servers: nobody can guess one, so an answer that nobody asked for meets no call."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import ProgressReport
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream.http.raw_http import open_raw_http
from smart_mcp_proxy.upstream.http.sse_session import open_sse
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.pending import is_same_id, next_request_id

pytestmark = pytest.mark.anyio

STOLEN = "an answer to another call"
GUESSES: dict[str, Callable[[list[int]], int]] = {
    "the next": lambda seen: seen[-1] + 1,
    "the next but one": lambda seen: seen[-1] + 2,
    "the last": lambda seen: seen[-1],
    "the last plus the last step": lambda seen: 2 * seen[-1] - seen[-2] if len(seen) > 1 else 1,
    "a random one": lambda seen: random.getrandbits(53),
}
DELAYS_S = (0.0005, 0.010)


def test_an_id_is_drawn_from_48_random_bits_and_javascript_keeps_it():
    """Each bit is set in half of them, none comes twice, and all have 15 digits."""
    ids = [next_request_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert {len(str(number)) for number in ids} == {15}
    assert max(ids) < 1 << 53
    for bit in range(48):
        assert 9_000 < sum(number >> bit & 1 for number in ids) < 11_000


def test_ids_are_drawn_many_at_a_time(monkeypatch):
    """A call costs no system call of its own."""
    draws: list[int] = []

    def urandom(size: int) -> bytes:
        draws.append(size)
        return random.randbytes(size)

    monkeypatch.setattr(os, "urandom", urandom)
    for _ in range(5_000):
        next_request_id()
    assert len(draws) <= 10


def is_guessable(ids: list[int]) -> bool:
    """Whether one of the ids follows from those before."""
    return any(abs(later - earlier) < 1_000_000 for earlier, later in pairwise(ids))


async def test_every_request_over_pipes_has_an_id_of_its_own(open_fake):
    """Those of the handshake, too."""
    session = await open_fake("modern")
    for _ in range(3):
        reply = await session.request("tools/call", {"name": "ids", "arguments": {}}, timeout_s=30)
    seen = json.loads(json.loads(reply.text)["content"][0]["text"])
    assert len(seen) == 5
    assert min(seen) > 1 << 47
    assert not is_guessable(seen)


async def test_a_server_that_keeps_32_bits_of_an_id_is_understood(open_fake):
    """With several requests at a time; an answer to nobody stays one."""
    session = await open_fake("cut-ids")
    reports: list[float] = []

    async def ask(tool: str, **asked: object) -> str:
        reply = await session.request("tools/call", {"name": tool, "arguments": {"a": tool}}, timeout_s=30, **asked)
        return str(json.loads(reply.text)["content"][0]["text"])

    async def note(report: ProgressReport) -> None:
        reports.append(report.progress)

    found = await asyncio.gather(ask("echo"), ask("progress", on_progress=note), ask("pid"))
    assert found[0] == '{"a": "echo"}'
    assert found[1] == "done" and reports[-1] == 499
    assert found[2].isdigit()


@pytest.mark.parametrize(
    ("answered", "is_same"),
    [(346651300244117, True), (194816661, True), (194816661 - (1 << 32), False), (1, False), (346651300244118, False)],
)
def test_an_id_is_the_same_whole_or_cut_to_32_bits(answered, is_same):
    """A signed number of them as well, which for this one is the same."""
    assert is_same_id(answered, 346651300244117) is is_same
    assert is_same_id(-1, (1 << 48) | 0xFFFFFFFF)


async def test_every_request_over_sse_has_an_id_of_its_own():
    """Those of the handshake, too."""
    seen: list[int] = []
    events: asyncio.Queue[str] = asyncio.Queue()

    async def stream(request: Request) -> Response:
        async def written() -> AsyncIterator[str]:
            yield "event: endpoint\ndata: /messages?session_id=1\n\n"
            while True:
                yield f"event: message\ndata: {await events.get()}\n\n"

        return StreamingResponse(written(), media_type="text/event-stream")

    async def take(request: Request) -> Response:
        message = await request.json()
        if "id" in message:
            seen.append(message["id"])
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            events.put_nowait(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        return Response(status_code=202)

    app = Starlette(routes=[Route("/sse", stream), Route("/messages", take, methods=["POST"])])
    async with served(app) as address:
        config = ServerConfig(name="web", transport="sse", url=f"{address}/sse", limits=ServerLimits(init_s=30))
        session = await open_sse(SessionOptions(config, lambda _: None, max_message_bytes=1 << 20))
        try:
            await session.request("tools/call", {"name": "x"}, timeout_s=30)
            await session.request("tools/call", {"name": "x"}, timeout_s=30)
        finally:
            await session.close()
    assert len(seen) == 3
    assert min(seen) > 1 << 47
    assert not is_guessable(seen)


class EarlyAnswers:
    """Answers that nobody asked for, for whichever call comes next.

    Args:
        guess: The id that the next call will have, judged by those before.
    """

    def __init__(self, guess: Callable[[list[int]], int]) -> None:
        self._guess = guess
        self._seen: list[int] = []

    async def at_the_next_request(self, request: RawRequest, answer: RawAnswer) -> None:
        """Writes one when every other call is there already, in front of its answer: nobody can see it is early."""
        if len(self._seen) % 2:
            answer.text(self._guess(self._seen), STOLEN)
        self._seen.append(request.id)
        answer.text(request.id, f"answer to {request.tool}")

    async def after_a_while(self, request: RawRequest, answer: RawAnswer) -> None:
        """Writes one half a millisecond to ten milliseconds after each proper answer."""
        self._seen.append(request.id)
        answer.text(request.id, f"answer to {request.tool}")
        guessed = self._guess(self._seen)
        asyncio.get_running_loop().call_later(random.uniform(*DELAYS_S), self._say, answer, guessed)

    @staticmethod
    def _say(answer: RawAnswer, guessed: int) -> None:
        if not answer.is_gone:
            answer.text(guessed, STOLEN)


@asynccontextmanager
async def opened(server: RawServer) -> AsyncIterator[UpstreamSession]:
    """A session to a raw server."""
    async with raw_served(server):
        config = ServerConfig(name="web", transport="http", url=server.url)
        session = await open_raw_http(SessionOptions(config, lambda _: None, "modern", max_message_bytes=1 << 20))
        try:
            yield session
        finally:
            await session.close()


async def outcomes(session: UpstreamSession, calls: Iterator[int]) -> list[str]:
    """How the calls ended: with their own answer, another one, or an error."""
    ends: list[str] = []
    for number in calls:
        try:
            reply = await session.request("tools/call", {"name": f"t{number}", "arguments": {}}, timeout_s=30)
        except UpstreamError:
            ends.append("error")
            continue
        text = json.loads(reply.text)["content"][0]["text"]
        ends.append("own" if text == f"answer to t{number}" else "foreign")
    return ends


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
async def test_an_early_answer_is_nobodys(guess):
    """The call that it meets fails, its connection is closed, and the next call gets its own."""
    early = EarlyAnswers(guess)
    async with opened(RawServer("modern", early.at_the_next_request)) as session:
        with anyio.fail_after(20):
            ends = await outcomes(session, iter(range(40)))
    assert "foreign" not in ends
    assert ends.count("own") >= 19


@pytest.mark.soak
@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
async def test_of_many_early_answers_none_is_delivered(guess):
    """10,000 calls from eight callers, each answer followed by one for the next call."""
    early = EarlyAnswers(guess)
    async with opened(RawServer("modern", early.after_a_while)) as session:
        numbers = iter(range(10_000))
        ends = [end for each in await asyncio.gather(*(outcomes(session, numbers) for _ in range(8))) for end in each]
    assert len(ends) == 10_000
    assert "foreign" not in ends
    print(f"{ends.count('own'):,} own answers, {ends.count('error'):,} errors, {ends.count('foreign')} foreign")
