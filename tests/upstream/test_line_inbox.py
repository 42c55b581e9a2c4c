"""What a stdio server writes is dealt with in its order, whether it is taken at once or has to be read."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.upstream.line_inbox import LineInbox
from smart_mcp_proxy.upstream.link import LinkEvent, LogLine
from smart_mcp_proxy.upstream.pending import PendingCalls
from smart_mcp_proxy.upstream.pipes import OfferingReader

pytestmark = pytest.mark.anyio

BURST = 32
LITTLE_BYTES = 16_384


def no_answer(reply: Mapping[str, Any]) -> None:
    raise AssertionError(f"nobody asked, and was answered {reply}")


async def nothing_said(message: Mapping[str, Any]) -> None:
    raise AssertionError(f"nobody says anything, but {message}")


def inbox_of(heard: list[LinkEvent], limit_bytes: int = 1_000) -> LineInbox:
    """An inbox whose log lines go to `heard`."""
    return LineInbox("box", PendingCalls("box"), heard.append, no_answer, nothing_said, max_message_bytes=limit_bytes)


def said(number: int) -> bytes:
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}}
    return json.dumps(message).encode() + b"\n"


class Stdout(OfferingReader):
    """A server's output as the event loop hands it on.

    Attributes:
        taken: How many chunks the inbox has taken at once.
    """

    def __init__(self, inbox: LineInbox) -> None:
        super().__init__(1 << 16)
        self.taken = 0
        self._inbox = inbox
        self.take = self._counted

    def _counted(self, chunk: bytes) -> bool:
        is_taken = self._inbox.take(chunk)
        self.taken += is_taken
        return is_taken

    async def next(self) -> bytes:
        return await self.read(1 << 16)


async def numbers_heard(
    chunks: Sequence[bytes], turns: Sequence[int], limit_bytes: int = 1_000
) -> tuple[list[int], int]:
    """The numbers in the order in which they were heard, and how many chunks were taken at once.

    Args:
        chunks: What arrives.
        turns: How many turns the event loop gets after each of them.
        limit_bytes: Of a line.
    """
    heard: list[LinkEvent] = []
    inbox = inbox_of(heard, limit_bytes)
    stdout = Stdout(inbox)
    reading = asyncio.ensure_future(inbox.read(stdout.next))
    await asyncio.sleep(0)
    for chunk, count in zip(chunks, turns, strict=True):
        stdout.feed_data(chunk)
        for _ in range(count):
            await asyncio.sleep(0)
    stdout.feed_eof()
    await reading
    return [json.loads(event.text)["data"] for event in heard if isinstance(event, LogLine)], stdout.taken


@given(st.lists(st.tuples(st.integers(1, 3 * BURST), st.integers(0, 4)), min_size=1, max_size=12), st.integers(0, 40))
def test_nothing_overtakes_what_waits(bursts, cut):
    """Few lines or many, whole or cut in the middle, with turns of the loop between them or without."""
    numbers = iter(range(10_000))
    texts = [b"".join(said(next(numbers)) for _ in range(count)) for count, _ in bursts]
    # Each chunk ends somewhere in the first line of the next one.
    chunks = [
        text[cut if place else 0 :] + following[:cut]
        for place, (text, following) in enumerate(zip(texts, [*texts[1:], b""], strict=True))
    ]
    heard, _ = asyncio.run(numbers_heard(chunks, [turns for _, turns in bursts]))
    assert heard == list(range(sum(count for count, _ in bursts)))


@pytest.mark.parametrize(("lines", "taken"), [(1, 1), (BURST, 1), (BURST + 1, 0)])
async def test_little_is_dealt_with_as_it_arrives(lines, taken):
    """A lonely answer waits for no turn of the event loop; a flood leaves the others theirs."""
    heard, at_once = await numbers_heard([b"".join(map(said, range(lines)))], [0])
    assert (heard, at_once) == (list(range(lines)), taken)


async def test_what_is_long_waits_to_be_read():
    """To count the lines in it would take longer than a turn of the event loop."""
    long = said(0)[:-1] + b" " * LITTLE_BYTES + b"\n"
    assert await numbers_heard([long, said(1)], [0, 0], limit_bytes=2 * LITTLE_BYTES) == ([0, 1], 0)


async def test_nothing_is_taken_unless_somebody_reads():
    """Not before, when something may wait already, and not after the session has been given up."""
    heard: list[LinkEvent] = []
    stdout = Stdout(inbox := inbox_of(heard))
    stdout.feed_data(said(0))
    assert stdout.taken == 0
    reading = asyncio.ensure_future(inbox.read(stdout.next))
    await asyncio.sleep(0)
    stdout.feed_data(said(1))
    assert (stdout.taken, len(heard)) == (1, 2)
    reading.cancel()
    await asyncio.wait({reading})
    stdout.feed_data(said(2))
    assert (stdout.taken, len(heard)) == (1, 2)
