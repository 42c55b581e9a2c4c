"""What a stdio server writes is dealt with in its order, whether it is taken at once or has to be read."""

import asyncio
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.io.lines import OfferingReader
from smart_mcp_proxy.upstream.protocol import codec
from smart_mcp_proxy.upstream.protocol import inbox as line_inbox
from smart_mcp_proxy.upstream.protocol.codec import OFF_LOOP_BYTES, decode_messages
from smart_mcp_proxy.upstream.protocol.inbox import Inbox, LineInbox
from smart_mcp_proxy.upstream.protocol.pending import PendingCalls
from smart_mcp_proxy.upstream.protocol.session import LogLine, SessionEvent

pytestmark = pytest.mark.anyio

BURST = 32
LITTLE_BYTES = 16_384


def no_answer(reply: Mapping[str, Any]) -> None:
    raise AssertionError(f"nobody asked, and was answered {reply}")


async def nothing_said(message: Mapping[str, Any]) -> None:
    raise AssertionError(f"nobody says anything, but {message}")


def inbox_of(heard: list[SessionEvent], limit_bytes: int = 1_000) -> LineInbox:
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
    heard: list[SessionEvent] = []
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
@pytest.mark.long  # many generated examples
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
    heard: list[SessionEvent] = []
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


async def test_a_very_long_line_is_read_beside_the_event_loop(monkeypatch):
    """In a thread; what stands before and behind it keeps its place."""
    read: list[tuple[bool, bool]] = []

    def noted(*pieces: bytes) -> Any:
        is_on_loop = threading.current_thread() is threading.main_thread()
        read.append((is_on_loop, sum(map(len, pieces)) > OFF_LOOP_BYTES))
        return decode_messages(*pieces)

    for module in (codec, line_inbox):
        monkeypatch.setattr(module, "decode_messages", noted)
    long = said(2)[:-1] + b" " * OFF_LOOP_BYTES + b"\n"
    chunks = [said(0) + said(1) + long + said(3), said(4)]
    heard, _ = await numbers_heard(chunks, [3, 0], limit_bytes=2 * OFF_LOOP_BYTES)
    assert heard == [0, 1, 2, 3, 4]
    assert sorted(read) == [(False, True)] + [(True, False)] * 4


@pytest.mark.parametrize("size", [OFF_LOOP_BYTES // 2, OFF_LOOP_BYTES])
async def test_a_very_long_body_is_read_beside_the_event_loop(monkeypatch, size):
    """In a thread, where a short one is read at once."""
    threads: list[threading.Thread] = []

    def noted(*pieces: bytes) -> Any:
        threads.append(threading.current_thread())
        return decode_messages(*pieces)

    monkeypatch.setattr(codec, "decode_messages", noted)
    heard: list[SessionEvent] = []
    inbox = Inbox("box", PendingCalls("box"), heard.append, no_answer, nothing_said)
    assert not await inbox.take(None, said(0), b" " * size)
    assert len(heard) == 1
    assert [thread is threading.main_thread() for thread in threads] == [size < OFF_LOOP_BYTES]


async def test_nothing_of_what_was_dealt_with_is_kept(monkeypatch):
    """A list of a thousand tools is 0.6 MB: it would stay until the server says the next word."""
    lines: list[bytes] = []

    def noted(*pieces: bytes) -> Any:
        lines.extend(pieces)
        return decode_messages(*pieces)

    monkeypatch.setattr(line_inbox, "decode_messages", noted)
    chunks = [said(0)[:-1] + b" " * LITTLE_BYTES + b"\n"]
    held = sys.getrefcount(chunks[0])
    is_waiting, is_over = asyncio.Event(), asyncio.Event()

    async def read() -> bytes:
        if not lines:
            return chunks[0]
        is_waiting.set()
        await is_over.wait()
        return b""

    reading = asyncio.ensure_future(inbox_of([], limit_bytes=2 * LITTLE_BYTES).read(read))
    await is_waiting.wait()
    assert [sys.getrefcount(lines[0]), sys.getrefcount(chunks[0])] == [held, held]
    is_over.set()
    await reading
