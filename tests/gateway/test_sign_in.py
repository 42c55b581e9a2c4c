"""A gateway in front of a server that wants a sign-in: what it says, when it picks one up, what it keeps to itself."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import keyring
import msgspec
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import Guarded, Person, guarded

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest, ServerState
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.oauth.auth_store import SignInFiles

pytestmark = pytest.mark.anyio

LOGIN = "Sign in with: mcpproxy server login web"


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


async def sign_in(data_dir: Path, server: Guarded) -> None:
    """What `mcpproxy server login web` does, in a process of its own."""
    async with Person().browser() as browser:
        await SignIns(data_dir).authorize_server(server.config(), browser)


async def reached(gateway: Gateway, *states: ServerState) -> None:
    """Waits until the server is in one of these states, and listed if it is ready."""
    with anyio.fail_after(20):
        while gateway.status().servers[0].state not in states or not gateway.is_settled():
            await gateway.base.changes.wait()


@pytest.mark.long
async def test_a_login_is_picked_up_by_the_running_gateway_and_a_logout_too(tmp_path: Path, server: Guarded) -> None:
    """Without a restart, within seconds; before it nothing was sent, after the logout the tools stay discoverable."""
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config()}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.NEEDS_AUTH)
        (status,) = gateway.status().servers
        assert (status.error, status.hint) == ("Nobody is signed in at server 'web'.", LOGIN)
        assert server.wire == []
        await sign_in(tmp_path, server)
        began = asyncio.get_running_loop().time()
        await reached(gateway, ServerState.READY)
        assert asyncio.get_running_loop().time() - began < 10  # 2 s, and the patience of a busy machine
        request = CallRequest("web:whoami", {}, None)
        assert "somebody" in (await gateway.calls.call(request)).text.decode()
        await SignIns(tmp_path).sign_out(server.config())
        await reached(gateway, ServerState.NEEDS_AUTH)
        assert gateway.status().servers[0].hint == LOGIN
        found = await gateway.retrieval.retrieve(Question("says who calls", limit=5))
        assert [tool["name"] for tool in found["tools"]] == ["web:whoami"]
        assert found["not_covered"] == [{"server": "web", "state": "needs_auth"}]
        assert found["hint"].endswith("web: the user has to sign in: mcpproxy server login web")
        with pytest.raises(UpstreamAuthError) as caught:
            await gateway.calls.call(request)
        assert (caught.value.hint, caught.value.delivery) == (LOGIN, "not_sent")


@pytest.mark.long  # a third of a second of processor time
async def test_a_server_that_lets_nobody_in_without_more_says_what_is_to_be_granted(
    tmp_path: Path, server: Guarded
) -> None:
    """It waits for a sign-in, names the scope, and is ready once somebody has granted it."""
    await sign_in(tmp_path, server)
    server.demand("tools:write", of=b'"tools/list"')
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config()}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.ERROR)
        assert gateway.status().servers[0].hint.endswith(f"{LOGIN} (it asks for that scope as well)")
    server.demand("tools:write", of=b"")
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config()}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.NEEDS_AUTH)
        (status,) = gateway.status().servers
        assert status.error == "Server 'web' needs the scope 'tools:write', which has not been granted (HTTP 403)."
        assert status.hint == f"{LOGIN} (it asks for that scope as well)"
        await sign_in(tmp_path, server)
        await reached(gateway, ServerState.READY)


async def test_a_stored_sign_in_that_is_damaged_is_said_and_not_fatal(tmp_path: Path, server: Guarded) -> None:
    """The gateway starts, the server waits for a sign-in, and the message says what is wrong with the file."""
    await sign_in(tmp_path, server)
    (stored,) = (tmp_path / "sign-ins").glob("*.json")
    stored.write_bytes(b"rubbish")
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config()}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.NEEDS_AUTH)
        (status,) = gateway.status().servers
        assert "is damaged" in status.error
        assert status.hint == LOGIN


async def test_a_server_whose_sign_in_cannot_be_looked_up_is_back_with_the_store(
    tmp_path: Path, server: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to sign in meanwhile: it is a failure that passes, and its status says so."""
    await sign_in(tmp_path, server)
    read = SignInFiles.read

    async def fail(*_: object) -> None:
        raise UpstreamError("The database 'db' is lost.")

    monkeypatch.setattr(SignInFiles, "read", fail)
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config(oauth=None)}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.ERROR)
        (status,) = gateway.status().servers
        told = "The stored sign-in at server 'web' could not be looked up. The database 'db' is lost."
        assert (status.error, status.hint) == (told, "It is tried again.")
        monkeypatch.setattr(SignInFiles, "read", read)
        await reached(gateway, ServerState.READY)
        assert "somebody" in (await gateway.calls.call(CallRequest("web:whoami", {}, None))).text.decode()


async def test_no_token_is_found_anywhere_but_on_its_way(
    tmp_path: Path, server: Guarded, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in the log at its most talkative, not in a file of the data directory, not in the status, not on stdout."""
    caplog.set_level(logging.DEBUG)
    await sign_in(tmp_path, server)
    canaries = [*server.provider.access_tokens, *server.provider.refresh_tokens]
    async with open_gateway(Settings(data_dir=tmp_path), {"web": server.config()}, environ={}) as gateway:
        gateway.start_upstreams()
        await reached(gateway, ServerState.READY)
        await gateway.calls.call(CallRequest("web:whoami", {}, None))
        status = json.dumps(msgspec.to_builtins(gateway.status(), enc_hook=str))
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    canaries += [*server.provider.access_tokens, *server.provider.refresh_tokens]
    said = "".join([*capfd.readouterr(), caplog.text, status])
    assert len(canaries) == 4
    for canary in canaries:
        assert canary not in said
        assert not any(canary.encode() in data for data in files)
