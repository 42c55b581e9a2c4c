"""Tokens in use: renewed ahead of their end, once when refused, by one of many processes, and given up for good."""

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import keyring
import msgspec
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import Guarded, Person, WallClock, call, guarded, linked

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.telemetry import redact
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.oauth.auth_bearer import renewal_due_s
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn, SignInFiles

pytestmark = [pytest.mark.anyio, pytest.mark.long]

RENEWER = """
import asyncio, json, sys
from pathlib import Path
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import SignIns

async def main(folder, url):
    print("ready", flush=True)
    sys.stdin.readline()
    bearer = await SignIns(Path(folder)).bearer(ServerConfig("web", "http", url=url, oauth={}))
    print(json.dumps(await bearer.token()), flush=True)
    await bearer.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def sign_ins(tmp_path: Path, clock: WallClock) -> SignIns:
    return SignIns(tmp_path, now=clock)


async def sign_in(sign_ins: SignIns, server: Guarded) -> SignIn:
    async with Person().browser() as browser:
        return await sign_ins.authorize_server(server.config(), browser)


def held(obtained_at_s: float, expires_at_s: float) -> SignIn:
    return SignIn("https://a.example", {}, None, {}, "access-token", "refresh-token", "", obtained_at_s, expires_at_s)


def test_a_token_is_due_in_the_last_part_of_its_life_and_not_for_all_at_once() -> None:
    """Five minutes ahead, up to half as much more by chance; of a short life the last fifth; never without an end."""
    rng = random.Random(7)
    long = [renewal_due_s(held(0, 3600), rng) or 0 for _ in range(50)]
    assert min(long) >= 3600 - 450
    assert max(long) <= 3600 - 300
    assert max(long) - min(long) > 60
    short = [renewal_due_s(held(0, 10), rng) or 0 for _ in range(50)]
    assert (min(short) >= 7, max(short) <= 8) == (True, True)
    assert renewal_due_s(held(0, 0), rng) is None


async def test_a_token_is_renewed_before_it_ends_while_calls_go_on(sign_ins: SignIns, server: Guarded) -> None:
    """No call waits or fails; the next one carries the new token, and the resource is named again."""
    server.provider.lifetime_s = 4
    first = await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        await call(session)
        await server.until(lambda: bool(server.refreshes))
        await server.until(lambda: len(server.provider.access_tokens) == 1)
        assert b"somebody" in await call(session)
        token = server.wire[-1].headers["authorization"].removeprefix("Bearer ")
        assert token != first.access_token
    assert server.refreshes[0].form["resource"] == server.url
    assert all(seen.headers.get("authorization") for seen in server.wire if b"tools/call" in seen.body)


async def test_a_token_that_ended_while_the_computer_slept_is_renewed_before_the_next_call(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """F62: the old one is not even sent, and calls that come together renew it once."""
    await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        await call(session)
        old = server.wire[-1].headers["authorization"]
        clock.ahead_s = 8 * 3600
        answers = await asyncio.gather(*(call(session) for _ in range(5)))
        assert all(b"somebody" in answer for answer in answers)
        sent = [seen.headers["authorization"] for seen in server.wire if b"tools/call" in seen.body]
        assert (sent.count(old), len(sent), len(server.refreshes)) == (1, 6, 1)


async def test_a_token_that_is_refused_is_renewed_once_and_the_call_succeeds(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """Many calls that are refused at the same time share one renewal."""
    got = await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        clock.ahead_s = 60
        del server.provider.access_tokens[got.access_token]
        assert all(b"somebody" in text for text in await asyncio.gather(*(call(session) for _ in range(20))))
    assert len(server.refreshes) == 1


async def test_a_server_that_refuses_every_token_is_not_stormed(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """One renewal, then the error says to sign in; the next call does not renew again."""
    await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        clock.ahead_s = 60
        server.answers["/mcp"] = lambda _: (401, {})
        for _ in range(3):
            with pytest.raises(UpstreamAuthError, match="HTTP 401") as caught:
                await call(session)
            assert caught.value.hint == "Sign in with: mcpproxy server login web"
    assert len(server.refreshes) == 1


async def test_a_revoked_sign_in_ends_the_session_and_is_not_tried_again(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """invalid_grant: the session says who can help, and no later connection asks the authorization server again."""
    got = await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        server.provider.refresh_tokens.clear()
        del server.provider.access_tokens[got.access_token]
        clock.ahead_s = 60
        with pytest.raises(UpstreamAuthError, match=r"was not renewed \(invalid_grant\)") as caught:
            await call(session)
        assert caught.value.hint == "Sign in with: mcpproxy server login web"
    clock.ahead_s = 7200
    for _ in range(3):
        with pytest.raises(UpstreamAuthError, match="has run out"):
            await sign_ins.bearer(server.config())
    assert len(server.refreshes) == 1


async def test_a_sign_in_that_ends_while_nobody_calls_ends_the_session(sign_ins: SignIns, server: Guarded) -> None:
    """The renewal ahead of time finds it revoked: the session is over with that reason, not with the next call."""
    server.provider.lifetime_s = 4
    await sign_in(sign_ins, server)
    async with linked(sign_ins, server) as session:
        server.provider.refresh_tokens.clear()
        with anyio.fail_after(20):
            end = await session.wait_closed()
    assert isinstance(end, UpstreamAuthError)
    assert "invalid_grant" in end.message


async def test_an_authorization_server_that_is_down_does_not_cost_the_sign_in(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """A failure for the moment is not a matter of signing in, and the same sign-in is renewed when it is over."""
    await sign_in(sign_ins, server)
    clock.ahead_s = 7200
    pages = (302, {}), (403, {}), (404, {"status": 404, "error": "Not Found"})
    for answer in ((503, {}), (429, {"error": "slow_down"}), (200, {"error": "what"}), *pages):
        server.answers["/token"] = lambda _, answer=answer: answer
        with pytest.raises(UpstreamError, match="renew") as caught:
            await sign_ins.bearer(server.config())
        assert not isinstance(caught.value, UpstreamAuthError)
        assert "If it lasts: Sign in with: mcpproxy server login web" in caught.value.hint
    del server.answers["/token"]
    bearer = await sign_ins.bearer(server.config())
    assert await bearer.token() in server.provider.access_tokens
    await bearer.close()


async def test_a_refusal_ends_a_sign_in_whatever_its_status(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """Some authorization servers say so with 403."""
    await sign_in(sign_ins, server)
    clock.ahead_s = 7200
    server.answers["/token"] = lambda _: (403, {"error": "invalid_grant"})
    with pytest.raises(UpstreamAuthError, match="invalid_grant"):
        await sign_ins.bearer(server.config())


class LosableFiles(SignInFiles):
    """Files on a disk that may be full."""

    is_full = False

    async def write(self, server: str, url: str, sign_in: SignIn) -> str | None:
        if self.is_full:
            raise ConfigError("The disk is full.")
        return await super().write(server, url, sign_in)


async def test_what_a_renewal_brought_is_not_lost_with_the_store(
    tmp_path: Path, server: Guarded, clock: WallClock
) -> None:
    """It is renewed in its turn, by a new connection too, and stored once that can be done."""
    files = LosableFiles(tmp_path / "sign-ins")
    sign_ins = SignIns(tmp_path, store=files, now=clock)
    await sign_in(sign_ins, server)
    files.is_full = True
    bearers = [await sign_ins.bearer(server.config())]
    for hours in (8, 16):
        clock.ahead_s = hours * 3600
        assert await bearers[-1].token() in server.provider.access_tokens
        bearers.append(await sign_ins.bearer(server.config()))
    assert len(server.refreshes) == 2
    files.is_full = False
    await sign_ins.store.catch_up()
    for bearer in bearers:
        await bearer.close()
    clock.ahead_s = 24 * 3600
    again = await SignIns(tmp_path, now=clock).bearer(server.config())
    assert await again.token() in server.provider.access_tokens
    await again.close()


@pytest.mark.parametrize("does", ["sign in", "sign out"])
async def test_what_could_not_be_stored_gives_way_to_what_was_done_later(
    tmp_path: Path, server: Guarded, clock: WallClock, does: str
) -> None:
    """Somebody who has signed in anew or out, at another process, has the last word."""
    files = LosableFiles(tmp_path / "sign-ins")
    sign_ins, other = SignIns(tmp_path, store=files, now=clock), SignIns(tmp_path, now=clock)
    await sign_in(sign_ins, server)
    bearer = await sign_ins.bearer(server.config())
    clock.ahead_s = 8 * 3600
    files.is_full = True
    await bearer.token()
    await bearer.close()
    clock.ahead_s += 1
    last = await sign_in(other, server) if does == "sign in" else None
    if last is None:
        await other.sign_out(server.config())
    files.is_full = False
    await sign_ins.store.catch_up()
    for each in (sign_ins, other):
        found, _ = await each.store.read("web", server.url)
        assert found == last


async def test_a_process_that_stood_still_takes_nothing_from_the_one_that_took_its_turn(
    tmp_path: Path, server: Guarded, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refresh token was used meanwhile: that it is refused says nothing of the sign-in that is stored now."""
    sign_ins, other = SignIns(tmp_path, now=clock), SignInFiles(tmp_path / "sign-ins")
    held = await sign_in(sign_ins, server)
    bearer = await sign_ins.bearer(server.config())
    newer = msgspec.structs.replace(held, access_token="newer", expires_at_s=clock() + 16 * 3600)

    async def refused(_: SignIn | None) -> SignIn:
        await other.write("web", server.url, newer)
        raise bearer.flow.build_ended_error("The sign-in was not renewed (invalid_grant)")

    monkeypatch.setattr(bearer.flow, "renew", refused)
    clock.ahead_s = 8 * 3600
    assert await bearer.token() == "newer"
    await bearer.close()
    assert (await other.read("web", server.url))[0] == newer


async def test_what_has_run_out_while_a_process_stood_still_is_renewed_in_its_turn(
    tmp_path: Path, server: Guarded, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process stored is not sent once it is over, and its refresh token is not thrown away."""
    sign_ins, other = SignIns(tmp_path, now=clock), SignInFiles(tmp_path / "sign-ins")
    held = await sign_in(sign_ins, server)
    bearer = await sign_ins.bearer(server.config())
    newer = msgspec.structs.replace(held, access_token="newer")
    renew, asked = bearer.flow.renew, []

    async def refused_once(given: SignIn | None) -> SignIn:
        asked.append(given)
        if given == newer:
            return await renew(given)
        await other.write("web", server.url, newer)
        raise bearer.flow.build_ended_error("The sign-in was not renewed (invalid_grant)")

    monkeypatch.setattr(bearer.flow, "renew", refused_once)
    clock.ahead_s = 8 * 3600
    assert await bearer.token() in server.provider.access_tokens
    await bearer.close()
    assert asked == [held, newer]


async def test_a_caller_who_gives_up_does_not_cost_the_new_token(
    sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """The renewal goes on without the caller, and what it brings is stored: refresh tokens work once."""
    await sign_in(sign_ins, server)
    bearer = await sign_ins.bearer(server.config())
    clock.ahead_s = 7200
    async with anyio.create_task_group() as group:
        group.start_soon(bearer.token)
        await server.until(lambda: bool(server.refreshes))
        group.cancel_scope.cancel()
    await bearer.close()
    again = await sign_ins.bearer(server.config())
    assert await again.token() in server.provider.access_tokens
    await again.close()
    assert len(server.refreshes) == 1


async def test_two_processes_renew_one_sign_in_once(tmp_path: Path, server: Guarded) -> None:
    """Both find the token run out at the same time: one renews it, the other takes what that one stored."""
    past = WallClock()
    past.ahead_s = -7200
    await sign_in(SignIns(tmp_path, now=past), server)
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-c", RENEWER, str(tmp_path), server.url]
    processes = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(2)]
    with anyio.fail_after(60):
        for process in processes:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    tokens = {json.loads(out) for out, _ in outputs}
    assert len(server.refreshes) == 1
    assert tokens == set(server.provider.access_tokens)


async def test_another_process_renews_and_signs_out(
    tmp_path: Path, sign_ins: SignIns, server: Guarded, clock: WallClock
) -> None:
    """What others store is taken up within 2 s; a sign-out ends the session."""
    await sign_in(sign_ins, server)
    retried: list[str] = []
    watching = asyncio.get_running_loop().create_task(sign_ins.watch(lambda name, person: retried.append(name)))
    other = SignIns(tmp_path)
    async with linked(sign_ins, server) as session:
        fresh = await sign_in(other, server)
        with anyio.fail_after(10):
            while server.wire[-1].headers.get("authorization") != f"Bearer {fresh.access_token}":
                await call(session)
        await other.sign_out(server.config())
        with anyio.fail_after(10):
            end = await session.wait_closed()
        assert isinstance(end, UpstreamAuthError)
        assert "signed out" in end.message
    watching.cancel()


async def test_tokens_in_use_are_hidden_in_logs(sign_ins: SignIns, server: Guarded) -> None:
    """Neither of the tokens can be said by a log line while it is in use."""
    got = await sign_in(sign_ins, server)
    bearer = await sign_ins.bearer(server.config())
    assert redact(f"{got.access_token} {got.refresh_token}") == "[hidden] [hidden]"
    assert got.access_token not in repr(got) + repr(bearer) + repr(sign_ins)
    await bearer.close()
    assert redact(got.access_token) == got.access_token
