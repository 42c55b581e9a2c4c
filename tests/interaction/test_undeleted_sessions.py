"""Sessions whose clients went without a word: when one ends, all that was kept for it is freed, not only forgotten."""

import asyncio
import gc
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anyio
import pytest
from living import living
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from transports import ENVIRON, odd_server, over_http, served, settled

from smart_mcp_proxy.fastmcp_compat.http import sessions as http_sessions
from smart_mcp_proxy.fastmcp_compat.http.sessions import EventStream, HttpSession
from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient, HandshakeClient
from smart_mcp_proxy.gateway.sessions.tool_surface import PooledTools
from smart_mcp_proxy.gateway.shared.sessions import Session

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("sessions-freed")]

OPEN = 3
ENDED = 20
KEPT = (
    HttpSession,
    Session,
    HandshakeClient,
    CheckedClient,
    Connection,
    ServerRunner,
    JSONRPCDispatcher,
    PooledTools,
    EventStream,
)
"""Classes of what is kept for a session."""
YOUNGEST, MIDDLE = 0, 1
"""Generations of the collector."""
LIMIT_S = 30
WARM_UP_SESSIONS, SESSIONS = 5_000, 20_000
GROWTH_LIMIT_KB = 10_000
PAUSE_LIMIT_MS = 20
GATEWAY = Path(__file__).parent / "timed_gateway.py"
HEAD = (
    "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    "accept: application/json, text/event-stream\r\n{session}content-length: {length}\r\n\r\n"
)
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def alive() -> Counter[str]:
    """How many objects there are of each class that a session has one of."""
    return Counter(type(each).__name__ for each in living(KEPT))


@contextmanager
def without_collector() -> Iterator[None]:
    """While open, what has grown old is freed only because nothing refers to it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def visit(base: str, *, does_listen: bool) -> None:
    """A client that lists, searches, calls, listens if it does, and goes without ending its session."""
    async with over_http(base, "handshake") as agent:
        await agent.request("tools/list")
        await agent.call("retrieve_tools", query="look")
        for _ in range(2):  # the second call takes the short way
            await agent.call("call_tool_read", name="new:look", args={})
        hearing = asyncio.create_task(anext(agent.hear())) if does_listen else None
        await agent.request("ping")
        gc.collect(MIDDLE)  # the session grows old
        if hearing is not None:
            hearing.cancel()
            await asyncio.wait([hearing])


@pytest.mark.long
@pytest.mark.parametrize("routing", ["CALL_TOOL", "DYNAMIC"])
@pytest.mark.parametrize("does_listen", [False, True])
async def test_an_ended_session_is_freed_without_a_collection(
    tmp_path: Path, routing: str, does_listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of its objects are alive as sessions are open, however many there were."""
    monkeypatch.setattr(http_sessions, "IDLE_S", 0.0)
    gc.collect()
    elsewhere = WeakSet(
        living({HttpSession})
    )  # of gateways that other tests of this process keep open; some may end meanwhile
    async with (
        settled(tmp_path, {"new": odd_server("modern")}, routing_type=routing, max_sessions=OPEN) as gateway,
        served(gateway) as base,
    ):
        for _ in range(OPEN + 1):
            await visit(base, does_listen=does_listen)
        with without_collector(), anyio.fail_after(LIMIT_S):
            before, own = alive(), sum(each not in elsewhere for each in living({HttpSession}))
            for _ in range(ENDED):
                await visit(base, does_listen=does_listen)
            gc.collect(YOUNGEST)  # a cancelled task leaves a circle of its traceback, which is as young as its end
            while alive() - before:
                await asyncio.sleep(0.01)
        assert own in (OPEN, OPEN + 1)


class Endpoint:
    """A client that opens session after session, each on a connection of its own.

    Args:
        port: The gateway's.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def visit(self) -> None:
        """Opens a session, calls once, and leaves it behind."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            head, _ = self._post(connection, "", id=1, method="initialize", params=HELLO)
            found = re.search(rb"(?i)mcp-session-id: (\S+)", head)
            assert found is not None
            session = f"mcp-session-id: {found[1].decode()}\r\nmcp-protocol-version: 2025-11-25\r\n"
            self._post(connection, session, method="notifications/initialized")
            self._post(connection, session, id=2, method="tools/list")
            call = {"name": "call_tool_read", "arguments": {"name": "new:look", "args": {}}}
            _, answer = self._post(connection, session, id=3, method="tools/call", params=call)
            assert b'"result"' in answer

    def _post(self, connection: socket.socket, session: str, **message: Any) -> tuple[bytes, bytes]:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        connection.sendall(HEAD.format(session=session, length=len(body)).encode() + body)
        said = b""
        while b"\r\n\r\n" not in said:
            said += connection.recv(65_536)
        head, _, answer = said.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length is not None and len(answer) < int(length[1]):
            answer += connection.recv(65_536)
        return head, answer


def resident_kb(pid: int) -> int:
    """Memory of the gateway's process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    assert found is not None
    return int(found[1])


@asynccontextmanager
async def gateway_process(folder: Path) -> AsyncIterator[tuple[int, int, Path]]:
    """A gateway process that serves HTTP: its id, its port, and where it says how long its collections took."""
    (folder / "mcp_config.json").write_text(
        json.dumps({"mcpServers": {"new": {**odd_server("modern"), "trust": "trusted"}}})
    )
    pauses = folder / "pauses.json"
    command = [sys.executable, str(GATEWAY), str(pauses), "serve", "--http", "--port", "0", "--json"]
    environ = ENVIRON | {"MCPPROXY_DATA_DIR": str(folder / "data"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while (found := re.search(r'"url": *"http://127\.0\.0\.1:(\d+)', said)) is None:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield process.pid, int(found[1]), pauses
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@pytest.mark.soak
async def test_twenty_five_thousand_undeleted_sessions_take_bounded_memory(tmp_path: Path) -> None:
    """After the first 5,000 the next 20,000 add at most 10 MB, and no collection takes longer than 20 ms.

    Of processor time: what else runs on the machine is not the collector's doing.
    """
    async with gateway_process(tmp_path) as (pid, port, pauses):
        endpoint, sizes_kb = Endpoint(port), [resident_kb(pid)]
        for number in range(1, WARM_UP_SESSIONS + SESSIONS + 1):
            endpoint.visit()
            if number % WARM_UP_SESSIONS == 0:
                sizes_kb.append(resident_kb(pid))
        await asyncio.sleep(5)  # idle, it collects thoroughly
    longest = json.loads(pauses.read_text())
    grown_kb = sizes_kb[-1] - sizes_kb[1]
    print(f"\nmemory by 5,000 sessions {sizes_kb} KB, grown {grown_kb} KB; collections by generation {longest}")
    assert grown_kb < GROWTH_LIMIT_KB
    assert max(each["cpu_ms"] for each in longest) < PAUSE_LIMIT_MS
    assert longest[2]["times"], "not idle"
