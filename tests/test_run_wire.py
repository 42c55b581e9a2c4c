"""What looks at the headers that servers are sent finds what is nothing to them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import run_wire
from starlette.responses import Response

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests have said and seen stays theirs."""
    for name, empty in (("strays", []), ("configured", set()), ("sent_by_agents", set())):
        monkeypatch.setattr(run_wire, name, empty)
    yield


async def sent(**headers: str) -> list[str]:
    """What is found in one request with these headers."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    told = []

    async def tell(message: object) -> None:
        told.append(message)

    async def listen() -> object:
        raise AssertionError("nobody reads")

    await run_wire.Watched(Response("served"))({"type": "http", "headers": lines}, listen, tell)
    assert len(told) == 2
    return run_wire.strays


async def test_a_header_that_is_not_on_the_list_is_found() -> None:
    """Whatever it is called; those of the protocol, and of a tool's own parameters, are on it."""
    assert await sent(host="h", mcp_param_region="eu", authorization="Bearer its-own-token") == []
    assert await sent(x_any="1", cookie="a=b") == [
        f"a server was sent the header '{name}'" for name in ("x-any", "cookie")
    ]


async def test_what_is_configured_for_a_server_may_be_sent_with_its_own_value_only() -> None:
    """An agent's header of the same name is none."""
    run_wire.configured_with({"X-Team": "lighthouse"})
    assert await sent(x_team="lighthouse") == []
    assert len(await sent(x_team="private-team")) == 1


async def test_what_an_agent_sent_is_found_in_whatever_header_it_comes() -> None:
    """Its token in `authorization`, which a server may be sent otherwise; what every client says is nobody's own."""
    run_wire.came_from_agent({"Authorization": "Bearer token-of-an-agent", "Accept": "application/json"}.items())
    assert await sent(accept="application/json", authorization="Bearer token-of-the-server") == []
    assert len(await sent(authorization="Bearer token-of-an-agent")) == 1
    assert len(await sent(traceparent="token-of-an-agent")) == 2


@contextmanager
def child(program: str, folder: Path, **environ: str) -> Iterator[str]:
    """The address of a server in a process of its own; each of them says its own way where it is."""
    arguments = {"interaction/leaking_upstream.py": [str(folder / "port")], "lifetime/upstream.py": [str(folder), "0"]}
    command = [sys.executable, str(Path(__file__).parent / program), *arguments.get(program, [])]
    with subprocess.Popen(command, env=os.environ | environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            if program in arguments:
                while not ((folder / "port").exists() and (port := (folder / "port").read_text())):
                    assert process.poll() is None
                    time.sleep(0.01)
                yield f"http://127.0.0.1:{port}/mcp"
            else:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize(
    "program", ["interaction/leaking_upstream.py", "lifetime/upstream.py", "conformance/fixture_server.py"]
)
def test_a_server_in_a_process_of_its_own_is_looked_at_too(tmp_path: Path, program: str) -> None:
    """Once for each request; what the run knows of counts for it as for the others."""
    run_wire.came_from_agent({"Authorization": "Bearer token-of-an-agent"}.items())
    notes = run_wire.Notes(tmp_path / "notes")
    notes.look()
    with child(program, tmp_path, **{run_wire.NOTES: str(notes.path)}) as url, httpx2.Client(trust_env=False) as client:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        client.post(url, json=ping, headers={"X-Any": "1", "Cookie": "a=b"})
        notes.look()
        assert sorted(run_wire.strays) == [f"a server was sent the header '{name}'" for name in ("cookie", "x-any")]
        client.post(url, json=ping, headers={"X-Run-Canary": "token-of-an-agent"})
        notes.look()
        known = [] if program.startswith("lifetime") else ["a server was sent the header 'x-run-canary'"]
        assert run_wire.strays[2:] == known, "that one notes only what no server may be sent"


def test_a_note_that_is_being_written_is_looked_at_when_it_is_whole(tmp_path: Path) -> None:
    """A server that is killed may leave half of one."""
    notes = run_wire.Notes(tmp_path / "notes")
    notes.path.write_bytes(b'{"x-one": ""}\n{"x-t')
    notes.look()
    assert len(run_wire.strays) == 1
    with notes.path.open("ab") as file:
        file.write(b'wo": ""}\n')
    notes.look()
    assert len(run_wire.strays) == 2
