"""How long and how frequent requests for the pages of the sign-in may be."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from smart_mcp_proxy.web.auth.sign_in_pages import (
    ADDRESS_SHARE,
    PAGE_LIMIT_BYTES,
    REGISTRATIONS_AT_ONCE,
    REGISTRATIONS_PER_S,
    SIGN_IN_PAGES_AT_ONCE,
    SIGN_IN_PAGES_PER_S,
    BoundedPages,
)

pytestmark = pytest.mark.anyio
EACH_ALLOWANCE = pytest.mark.parametrize(
    ("path", "at_once", "per_s"),
    [
        ("/register", REGISTRATIONS_AT_ONCE, REGISTRATIONS_PER_S),
        ("/authorize", SIGN_IN_PAGES_AT_ONCE, SIGN_IN_PAGES_PER_S),
        ("/consent", SIGN_IN_PAGES_AT_ONCE, SIGN_IN_PAGES_PER_S),
    ],
)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


class Visitor:
    """Asks for pages, under a clock turned by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pages = BoundedPages(echo, clock=lambda: self.now_s)

    async def ask(
        self, path: str, method: str = "POST", parts: Iterator[Message] | None = None, *, address: str | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer; 0 if there was none."""
        sent: list[Message] = []
        messages = parts or iter([{"type": "http.request", "body": b""}])

        async def receive() -> Message:
            return next(messages)

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": []}
        scope |= {"client": (address, 50_000)} if address else {}
        await self.pages(scope, receive, send)
        return (sent[0]["status"], sent[1]["body"]) if sent else (0, b"")

    async def granted(self, path: str, most: int, address: str | None = None) -> int:
        """How many requests in a row are answered before one is told to wait."""
        for number in range(most):
            if (await self.ask(path, address=address))[0] == 429:
                return number
        return most


async def test_a_long_body_is_not_read_to_its_end() -> None:
    """It is refused with the part that is too much."""
    parts = iter([{"type": "http.request", "body": b"c" * 4096, "more_body": True}] * 1000)
    status, body = await Visitor().ask("/token", parts=parts)
    assert (status, msgspec.json.decode(body)["error"]) == (413, "invalid_request")
    assert len(list(parts)) == 1000 - PAGE_LIMIT_BYTES // 4096 - 1


async def test_a_body_that_fits_comes_whole_and_one_that_breaks_off_not_at_all() -> None:
    """In however many parts."""
    whole = [{"type": "http.request", "body": b"c" * 5, "more_body": more} for more in (True, True, False)]
    assert await Visitor().ask("/token", parts=iter(whole)) == (200, b"15")
    assert await Visitor().ask("/token", parts=iter([whole[0], {"type": "http.disconnect"}])) == (0, b"")


@EACH_ALLOWANCE
async def test_what_strangers_have_written_comes_at_a_bounded_rate(path: str, at_once: int, per_s: float) -> None:
    """Neither a browser's question nor a body that is refused counts; what is for those signed in is never kept out."""
    visitor = Visitor()
    long = [{"type": "http.request", "body": b"c" * PAGE_LIMIT_BYTES + b"c"}]
    for _ in range(5):
        assert (await visitor.ask(path, "OPTIONS"))[0] == 200
        assert (await visitor.ask(path, parts=iter(long)))[0] == 413
    assert await visitor.granted(path, at_once + 1) == at_once
    assert await visitor.granted("/token", 3 * at_once) == 3 * at_once
    visitor.now_s += 3 / per_s
    assert await visitor.granted(path, at_once) == 3


@EACH_ALLOWANCE
async def test_one_stranger_leaves_room_for_everybody_else(path: str, at_once: int, per_s: float) -> None:
    """Whatever comes from one address, at once or for ever, is a part of what may come; it is told so."""
    visitor, part = Visitor(), at_once // ADDRESS_SHARE
    assert await visitor.granted(path, at_once, "203.0.113.7") == part
    status, body = await visitor.ask(path, address="::ffff:203.0.113.7")
    assert (status, "from your address lately" in body.decode()) == (429, True)
    assert await visitor.granted(path, at_once, "2001:db8:0:1::1") == part
    assert (await visitor.ask(path, address="2001:db8:0:1:ffff::2"))[0] == 429
    assert (await visitor.ask(path, address="2001:db8:0:2::1"))[0] == 200
    visitor.now_s += 10 / per_s
    assert await visitor.granted(path, at_once, "203.0.113.7") == 10 // ADDRESS_SHARE


async def test_a_proxy_on_this_machine_has_the_allowance_of_all_behind_it() -> None:
    """Everybody comes from its address; so do a person's own programs."""
    for address in ("127.0.0.1", "::1", "a unix socket"):
        assert await Visitor().granted("/authorize", 1000, address) == SIGN_IN_PAGES_AT_ONCE


async def test_addresses_without_number_get_no_more_than_is_there_for_all_and_are_forgotten() -> None:
    """Each has a part, and together they have the whole."""
    visitor, granted = Visitor(), 0
    for number in range(4_000):
        visitor.now_s += 1 / SIGN_IN_PAGES_PER_S
        granted += await visitor.granted("/authorize", 1, f"10.0.{number >> 8}.{number & 255}")
    assert granted == 4_000
    assert sum(len(each._by_address) for each in visitor.pages._counted.values()) < 4_000
    assert await visitor.granted("/authorize", 1, "10.1.0.0") == 1
    spent = [await visitor.granted("/authorize", 1, f"10.2.0.{number}") for number in range(200)]
    assert SIGN_IN_PAGES_AT_ONCE - 2 <= sum(spent) <= SIGN_IN_PAGES_AT_ONCE
