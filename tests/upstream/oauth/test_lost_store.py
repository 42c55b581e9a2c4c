"""A store of sign-ins that is lost for a while: nobody signs in because of it, and what others store is taken up."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sign_in_fakes import Guarded, Nobody, Person, guarded

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, SignIns
from smart_mcp_proxy.upstream.fleet import TRANSPORTS
from smart_mcp_proxy.upstream.oauth import auth
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn
from smart_mcp_proxy.upstream.opening import SessionOptions

pytestmark = pytest.mark.anyio

LIMIT_S = 5
URL = "http://127.0.0.1:1/mcp"
SIGNED_IN = ServerConfig("web", "http", url=URL, oauth={})
OPEN = ServerConfig("web", "http", url=URL)


class Store:
    """The sign-in at one server.

    Attributes:
        held: What is stored.
        problem: What each read fails with.
        turn: To be had by whoever changes the sign-in.
        failed: Reads that failed.
    """

    def __init__(self, access_token: str = "") -> None:
        self.held: SignIn | None = None
        self.problem: UpstreamError | None = None
        self.failed = 0
        self.turn = asyncio.Lock()
        if access_token:
            self.put(access_token)

    def put(self, access_token: str) -> None:
        """Stores a sign-in that is good for an hour."""
        self.held = signed_in(access_token)

    async def stamps(self, places: Sequence[tuple[str, str]]) -> list[str | None]:
        return [None if self.held is None else self.held.access_token for _ in places]

    async def read(self, server: str, url: str) -> tuple[SignIn | None, str | None]:
        if self.problem is not None:
            self.failed += 1
            raise self.problem
        return self.held, (await self.stamps([(server, url)]))[0]

    async def write(self, server: str, url: str, sign_in: SignIn) -> str | None:
        self.held = sign_in
        return sign_in.access_token

    async def remove(self, server: str, url: str) -> bool:
        raise AssertionError

    @asynccontextmanager
    async def hold_lock(self, server: str, url: str) -> AsyncIterator[None]:
        async with self.turn:
            yield


def signed_in(access_token: str) -> SignIn:
    return SignIn("https://a.example", {}, None, {}, access_token, "", "", time.time(), time.time() + 3600)


def lost() -> UpstreamError:
    return UpstreamError("The database 'db' is lost.", hint="Bring it back.")


@pytest.fixture
def store() -> Store:
    return Store("first")


@pytest.fixture
def sign_ins(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> SignIns:
    monkeypatch.setattr(auth, "_WATCH_S", 0.0)
    return SignIns(tmp_path, store=store)


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[SessionOptions]:
    """What was tried at a server that lets nobody in who is not signed in."""
    tried: list[SessionOptions] = []

    async def dial(opening: SessionOptions) -> Any:
        tried.append(opening)
        if opening.bearer is None:
            raise UpstreamAuthError("Server 'web' refused.", hint="Sign in with: mcpproxy server login web")
        return "a session"

    monkeypatch.setitem(TRANSPORTS, "http", dial)  # type: ignore[index]  # a table that only tests write to
    return tried


async def opened(sign_ins: SignIns, config: ServerConfig) -> Any:
    async with Connector(sign_ins=sign_ins) as dial:
        return await dial(config, environ={}, era=None, on_event=lambda _: None)


async def test_a_store_that_is_lost_between_two_looks_does_not_end_the_watch(sign_ins: SignIns, store: Store) -> None:
    """The look that finds a newer sign-in cannot read it; a later one does."""
    bearer = await sign_ins.bearer(SIGNED_IN)
    watching = asyncio.create_task(sign_ins.watch(lambda _, person: None))
    store.problem = lost()
    store.put("second")
    async with asyncio.timeout(LIMIT_S):
        while store.failed < 3 and not watching.done():
            await asyncio.sleep(0)
        assert await bearer.token() == "first"
        store.problem = None
        while await bearer.token() != "second" and not watching.done():
            await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
    await bearer.close()


async def test_nobody_is_watched_for_whose_connection_is_gone(sign_ins: SignIns, store: Store) -> None:
    """People come and go for months; whoever is connected and signed out is watched for."""
    store.held, told = None, list[str]()
    for person in ("ann", "bob"):
        with pytest.raises(UpstreamAuthError):
            await sign_ins.bearer(replace(SIGNED_IN, person=person))
    waiting = {"ann", "bob"}
    sign_ins.is_waiting = lambda _, person: person in waiting
    watching = asyncio.create_task(sign_ins.watch(lambda _, person: told.append(person)))
    for people in ({"ann", "bob"}, {"bob"}):
        waiting &= people
        store.put(f"of {sorted(people)}")
        told.clear()
        async with asyncio.timeout(LIMIT_S):
            while len(told) < 4:
                await asyncio.sleep(0)
        assert set(told) == waiting
    watching.cancel()


async def test_what_waits_to_be_stored_does_not_keep_the_watch_from_looking(sign_ins: SignIns, store: Store) -> None:
    """Another process may have the turn at it for a minute; somebody who signs in meanwhile is seen."""
    bearer = await sign_ins.bearer(SIGNED_IN)
    sign_ins.store._unstored["web", URL] = signed_in("unstored")
    async with asyncio.timeout(LIMIT_S), store.turn:
        watching = asyncio.create_task(sign_ins.watch(lambda _, person: None))
        while not store.turn._waiters:
            await asyncio.sleep(0)
        store.put("second")
        while await bearer.token() != "second":
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait([watching])
    await bearer.close()


async def test_what_could_not_be_stored_replaces_what_nobody_can_open(sign_ins: SignIns, store: Store) -> None:
    """A damaged sign-in cannot be compared with it."""
    store.problem = UpstreamAuthError("It is damaged.")
    sign_ins.store._unstored["web", URL] = signed_in("unstored")
    await sign_ins.store.catch_up()
    assert store.held is not None and store.held.access_token == "unstored"
    assert not sign_ins.store._unstored


async def test_nobody_is_asked_to_sign_in_because_the_store_is_lost(
    sign_ins: SignIns, store: Store, openings: list[SessionOptions]
) -> None:
    """A server that refuses for lack of a sign-in is said to be tried again, and is once the store is back."""
    store.problem = lost()
    with pytest.raises(UpstreamError) as caught:
        await opened(sign_ins, OPEN)
    assert not isinstance(caught.value, UpstreamAuthError)
    told = "The stored sign-in at server 'web' could not be looked up. The database 'db' is lost."
    assert (caught.value.message, caught.value.hint) == (told, "It is tried again. Bring it back.")
    assert [opening.bearer for opening in openings] == [None]
    store.problem = None
    retried = asyncio.Event()
    watching = asyncio.create_task(sign_ins.watch(lambda _, person: retried.set()))
    async with asyncio.timeout(LIMIT_S):
        await retried.wait()
    watching.cancel()
    assert await opened(sign_ins, OPEN) == "a session"
    bearer = openings[-1].bearer
    assert bearer is not None and await bearer.token() == "first"
    await bearer.close()


async def test_a_server_that_needs_no_sign_in_does_without_the_store(
    sign_ins: SignIns, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that fails for another reason is said to fail for that reason."""
    answers: list[Any] = ["a session", UpstreamError("Server 'web' is down.")]

    async def dial(opening: SessionOptions) -> Any:
        assert opening.bearer is None
        answer = answers.pop(0)
        if isinstance(answer, UpstreamError):
            raise answer
        return answer

    monkeypatch.setitem(TRANSPORTS, "http", dial)  # type: ignore[index]  # a table that only tests write to
    store.problem = lost()
    assert await opened(sign_ins, OPEN) == "a session"
    with pytest.raises(UpstreamError, match="is down"):
        await opened(sign_ins, OPEN)


async def test_a_stored_sign_in_that_cannot_be_used_is_a_matter_of_signing_in(
    sign_ins: SignIns, store: Store, openings: list[SessionOptions]
) -> None:
    """The server is tried without it, and what it says counts."""
    store.problem = UpstreamAuthError("It is damaged.")
    with pytest.raises(UpstreamAuthError, match="refused"):
        await opened(sign_ins, OPEN)
    assert [opening.bearer for opening in openings] == [None]


async def test_nobody_signs_in_while_it_cannot_be_stored(sign_ins: SignIns, store: Store, server: Guarded) -> None:
    """The person is shown no page, and the server hears nothing; a sign-in that cannot be used is replaced."""
    store.problem = lost()
    with pytest.raises(UpstreamError, match="The database 'db' is lost") as caught:
        await sign_ins.authorize_server(server.config(), Nobody())
    assert not isinstance(caught.value, UpstreamAuthError) and server.wire == []
    store.problem = UpstreamAuthError("It is damaged.")
    async with Person().browser() as browser:
        fresh = await sign_ins.authorize_server(server.config(), browser)
    assert store.held == fresh and fresh.access_token in server.provider.access_tokens


@pytest.mark.parametrize("config", [SIGNED_IN, OPEN], ids=["asked for", "found"])
async def test_a_server_that_was_signed_in_to_is_connected_to_again_while_the_store_is_lost(
    sign_ins: SignIns, store: Store, openings: list[SessionOptions], config: ServerConfig
) -> None:
    """Connections end for many reasons; no call needs the database. A sign-out that was seen before is kept to."""
    first = await sign_ins.bearer(SIGNED_IN)
    await first.close()
    store.problem = lost()
    assert await opened(sign_ins, config) == "a session"
    bearer = openings[-1].bearer
    assert bearer is not None and await bearer.token() == "first"
    await bearer.close()
    store.problem, store.held = None, None
    with pytest.raises(UpstreamAuthError):
        await opened(sign_ins, config)
    store.problem = lost()
    with pytest.raises(UpstreamError, match="is lost"):
        await opened(sign_ins, config)
