"""`mcpproxy server login` and `logout`, in processes of their own."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import keyring
import pytest
from cli_runs import PROGRAM, Run, environment
from forked_programs import run_forked
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import Guarded, Person, follow, guarded, redirect_of

from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

PAGE = re.compile(rb"^http://127\.0\.0\.1:\d+/authorize\S*", re.MULTILINE)


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


@pytest.fixture
def env(tmp_path: Path, server: Guarded) -> dict[str, str]:
    """A user's environment with the guarded server configured."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"web": {"url": server.url, "oauth": True}}}))
    variables = environment(tmp_path / "data", CONFIG_PATH=str(tmp_path / "servers.json"))
    return variables | {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring", "BROWSER": "false", "DISPLAY": ""}


async def started(env: dict[str, str], *words: str) -> asyncio.subprocess.Process:
    """`mcpproxy WORDS`, running."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*PROGRAM, *words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)


async def page_of(process: asyncio.subprocess.Process) -> str:
    """The address that the command prints for the person."""
    assert process.stderr is not None
    said = b""
    while not (found := PAGE.search(said)):
        line = await process.stderr.readline()
        assert line, said.decode()
        said += line
    return found[0].decode()


Finished = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def finished(env: dict[str, str]) -> Finished:
    """Tells status and both streams of `mcpproxy WORDS`."""

    async def finish(*words: str, **settings: str) -> tuple[int, str, str]:
        run = partial(run_forked, *words, cwd=Path.cwd(), env=env | settings)
        status, out, err = await anyio.to_thread.run_sync(run)
        return status, out.decode(), err.decode()

    return finish


@pytest.mark.long  # starts and ends processes, seconds of it
async def test_login_prints_the_address_and_logout_forgets(
    env: dict[str, str], server: Guarded, finished: Finished
) -> None:
    """The person opens the page; then the token serves the next command; no token is printed."""
    with anyio.fail_after(120):
        login = await started(env, "server", "login", "web", "--no-browser", "--json")
        await follow(await page_of(login))
        out, _ = await login.communicate()
        said = json.loads(out)
        assert login.returncode == 0
        assert (said["server"], said["issuer"].rstrip("/"), said["scopes"]) == ("web", server.base, ["tools:read"])
        assert said["is_renewable"] is True
        assert not any(token in out.decode() for token in server.provider.access_tokens)
        status, out, err = await finished("call", "web:whoami")
        assert (status, out.splitlines()[:1]) == (0, ["somebody"]), err
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(20)
            sent_out = {"MCPPROXY_ACTIVITY_EXPORT": f"syslog://127.0.0.1:{receiver.getsockname()[1]}"}
            status, out, _ = await finished("server", "logout", "web", "--json", **sent_out)
            assert b'"change":"signed out"' in receiver.recv(65_536)
        assert json.loads(out) == {"server": "web", "was_signed_in": True, "is_revoked": True, "problem": ""}
        assert server.provider.access_tokens == {}
        status, _, err = await finished("server", "logout", "web")
        assert (status, "Nobody was signed in to server 'web'." in err) == (0, True)
        _, out, _ = await finished("activity", "list", "--kind", "access", "--json")
        changes = [(one["detail"]["change"], one["principal"], one["server"]) for one in json.loads(out)]
        assert changes == [(change, "local", "web") for change in ("signed out", "signed in")]


@pytest.mark.long  # processes of their own
async def test_a_list_shows_one_persons_sign_ins(env: dict[str, str], server: Guarded, finished: Finished) -> None:
    """Where each person has their own: Ann's with --person, and without it those of the machine's user."""
    keyring.set_keyring(NoKeyring())
    entry = {"url": server.url, "oauth": {"per_user": True}}
    Path(env["MCPPROXY_CONFIG_PATH"]).write_text(json.dumps({"mcpServers": {"web": entry}}))
    async with Person().browser() as browser:
        sign_ins = SignIns(Path(env["MCPPROXY_DATA_DIR"]))
        held = await sign_ins.authorize_server(server.config(entry["oauth"], person="ann"), browser)
    with anyio.fail_after(120):
        _, out, _ = await finished("login", "--list", "--person", "ann", "--json")
        (row,) = json.loads(out)
        assert (row["server"], row["state"], row["since_s"]) == ("web", "signed_in", held.obtained_at_s)
        _, out, err = await finished("login", "web", "--list")
        assert "web" in out and "none" in out, err


@pytest.mark.long  # a process of its own
async def test_nothing_is_asked_of_a_server_in_quarantine(
    env: dict[str, str], server: Guarded, finished: Finished
) -> None:
    """Its address may be a stranger's; whoever lifts the quarantine has seen it."""
    path = Path(env["MCPPROXY_CONFIG_PATH"])
    path.write_text(json.dumps({"mcpServers": {"web": {"url": server.url, "quarantined": True}}}))
    with anyio.fail_after(60):
        status, _, err = await finished("server", "login", "web", "--no-browser")
    assert (status, "mcpproxy server approve web" in err) == (1, True), err
    assert server.wire == []


@pytest.mark.long  # a process of its own
async def test_ctrl_c_ends_the_wait_and_frees_the_port(env: dict[str, str]) -> None:
    """Exit status 130, nothing stored, nobody listens any more."""
    with anyio.fail_after(60):
        login = await started(env, "server", "login", "web", "--no-browser")
        query = parse_qs(urlsplit(await page_of(login)).query)
        login.send_signal(signal.SIGINT)
        _, err = await login.communicate()
    assert (login.returncode, b"Traceback" in err) == (130, False)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", urlsplit(query["redirect_uri"][0]).port)
    assert list(Path(env["MCPPROXY_DATA_DIR"]).rglob("*.json")) == []


@pytest.mark.long  # processes of their own
async def test_one_login_signs_in_to_every_server_that_waits(
    env: dict[str, str], server: Guarded, finished: Finished
) -> None:
    """No entry says `oauth`; the first login is for all, the second finds nobody; a refused token is named."""
    path = Path(env["MCPPROXY_CONFIG_PATH"])
    headers = {"Authorization": "Bearer stale"}
    entries = {"one": {"url": server.url}, "two": {"url": server.url}, "old": {"url": server.url, "headers": headers}}
    path.write_text(json.dumps({"mcpServers": entries}))
    with anyio.fail_after(120):
        status, out, err = await finished("call", "one:whoami")
        assert (status, "mcpproxy server login one" in err) == (1, True), err
        login = await started(env, "login", "--json")
        for _ in ("one", "two"):
            await follow(await page_of(login))
        out_bytes, err_bytes = await login.communicate()
        assert [row["server"] for row in json.loads(out_bytes)] == ["one", "two"]
        assert login.returncode == 1  # the third still waits
        assert b"mcpproxy server patch old headers.Authorization=" in err_bytes
        path.write_text(json.dumps({"mcpServers": {name: entries[name] for name in ("one", "two")}}))
        status, out, err = await finished("call", "two:whoami")
        assert (status, out.splitlines()[:1]) == (0, ["somebody"]), err
        status, _, err = await finished("login")
        assert (status, "No server waits for a sign-in." in err) == (0, True)


@pytest.mark.long  # a process of its own, on a terminal
async def test_an_address_pasted_into_the_terminal_ends_the_wait(env: dict[str, str], server: Guarded) -> None:
    """For a machine without a browser: another one's browser ends at an address that is copied over."""
    ours, theirs = pty.openpty()
    pipe = asyncio.subprocess.PIPE
    with anyio.fail_after(60):
        login = await asyncio.create_subprocess_exec(
            *PROGRAM, "login", "web", "--json", stdin=theirs, stdout=pipe, stderr=pipe, env=env
        )
        page = await page_of(login)
        os.write(ours, b"http://127.0.0.1:1/callback?code=forged&state=guessed\n")
        os.write(ours, (await redirect_of(page)).encode() + b"\n")
        out, err = await login.communicate()
    os.close(ours)
    os.close(theirs)
    assert (login.returncode, json.loads(out)["server"]) == (0, "web"), err
    assert b"That is not the address that this sign-in ends at." in err
    assert b"paste that page's address here" in err


ENTRIES = {
    "plain": {"url": "https://h.example/mcp", "headers": {"Authorization": "Bearer old"}},
    "never": {"url": "https://h.example/mcp", "oauth": False},
    "program": {"command": "true"},
}


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("plain", 2, "Next: mcpproxy server patch plain headers.Authorization=null"),
        ("never", 2, "Next: mcpproxy server patch never oauth=null"),
        ("program", 2, "it gets its credentials from 'env'"),
        ("nothing", 1, "Known: never, plain, program"),
    ],
)
def test_what_cannot_be_signed_in_to_is_said(home: Path, run: Run, name: str, status: int, words: str) -> None:
    """The message says what to change, and nothing is opened."""
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": ENTRIES}))
    for verb in ("login", "logout"):
        done = run("server", verb, name)
        assert (done.status, words in done.err) == (status, True), done.err
