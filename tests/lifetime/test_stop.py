"""The end in good order: calls under way are answered, later ones refused, and nothing is left behind."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from forked_programs import ForkedProcess
from worlds import (
    DEADLINE_S,
    ENVIRON,
    HELLO,
    Client,
    SmallServer,
    connected,
    end,
    error_of,
    is_alive,
    started,
    text_of,
    until,
)

from smart_mcp_proxy.web.serve import socket_path

pytestmark = [pytest.mark.anyio, pytest.mark.long]

SIGNALS = pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
PATHS = (False, True)
"""Calls without a progress token and with one: by the fast path, and by the SDK's."""


@pytest.fixture
def small(tmp_path: Path) -> SmallServer:
    """A small server."""
    return SmallServer(tmp_path / "world")


def log_of(tmp_path: Path) -> str:
    """What the gateway wrote to stderr."""
    return (tmp_path / "log").read_text()


async def begun(client: Client, small: SmallServer, text: str, *, with_progress: bool = False) -> int:
    """A call that has reached the server and waits there."""
    call = {"name": "up:wait", "args": {"text": text}}
    request_id = client.call("call_tool_write", call, with_progress=with_progress)
    await until(lambda: text in small.waiting())
    return request_id


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak)]
)
async def test_an_idle_gateway_ends_within_two_seconds(
    tmp_path: Path, small: SmallServer, number: signal.Signals, status: int
) -> None:
    """Its children before it."""
    async with connected(tmp_path / "data", small) as client:
        client.process.send_signal(number)
        assert await client.ended(2.0) == (status, pytest.approx(1, abs=1))
        assert not any(map(is_alive, small.pids()))
    assert "Traceback" not in log_of(tmp_path)


STARTING = [
    ("cyclopts._version", ["serve"]),
    ("cyclopts", []),
    ("smart_mcp_proxy.cli.app", ["serve"]),
    ("pydantic", ["serve", "--http", "--port", "0"]),
    ("mcp_types", ["serve"]),
    ("smart_mcp_proxy.gateway", ["serve", "--http", "--port", "0"]),
]
"""What is imported when the signal comes, and of which command."""


def list_starts() -> list[Any]:
    """Either signal at every second moment in CI, over both transports, and both at each with `make soak`."""
    return [
        pytest.param(*sent, *moment, marks=[pytest.mark.soak] * ((at + turn) % 2))
        for turn, sent in enumerate([(signal.SIGTERM, 0), (signal.SIGINT, 130)])
        for at, moment in enumerate(STARTING)
    ]


@pytest.mark.parametrize(("number", "status", "imported", "words"), list_starts())
async def test_a_signal_ends_a_gateway_that_is_still_starting(
    tmp_path: Path, imported: str, words: list[str], number: signal.Signals, status: int
) -> None:
    """As it ends one that serves: a supervisor that changes its mind sees no failure, and nobody a traceback."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-m", "smart_mcp_proxy", *words),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRON | {"MCPPROXY_DATA_DIR": str(tmp_path / "data"), "MCPPROXY_CONFIG_JSON": "{}"},
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while (await process.stderr.readline()).decode().rpartition("|")[2].strip() != imported:
                assert not process.stderr.at_eof()
            process.send_signal(number)
            rest = await process.stderr.read()
            assert await process.wait() == status
        assert b"Traceback" not in rest
        assert not (tmp_path / "data").exists()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipes as well, now and not when collected


@SIGNALS
async def test_a_signal_lets_calls_end_and_refuses_new_ones(
    tmp_path: Path, small: SmallServer, number: signal.Signals, status: int
) -> None:
    """Whichever way a call takes through the gateway: also one that a person makes with `mcpproxy call`."""
    async with connected(tmp_path / "data", small) as client:
        socket_file = socket_path(tmp_path / "data", client.process.pid)
        transport = httpx2.AsyncHTTPTransport(uds=str(socket_file))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as rest:

            async def call(tool: str, text: str) -> httpx2.Response:
                return await rest.post("/api/v1/call", json={"name": tool, "arguments": {"text": text}})

            await until(socket_file.exists)  # the client is greeted before
            under_way = asyncio.create_task(call("up:wait", "by-rest"))
            await until(lambda: "by-rest" in small.waiting() or under_way.done())
            assert not under_way.done(), under_way.result().text
            waiting = [await begun(client, small, f"a-{path}", with_progress=path) for path in PATHS]
            client.process.send_signal(number)
            late = {"name": "up:echo", "args": {"text": "late"}}
            for path in PATHS:
                while not (
                    refused := await client.result(client.call("call_tool_write", late, with_progress=path))
                ).get("isError"):
                    pass
                assert (error_of(refused)["code"], error_of(refused)["delivery"]) == ("shutting_down", "not_sent")
            by_rest = await call("up:echo", "late")
            assert (by_rest.status_code, by_rest.json()["error"]["delivery"]) == (503, "not_sent")
            small.let_go("by-rest")
            assert text_of((await under_way).json()) == "said by-rest"
            for path, request_id in zip(PATHS, waiting, strict=True):
                small.let_go(f"a-{path}")
                assert text_of(await client.result(request_id)) == f"said a-{path}"
        assert (await client.ended(3.0))[0] == status
        assert not any(map(is_alive, small.pids()))
    assert "Traceback" not in log_of(tmp_path)


async def test_the_end_of_the_input_lets_every_request_end(tmp_path: Path, small: SmallServer) -> None:
    """A script writes all that it asks into the pipe, closes it, and reads: calls on both paths, lists, much text."""
    async with connected(tmp_path / "data", small) as client:
        waiting = [await begun(client, small, f"a-{path}", with_progress=path) for path in PATHS]
        last = {"name": "up:echo", "args": {"text": "b"}}
        lasts = [client.call("call_tool_write", last, with_progress=path) for path in PATHS]
        lists = [client.ask("tools/list", {}), client.ask("ping", {}), client.ask("tools/list", {})]
        text = "x" * 8_000_000
        large = client.call("call_tool_write", {"name": "up:echo", "args": {"text": text}})
        client.stdin.close()
        assert [text_of(await client.result(request_id)) for request_id in lasts] == ["said b"] * 2
        answers = [await client.result(request_id) for request_id in lists]
        assert all(answer["tools"] for answer in (answers[0], answers[2]))
        assert text_of(await client.result(large)) == f"said {text}"
        for path, request_id in zip(PATHS, waiting, strict=True):
            small.let_go(f"a-{path}")
            assert text_of(await client.result(request_id)) == f"said a-{path}"
        assert (await client.ended(3.0))[0] == 0
        assert not any(map(is_alive, small.pids()))
    assert "Traceback" not in log_of(tmp_path)


async def test_a_call_that_does_not_end_is_given_up(tmp_path: Path, small: SmallServer) -> None:
    """After ten seconds its client is told that it may have run, whichever way the call took."""
    async with connected(tmp_path / "data", small) as client:
        waiting = [await begun(client, small, f"never-{path}", with_progress=path) for path in PATHS]
        client.process.send_signal(signal.SIGTERM)
        for request_id in waiting:
            error = error_of(await client.result(request_id))
            assert (error["code"], error["delivery"]) == ("shutting_down", "unknown")
        assert (await client.ended(3.0))[0] == 0
        assert not any(map(is_alive, small.pids()))
    assert "2 calls did not end in time" in log_of(tmp_path)


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak), (signal.SIGINT, 130)]
)
async def test_a_second_signal_ends_at_once(
    tmp_path: Path, small: SmallServer, number: signal.Signals, status: int
) -> None:
    """Whatever is under way; the watchdog ends the children. Two of SIGTERM end a delay in test_leaving.py."""
    async with connected(tmp_path / "data", small) as client:
        await begun(client, small, "never")
        client.process.send_signal(signal.SIGTERM)
        late = {"name": "up:echo"}
        while not (await client.result(client.call("call_tool_write", late))).get("isError"):
            pass
        client.process.send_signal(number)
        assert (await client.ended(1.0))[0] == status
        await until(lambda: not any(map(is_alive, small.pids())), 5.0)


async def test_a_client_that_no_longer_reads_ends_it_without_a_storm(tmp_path: Path, small: SmallServer) -> None:
    """Writing fails once, the log says so once, and the exit status is 0."""
    async with connected(tmp_path / "data", small) as client:
        assert isinstance(client.process, ForkedProcess)
        client.process.close_stdout()
        for _ in range(20):
            client.call("retrieve_tools", {"query": "echo"})
        assert (await client.ended(3.0))[0] == 0
        assert not any(map(is_alive, small.pids()))
    assert "Traceback" not in log_of(tmp_path)
    assert log_of(tmp_path).count("the client is gone") == 1
    assert len(log_of(tmp_path)) < 4_000


# --- over HTTP


class HttpClient:
    """A client of the handshake era over streamable HTTP."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self._url = url
        self._client = client
        self._headers = {"accept": "application/json, text/event-stream"}
        self._last_id = 0

    async def greet(self) -> None:
        reply = await self._post({"id": 0, "method": "initialize", "params": HELLO})
        self._headers |= {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await self._post({"method": "notifications/initialized"})

    async def call(self, tool: str, arguments: dict[str, Any], *, with_progress: bool = False) -> dict[str, Any]:
        self._last_id += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if with_progress:
            params["_meta"] = {"progressToken": self._last_id}
        reply = await self._post({"id": self._last_id, "method": "tools/call", "params": params})
        lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith(("data: {", "{"))]
        result: dict[str, Any] = json.loads(lines[-1])["result"]
        return result

    def listening(self) -> Any:
        """The stream on which the gateway may speak up by itself."""
        return self._client.stream("GET", self._url, headers=self._headers)

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        return await self._client.post(self._url, json={"jsonrpc": "2.0", **message}, headers=self._headers)


@SIGNALS
async def test_http_calls_end_too(tmp_path: Path, small: SmallServer, number: signal.Signals, status: int) -> None:
    """The same over HTTP, on both paths; probes hear that it stops, and an open stream of a client does not matter."""
    try:
        async with (
            started(tmp_path / "data", {"up": small.entry}, "--http", "--port", "0", "--json") as process,
            httpx2.AsyncClient(trust_env=False, timeout=20) as http,
        ):
            assert process.stdout is not None
            url = httpx2.URL(json.loads(await process.stdout.readline())["url"])
            client = HttpClient(str(url), http)
            await client.greet()
            async with client.listening() as stream:  # clients keep one open for as long as they live
                assert stream.status_code == 200
                waiting = []
                for path in PATHS:
                    call = {"name": "up:wait", "args": {"text": f"a-{path}"}}
                    waiting.append(asyncio.ensure_future(client.call("call_tool_write", call, with_progress=path)))
                    await until(lambda path=path: f"a-{path}" in small.waiting())
                process.send_signal(number)
                late = {"name": "up:echo", "args": {"text": "late"}}
                for path in PATHS:
                    while not (refused := await client.call("call_tool_write", late, with_progress=path)).get(
                        "isError"
                    ):
                        pass
                    assert error_of(refused)["code"] == "shutting_down"
                reply = await http.get(url.copy_with(path="/readyz"))
                assert (reply.status_code, reply.json()["status"]) == (503, "stopping")
                for path, answer in zip(PATHS, waiting, strict=True):
                    small.let_go(f"a-{path}")
                    assert text_of(await answer) == f"said a-{path}"
                assert await asyncio.wait_for(process.wait(), 3.0) == status
            assert not any(map(is_alive, small.pids()))
    finally:
        end(small.pids())
    assert "Traceback" not in log_of(tmp_path)


# --- killed


@pytest.mark.parametrize("mode", [pytest.param("", marks=pytest.mark.soak), "obstinate"])
async def test_kill_9_leaves_no_child(tmp_path: Path, mode: str) -> None:
    """Neither one that ignores SIGTERM and the end of its input, nor what that one started."""
    small = SmallServer(tmp_path / "world", mode)
    async with connected(tmp_path / "data", small) as client:
        assert all(map(is_alive, small.pids()))
        client.process.kill()
        await until(lambda: not any(map(is_alive, small.pids())), 5.0)


def watchdogs_of(pid: int) -> list[int]:
    """The watchdog processes of a gateway."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = []
    for child in children:
        with suppress(FileNotFoundError):  # it has ended meanwhile
            if b"watchdog_child" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


async def test_a_killed_watchdog_is_replaced_by_one_that_knows_the_groups(tmp_path: Path) -> None:
    """The gateway serves on, and a kill -9 afterwards still leaves nothing."""
    small = SmallServer(tmp_path / "world", "obstinate")
    async with connected(tmp_path / "data", small) as client:
        gateway = client.process.pid
        (first,) = watchdogs_of(gateway)
        os.kill(first, signal.SIGKILL)
        await until(lambda: watchdogs_of(gateway) not in ([], [first]))
        assert all(map(is_alive, small.pids()))
        for _ in range(5):  # it is told the groups as soon as the gateway knows that it runs
            await client.covered()
        client.process.kill()
        await until(lambda: not any(map(is_alive, small.pids())))
    assert "the watchdog ended (exit code -9)" in log_of(tmp_path)
