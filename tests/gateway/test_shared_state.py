"""What two gateways on one database share: each sees what the other has made, and the database shows no secret."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
import pytest
from openid_fakes import CLIENT_ID
from postgres_server import PostgresServer
from pydantic import SecretStr
from sign_in_fakes import Guarded, Person, WallClock, guarded

from smart_mcp_proxy.catalog import Catalog, open_catalog
from smart_mcp_proxy.catalog.tables import feedback
from smart_mcp_proxy.errors import ConfigError, RequestError, UpstreamAuthError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, Subject
from smart_mcp_proxy.gateway.indexing.learning import open_learning
from smart_mcp_proxy.gateway.results.outputs import META_KEY, Outputs, SharedOutputs
from smart_mcp_proxy.gateway.shared.key_mark import mark_secret_key
from smart_mcp_proxy.gateway.shared.shared_sign_ins import SharedSignIns
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.web.auth.sign_in_store import open_store

pytestmark = pytest.mark.anyio

KEY = SecretStr("a-key-of-the-tests-with-32-characters")


class Two(NamedTuple):
    """Two gateways' catalogs.

    Attributes:
        url: Of their database.
        settings: Of each.
        catalogs: Of each.
    """

    url: str
    settings: tuple[Settings, Settings]
    catalogs: tuple[Catalog, Catalog]

    def secret(self) -> SecretKey:
        secret = SecretKey.of(self.settings[0])
        assert secret is not None
        return secret

    def sign_ins(self, clock: WallClock) -> list[SignIns]:
        stores = [SharedSignIns(catalog, self.secret()) for catalog in self.catalogs]
        return [SignIns(self.settings[0].data_dir, store=store, now=clock) for store in stores]

    def dump(self) -> bytes:
        """Everything that the database keeps apart from tools."""
        with psycopg.connect(self.url) as connection:
            return b"\0".join(bytes(row[0]) for row in connection.execute("SELECT box FROM sealed").fetchall())


@pytest.fixture
async def two(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Two]:
    url = postgres.url(postgres.new_database())
    first, second = (Settings(data_dir=tmp_path / name, database_url=SecretStr(url), secret_key=KEY) for name in "ab")
    async with open_catalog(first, reset=False) as one, open_catalog(second, reset=False) as other:
        yield Two(url, (first, second), (one, other))


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


async def test_a_cut_output_is_read_at_the_other_gateway(two: Two) -> None:
    """By whom it was made for alone; the database holds neither its text nor what opens it."""
    first, second = (Outputs(asyncio.get_running_loop().time, SharedOutputs(catalog)) for catalog in two.catalogs)
    raw = json.dumps({"content": [{"type": "text", "text": "canary " * 1000}]}).encode()
    cut = json.loads((await first.cut(RawResult(raw), 300, "ann")).text)
    key = cut["_meta"][META_KEY]["key"]
    page = await second.page(key, "ann", 0, 700)
    assert page.items == "canary " * 100
    with pytest.raises(RequestError):
        await second.page(key, "bob", 0, 700)
    assert b"canary" not in two.dump() and key.encode() not in two.dump()


async def test_an_input_round_goes_on_at_the_other_gateway(two: Two) -> None:
    """With one secret key; with another one it is refused, as a stranger's is."""
    subject = Subject("ann", "tools/call", "s", "a", {}, "")
    states = [RequestStates(made.data_dir, secret=SecretKey.of(made)) for made in two.settings]
    sealed = await states[0].seal(subject, "of the server", 1)
    assert (await states[1].open(subject, sealed)).state == "of the server"
    other = RequestStates(two.settings[1].data_dir, secret=SecretKey("l" * 32))
    with pytest.raises(RequestError):
        await other.open(subject, sealed)


async def test_a_sign_in_counts_at_both_and_a_refresh_token_is_used_once(two: Two, server: Guarded) -> None:
    """Whoever comes first renews it, and the other waits for that; a sign-out at one is one at both."""
    clock = WallClock()
    first, second = two.sign_ins(clock)
    async with Person().browser() as browser:
        signed_in = await first.authorize_server(server.config(), browser)
    bearers = [await sign_ins.bearer(server.config()) for sign_ins in (first, second)]
    assert [await bearer.token() for bearer in bearers] == [signed_in.access_token] * 2
    clock.ahead_s = 8 * 3600
    renewed = await asyncio.gather(*(bearer.token() for bearer in bearers * 3))
    assert len(set(renewed)) == 1 and renewed[0] != signed_in.access_token
    assert len(server.refreshes) == 1
    for secret in (signed_in.access_token, signed_in.refresh_token, renewed[0]):
        assert secret and secret.encode() not in two.dump()
    for bearer in bearers:
        await bearer.close()
    await second.sign_out(server.config())
    with pytest.raises(UpstreamAuthError, match="Nobody is signed in"):
        await first.bearer(server.config())


async def test_a_sign_in_under_another_key_says_so(two: Two, server: Guarded) -> None:
    """And what to do; nothing of it is told."""
    async with Person().browser() as browser:
        await two.sign_ins(WallClock())[0].authorize_server(server.config(), browser)
    for secret, told in ((SecretKey("l" * 32), "under another key"), (None, "no key to encrypt them with")):
        stranger = SignIns(two.settings[1].data_dir, store=SharedSignIns(two.catalogs[1], secret))
        with pytest.raises(UpstreamAuthError, match=told) as caught:
            await stranger.bearer(server.config())
        assert "MCPPROXY_SECRET_KEY" in caught.value.hint


async def test_what_people_sign_in_with_is_found_at_the_other_gateway(two: Two) -> None:
    """Clients, codes and provider tokens, until they end; neither they nor their keys are legible in the database."""
    (first, key), (second, other) = (open_store(*pair) for pair in zip(two.settings, two.catalogs, strict=True))
    assert key == other
    await first.put("code-canary", {"token": "canary"}, collection="codes", ttl=60)
    assert await second.get("code-canary", collection="codes") == {"token": "canary"}
    assert await second.get("code-canary", collection="others") is None
    _, ttl = await second.ttl("code-canary", collection="codes")
    assert ttl is not None and 50 < ttl <= 60
    assert b"canary" not in two.dump()
    assert await second.delete("code-canary", collection="codes")
    assert await first.get("code-canary", collection="codes") is None


OFF = pytest.mark.parametrize("off_s", [3_600.0, -3_600.0], ids=["behind", "ahead"])


@OFF
async def test_what_people_sign_in_with_ends_by_the_store_s_clock(two: Two, off_s: float) -> None:
    """A gateway whose clock is an hour off neither loses at once what it stores, nor leaves it there for longer."""
    catalog = two.catalogs[0]
    catalog._database.ahead_s = off_s
    store, _ = open_store(two.settings[0], catalog)
    await store.put("code", {"token": "t"}, collection="codes", ttl=60)
    _, ttl = await store.ttl("code", collection="codes")
    assert ttl is not None and 50 < ttl <= 60
    with psycopg.connect(two.url) as connection:
        ((ends_s,),) = connection.execute("SELECT expires_s FROM sealed").fetchall()
    assert 50 < ends_s - catalog.now_s() <= 60


@OFF
async def test_what_was_learned_last_stays_whatever_its_gateway_s_clock_says(
    two: Two, off_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late clock drops no question before those of the others, and an early one keeps none for longer."""
    monkeypatch.setattr(feedback, "_KEPT_PER_TOOL", 1)
    wrong, right = two.catalogs
    told, key = time.time, ToolKey("s", "a")
    wrong._database.ahead_s, wrong._clock = off_s, lambda: told() - off_s
    await right.sync("s", [{"name": "a", "inputSchema": {"type": "object"}}])
    follower: Any = SimpleNamespace(follow=wrong.refresh)
    for number, catalog in enumerate((right, wrong, right)):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", catalog._clock)
            async with open_learning(catalog, follower, time.monotonic) as learning:
                learning.record_search("ann", None, f"question {number}", [key])
                learning.learn_from_call("ann", None, key)
        assert [example.question for example in await right.read_examples(key)] == [f"question {number}"]


@pytest.mark.parametrize("who", ["server", "people"])
async def test_sign_ins_without_a_secret_key_stop_the_start(two: Two, server: Guarded, who: str) -> None:
    """Before anything is opened."""
    settings = two.settings[0].model_copy(update={"secret_key": None})
    servers = {"web": server.config()} if who == "server" else {}
    if who == "people":
        url = "https://id.example/.well-known/openid-configuration"
        settings = settings.model_copy(update={"oidc_url": url, "oidc_client_id": CLIENT_ID})
    with pytest.raises(ConfigError, match="no key to encrypt them with"):
        async with open_gateway(settings, servers, environ={}):
            pass


async def test_a_token_that_needs_nobody_is_had_anew_under_another_key(two: Two, server: Guarded) -> None:
    """Whose credentials are in its entry goes on by itself after the secret key was replaced."""
    server.give_to_programs("robot", "robot-secret")
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "robot-secret"}
    for secret in (two.secret(), SecretKey("l" * 32)):
        store = SharedSignIns(two.catalogs[0], secret)
        bearer = await SignIns(two.settings[0].data_dir, store=store).bearer(server.config(oauth))
        assert await bearer.token() in server.provider.access_tokens
        await bearer.close()
    assert len(server.asked("/token", grant_type="client_credentials")) == 2


async def test_another_secret_key_at_one_gateway_is_said_at_a_start(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    """By whichever starts after the other; of one key for all nothing is said, and of a change of it once."""
    ours, other = two.secret(), SecretKey("l" * 32)
    said = []
    for secret in (ours, ours, other, other, ours, None, None):
        caplog.clear()
        for catalog in two.catalogs:
            await mark_secret_key(catalog, secret)
        said.append([word for word in ("has another", "has none") for text in caplog.messages if word in text])
    assert said == [[], [], ["has another"], [], ["has another"], ["has none"], []], said
    assert b"l" * 32 not in two.dump()
