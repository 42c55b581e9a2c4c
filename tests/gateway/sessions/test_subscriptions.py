"""One client's subscriptions: what it is told, how often, and that it holds up nobody."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from growth import calls_of

from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriber, _find_wishes
from smart_mcp_proxy.models import LOCAL

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    """Nothing here takes long."""
    with anyio.fail_after(10):
        yield


class Client:
    """Keeps what it is told; reads on when it is let.

    Args:
        is_reading: Whether it reads from the start.
    """

    def __init__(self, *, is_reading: bool = True) -> None:
        self.told: list[str] = []
        self.is_asked = asyncio.Event()
        self.reads = asyncio.Event()
        if is_reading:
            self.reads.set()
        self.subscriber = Subscriber("", LOCAL, self._take)

    async def _take(self, uri: str) -> None:
        self.is_asked.set()
        await self.reads.wait()
        self.told.append(uri)

    async def until(self, count: int) -> None:
        while len(self.told) < count:
            await anyio.lowlevel.checkpoint()


async def anything(subscriber: Subscriber, uri: str) -> bool:
    return True


async def nothing_private(subscriber: Subscriber, uri: str) -> bool:
    return "private" not in uri


async def test_a_burst_is_told_once() -> None:
    """Of each resource; what comes later is told again."""
    client = Client()
    for uri in ("a", "b", "a", "a", "b"):
        client.subscriber.note(uri, anything)
    await client.until(2)
    client.subscriber.note("a", anything)
    await client.until(3)
    assert client.told == ["a", "b", "a"]


async def test_whether_it_may_hear_is_asked_when_it_is_told() -> None:
    """Not when the server spoke."""
    client = Client()
    for uri in ("private", "a"):
        client.subscriber.note(uri, nothing_private)
    await client.until(1)
    assert client.told == ["a"]


async def test_a_client_that_does_not_read_holds_up_itself_alone() -> None:
    """And hears of everything once when it reads on, however much has happened."""
    stuck, other = Client(is_reading=False), Client()
    for client in (stuck, other):
        client.subscriber.note("a", anything)
    await stuck.is_asked.wait()
    for _ in range(100):
        stuck.subscriber.note("a", anything)
        stuck.subscriber.note("b", anything)
    await other.until(1)
    stuck.reads.set()
    await stuck.until(3)
    assert stuck.told == ["a", "a", "b"]


async def test_a_client_that_left_is_told_nothing_more() -> None:
    """Not even what was due."""
    client = Client()
    client.subscriber.note("a", anything)
    client.subscriber.close()
    other = Client()
    other.subscriber.note("a", anything)
    await other.until(1)
    assert client.told == []


@pytest.mark.parametrize(
    ("subscribed", "updated", "heard"),
    [
        (["a/b/c"], "a/b/c", ["a/b/c"]),
        (["a/b/"], "a/b/c", ["a/b/"]),
        (["a/b"], "a/b/c", ["a/b"]),
        (["a", "a/b"], "a/b/c", ["a/b"]),
        (["file:///x/"], "file:///x/y/z", ["file:///x/"]),
        (["a/b/c"], "a/b", []),
        (["a/bc"], "a/b/c", []),
        ([""], "a", []),
        (["a"], "a/" * 60, ["a"]),
        (["a"], "a/" * 1_000_000, ["a"]),
    ],
)
async def test_an_update_of_a_part_is_heard_as_one_of_the_whole(
    subscribed: list[str], updated: str, heard: list[str]
) -> None:
    """Of the nearest that somebody subscribed to; and a URI that no server has any business to write costs nothing."""
    wishes: dict[str, Any] = {uri: {uri} for uri in subscribed}
    assert list(_find_wishes(wishes, updated)) == heard
    assert calls_of(lambda: list(_find_wishes(wishes, updated))) < 500
