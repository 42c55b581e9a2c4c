"""Agent tokens: made once, known by their hash, at an end when they have to be."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import CatalogError, RequestError
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens, Scope
from smart_mcp_proxy.gateway.admin.roles import Admitted
from smart_mcp_proxy.models import Principal, Reach
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0


class Clock:
    """Wall time that is turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def pair(tmp_path: Path, clock: Clock) -> AsyncIterator[tuple[AgentTokens, AgentTokens]]:
    """The tokens as two processes on one data directory see them."""
    async with AsyncExitStack() as stack:
        catalogs = [await stack.enter_async_context(Catalog.open(tmp_path, name_limit=60)) for _ in range(2)]
        yield AgentTokens(catalogs[0], clock), AgentTokens(catalogs[1], clock)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def test_who_made_and_revoked_a_token_is_recorded(pair: tuple[AgentTokens, AgentTokens]) -> None:
    """With what it may do and its holder's id, never the token; what was refused changed nothing."""
    tokens, _ = pair
    records: list[Activity] = []
    tokens.record = records.append
    ann = Admitted("web", "admin", Principal("ann", role="admin"))
    made = await tokens.create("ci", Scope(("a",), "write", role="approver"), ann)
    with pytest.raises(RequestError):
        await tokens.create("ci", Scope())
    await tokens.revoke("ci")
    first, last = records
    assert (first.kind, first.principal, first.subject, first.detail["change"]) == ("access", "ann", "ci", "token made")
    assert (first.detail["id"], first.detail["role"], first.detail["servers"]) == ("agent-1", "approver", ("a",))
    assert (last.principal, last.subject, last.detail) == ("operator", "ci", {"change": "token revoked"})
    assert made.secret not in str(records) and made.token.made_by == "ann"


async def test_a_new_token_is_good_at_once_and_says_who_and_how_far(pair: tuple[AgentTokens, AgentTokens]) -> None:
    """Two tokens are two principals; anything else is nobody."""
    tokens, _ = pair
    first = await tokens.create("ci", Scope(("a", "b"), "write", "work", DAY_S))
    second = await tokens.create("all", Scope(None, "destructive"))
    assert first.secret.startswith("mcpp_") and len(first.secret) == 48
    assert tokens.find_principal(digest(first.secret)) == Principal(
        "agent-1", Reach(frozenset({"a", "b"}), "write", "work")
    )
    assert tokens.find_principal(digest(second.secret)) == Principal("agent-2", Reach(None, "destructive", None))
    assert tokens.find_principal(digest(first.secret + "x")) is None
    assert first.secret not in f"{first!r} {first.token!r} {tokens!r}"
    assert digest(first.secret).hex() not in f"{first!r} {first.token!r}"


async def test_a_token_ends_to_the_second(pair: tuple[AgentTokens, AgentTokens], clock: Clock) -> None:
    """By the clock that all processes share; one without an end never does."""
    tokens, _ = pair
    short = await tokens.create("short", Scope(expires_in_s=DAY_S))
    endless = await tokens.create("endless", Scope())
    clock.now_s += DAY_S - 0.001
    assert tokens.find_principal(digest(short.secret)) is not None
    clock.now_s += 0.001
    assert tokens.find_principal(digest(short.secret)) is None
    clock.now_s += 10_000 * DAY_S
    assert tokens.find_principal(digest(endless.secret)) is not None


@pytest.mark.parametrize("life_s", [0.0, -DAY_S, 0.999, 3_651 * DAY_S, 1e300, float("inf"), float("nan")])
async def test_a_life_is_between_a_second_and_ten_years(
    pair: tuple[AgentTokens, AgentTokens], clock: Clock, life_s: float
) -> None:
    """No token is made with another; the ends of the range are in it."""
    tokens, _ = pair
    with pytest.raises(RequestError, match="seconds") as caught:
        await tokens.create("odd", Scope(expires_in_s=life_s))
    assert "ten years" in caught.value.hint
    assert await tokens.tokens() == ()
    for name, good_s in (("short", 1.0), ("long", 3_650 * DAY_S)):
        assert (await tokens.create(name, Scope(expires_in_s=good_s))).token.expires_s == clock.now_s + good_s


async def test_a_revoked_token_is_nobodys_and_its_name_is_free(pair: tuple[AgentTokens, AgentTokens]) -> None:
    """The new one of that name is another principal; the list keeps both."""
    tokens, _ = pair
    first = await tokens.create("ci", Scope())
    with pytest.raises(RequestError, match="'ci'") as caught:
        await tokens.create("ci", Scope())
    assert (caught.value.error_code, caught.value.http_status) == ("token_exists", 409)
    await tokens.revoke("ci")
    assert tokens.find_principal(digest(first.secret)) is None
    with pytest.raises(RequestError) as caught:
        await tokens.revoke("ci")
    assert (caught.value.error_code, caught.value.http_status) == ("token_not_found", 404)
    second = await tokens.create("ci", Scope())
    assert tokens.find_principal(digest(second.secret)) == Principal("agent-2", Reach(access="read"))
    assert [(one.id, one.revoked_s is None) for one in await tokens.tokens()] == [(1, False), (2, True)]


@pytest.mark.long  # half a second of work and more
async def test_other_processes_hear_of_both(pair: tuple[AgentTokens, AgentTokens]) -> None:
    """While they follow; within two seconds, here given ten on a busy machine."""
    ours, theirs = pair
    async with theirs.follow_tokens():
        made = await ours.create("ci", Scope())
        with anyio.fail_after(10):
            while theirs.find_principal(digest(made.secret)) is None:
                await anyio.lowlevel.checkpoint()
        await ours.revoke("ci")
        with anyio.fail_after(10):
            while theirs.find_principal(digest(made.secret)) is not None:
                await anyio.lowlevel.checkpoint()


async def test_a_use_is_shown_at_once_and_stored_in_the_end(
    pair: tuple[AgentTokens, AgentTokens], clock: Clock
) -> None:
    """Not with every call: the list in this process knows more for a while."""
    ours, theirs = pair
    async with ours.follow_tokens():
        made = await ours.create("ci", Scope())
        assert [one.last_used_s for one in await ours.tokens()] == [None]
        ours.find_principal(digest(made.secret))
        assert [one.last_used_s for one in await ours.tokens()] == [clock.now_s]
    assert [one.last_used_s for one in await theirs.tokens()] == [clock.now_s]


async def test_the_last_use_is_the_last_one_whoever_stores_it_later(
    pair: tuple[AgentTokens, AgentTokens], clock: Clock
) -> None:
    """Two processes use one token, and the first to do so is the second to store it."""
    ours, theirs = pair
    made = await ours.create("ci", Scope())
    await theirs.refresh()
    ours.find_principal(digest(made.secret))
    clock.now_s += 10
    theirs.find_principal(digest(made.secret))
    await theirs._store_uses()
    await ours._store_uses()
    assert [one.last_used_s for one in await ours.tokens()] == [clock.now_s]


async def test_tokens_that_have_ended_cost_nothing_every_second(
    pair: tuple[AgentTokens, AgentTokens], clock: Clock
) -> None:
    """One for each job makes thousands in a year; they are listed, and not read by those that follow."""
    ours, theirs = pair
    for name in ("revoked", "over", "good"):
        made = await ours.create(name, Scope(expires_in_s=DAY_S if name == "over" else None))
    await ours.revoke("revoked")
    clock.now_s += 2 * DAY_S
    await theirs.refresh()
    assert repr(theirs) == "<AgentTokens, 1 good ones>"
    assert theirs.find_principal(digest(made.secret)) is not None
    assert [one.name for one in await theirs.tokens()] == ["revoked", "over", "good"]


async def test_a_use_is_not_forgotten_while_the_store_takes_none(
    pair: tuple[AgentTokens, AgentTokens], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored with the next ones."""
    ours, theirs = pair
    first, second = await ours.create("first", Scope()), await ours.create("second", Scope())
    used_s = clock.now_s
    ours.find_principal(digest(first.secret))
    with monkeypatch.context() as patch:

        async def write(*_: object, **__: object) -> None:
            raise CatalogError("The disk is full.")

        patch.setattr(ours._catalog, "write", write)
        await ours._store_uses()
    clock.now_s += 60
    ours.find_principal(digest(second.secret))
    await ours._store_uses()
    assert [one.last_used_s for one in await theirs.tokens()] == [used_s, clock.now_s]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", "x" * 65])
async def test_a_name_that_cannot_be_shown_is_refused(pair: tuple[AgentTokens, AgentTokens], name: str) -> None:
    """It ends up in lists on terminals."""
    with pytest.raises(RequestError, match="name for a token"):
        await pair[0].create(name, Scope())


@pytest.mark.parametrize(
    ("scope", "said"),
    [(Scope(("a", "c")), "Server 'c'"), (Scope(profile="p"), "Profile 'p'"), (Scope(("",)), "Server ''")],
)
def test_a_scope_that_names_nothing_is_a_slip(scope: Scope, said: str) -> None:
    """The error says what there is."""
    with pytest.raises(RequestError, match=said) as caught:
        scope.require_known(["a", "b"], ["work"])
    assert caught.value.hint in ("Known: a, b.", "Known: work.")
    Scope(("a",), profile="work").require_known(["a", "b"], ["work"])
