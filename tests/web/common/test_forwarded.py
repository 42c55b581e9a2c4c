"""Who the client is behind balancers that are trusted, and behind those that are not."""

import pytest
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.web.common.forwarded import ForwardedClients, find_connected

pytestmark = pytest.mark.anyio

TRUSTED = ("10.0.0.0/24", "192.0.2.1", "fd00::/64")
NEAR, FAR = "10.0.0.5", "192.0.2.1"
"""The balancer that connects, and one in front of it."""
ANN, BOB = "203.0.113.7", "2001:db8:0:1::1"


async def find_client(peer: str | None, *fields: str, trusted: tuple[str, ...] = TRUSTED) -> str | None:
    """The client's address as the app behind sees it, of a request with these header lines."""
    seen: list[str | None] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"] and scope["client"][0])

    async def nothing(*_: object) -> None:
        raise AssertionError

    lines = [tuple(part.encode("latin-1") for part in field.split(": ", 1)) for field in fields]
    scope = {"type": "http", "headers": lines, "client": None if peer is None else (peer, 50_000)}
    await ForwardedClients(note, trusted)(scope, nothing, nothing)
    return seen[0]


@pytest.mark.parametrize(
    ("field", "client"),
    [
        (f"x-forwarded-for: {ANN}", ANN),
        (f"x-forwarded-for: {BOB}", BOB),
        (f"x-forwarded-for: {ANN}:50123", ANN),
        (f"x-forwarded-for: [{BOB}]:50123", BOB),
        (f"x-forwarded-for: ::ffff:{ANN}", ANN),
        (f"forwarded: for={ANN}", ANN),
        (f'forwarded: proto=https;For="[{BOB}]:4711";by={NEAR}', BOB),
        (f'forwarded: for="{ANN}:50123", for={FAR}', ANN),
    ],
)
@pytest.mark.parametrize("peer", [NEAR, f"::ffff:{NEAR}", "fd00::5"])
async def test_a_trusted_balancer_says_who_is_behind_it(peer: str, field: str, client: str) -> None:
    """With a port or without, in either field, over IPv4 and IPv6."""
    assert await find_client(peer, field) == client


async def test_who_connects_stays_known() -> None:
    """The operator's doors look for the process at the other end, which no header field may hide."""
    seen: list[tuple[str, int] | None] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(find_connected(scope))

    async def nothing(*_: object) -> None:
        raise AssertionError

    for headers in ([], [(b"x-forwarded-for", ANN.encode())]):
        scope = {"type": "http", "headers": headers, "client": (NEAR, 50_000)}
        await ForwardedClients(note, TRUSTED)(scope, nothing, nothing)
    assert seen == [(NEAR, 50_000)] * 2


async def test_nobody_else_is_believed() -> None:
    """Neither a client of its own address nor one on a Unix socket; nor is anybody where none is trusted."""
    assert await find_client(BOB, f"x-forwarded-for: {ANN}") == BOB
    assert await find_client(None, f"x-forwarded-for: {ANN}") is None
    assert await find_client(NEAR, f"x-forwarded-for: {ANN}", trusted=()) == NEAR
    assert await find_client(NEAR) == NEAR


@pytest.mark.parametrize(
    "fields",
    [
        (f"x-forwarded-for: 198.51.100.9, {ANN}, {FAR}",),
        ("x-forwarded-for: 198.51.100.9", f"x-forwarded-for: {ANN}, {FAR}"),
        (f"x-forwarded-for: {NEAR}, {ANN}",),
        ("x-forwarded-for: 127.0.0.1", f"x-forwarded-for: {ANN}"),
        (f'forwarded: for="198.51.100.9, for={ANN}',),
        (f"forwarded: for={NEAR};for=198.51.100.9, for={ANN}",),
    ],
)
async def test_what_a_client_sends_itself_changes_nothing(fields: tuple[str, ...]) -> None:
    """It stands to the left of what balancers add, in whatever lines."""
    assert await find_client(NEAR, *fields) == ANN


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        ((f"x-forwarded-for: {ANN}, unknown",), NEAR),
        ((f"x-forwarded-for: {ANN}, {FAR}:x",), NEAR),
        ((f"forwarded: for=198.51.100.9, for=_hidden, for={FAR}",), FAR),
        ((f"forwarded: for={ANN}, proto=https",), NEAR),
        ((f"x-forwarded-for: {ANN}", "forwarded: for=198.51.100.9"), NEAR),
        ((f"x-forwarded-for: {ANN}", f"forwarded: for={ANN}"), ANN),
        (("x-forwarded-for: ",), NEAR),
        ((f"x-forwarded-for: {FAR}",), FAR),
    ],
)
async def test_where_nobody_is_named_for_certain_the_nearest_balancer_counts(
    fields: tuple[str, ...], client: str
) -> None:
    """An address that cannot be read ends the way; of two fields that differ a client wrote one."""
    assert await find_client(NEAR, *fields) == client
