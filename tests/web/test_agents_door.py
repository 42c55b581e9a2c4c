"""`/mcp` without a token, and processes of servers at it: one in a sandbox would call tools of those without."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from page_gateway import Opened, opened, settled_records, tool
from plain_http import plain_client
from test_operator_doors import PROGRAM, UPSTREAM

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.gateway.admin.doors import AgentCaller, OperatorDoors
from smart_mcp_proxy.io import server_processes
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.confinement.sandbox import find_way
from smart_mcp_proxy.web.stdio.joined import Hello, JoinService

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found in /proc"),
]
UNCONFINED: Mapping[str, Any] = {"isolation": "none"}
META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientInfo": {"name": "reaching", "version": "1"},
    f"{META}clientCapabilities": {},
}
ERAS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "handshake": (
        "initialize",
        {},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "reaching", "version": "1"}},
    ),
    "modern": (
        "tools/call",
        {"Mcp-Method": "tools/call", "Mcp-Name": "retrieve_tools", "MCP-Protocol-Version": "2026-07-28"},
        {"name": "retrieve_tools", "arguments": {"query": "a thing"}, "_meta": ENVELOPE},
    ),
}
"""The first message of each: method, fields of the head, parameters."""


class Agents(NamedTuple):
    """A gateway whose endpoint for agents asks for no token, and the server `reaching` that tries it.

    Attributes:
        there: The gateway.
        doors: As `reaching.py` takes them: the first message of each era.
    """

    there: Opened
    doors: tuple[str, ...]

    async def reach(self, *words: str) -> list[tuple[int, Any]]:
        """What a process of this machine is answered that no server started."""
        asked = await asyncio.create_subprocess_exec(*PROGRAM, *words, *self.doors, stdout=asyncio.subprocess.PIPE)
        return _read_answers((await asked.communicate())[0])

    async def let_server_reach(self, way: str) -> list[tuple[int, Any]]:
        """What a process is answered that the server started."""
        result = await self.there.gateway.requests.calls.call(CallRequest(f"reaching:{way}", {}, "write"))
        return _read_answers(json.loads(bytes(result.text))["content"][0]["text"])


def _read_answers(text: bytes | str) -> list[tuple[int, Any]]:
    return [(status, json.loads(body)) for status, body in json.loads(text)]


def _spell_door(base: str, era: str, **more: str) -> str:
    method, fields, params = ERAS[era]
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **fields, **more}
    lines = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    request = json.dumps(f"POST /mcp HTTP/1.1{lines}\r\n\r\n{body}")
    return f"{base.removeprefix('http://')} POST {request}"


@asynccontextmanager
async def serving_agents(folder: Path, held: Mapping[str, Any] = UNCONFINED) -> AsyncIterator[Agents]:
    """A gateway at which both eras are asked for, and its server, held like this."""
    doors = folder / "doors"
    doors.touch()
    others = {"reaching": {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(doors)], **held}}
    async with opened(folder, [tool("a")], others) as there:
        asked = tuple(_spell_door(there.base, era) for era in ERAS)
        doors.write_text("\n".join(asked) + "\n")
        yield Agents(there, asked)


@pytest.mark.long  # a third of a second of processor time
async def test_no_process_of_a_server_is_an_agent_without_a_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In neither era: neither itself nor what it starts, leaves behind, gives other variables, or confines."""
    async with serving_agents(tmp_path) as agents:
        for way in ("itself", "grandchild", "detached", "disguised", "confined"):
            for status, said in await agents.let_server_reach(way):
                error = said["error"]
                assert (status, error["data"]["code"]) == (403, "server_process"), way
                assert "mcpproxy token create" in error["data"]["hint"]
        told = [record.getMessage() for record in caplog.records if record.name.endswith(".doors")]
        assert len(told) == 2 and "'reaching'" in told[0], told  # by name and without, as where operators ask
        first = sorted(await settled_records(agents.there, "config", 2), key=lambda each: each["server"])[1]
        assert (first["outcome"], first["server"]) == ("server_process", "reaching")


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.skipif(find_way() is None, reason="this system has no sandbox")
@pytest.mark.parametrize("write", [[], ["/dev/shm"]], ids=["first choice", "bubblewrap where it is installed"])
async def test_a_server_in_a_sandbox_is_known_as_well(tmp_path: Path, write: list[str]) -> None:
    """Also what it leaves behind, although its network is open."""
    allow = {"read": [str(tmp_path / "doors")], "write": write}
    async with serving_agents(tmp_path, {"isolation": "sandbox", "allow": allow}) as agents:
        for way in ("itself", "grandchild", "disguised"):
            for status, said in await agents.let_server_reach(way):
                assert (status, said["error"]["data"]["code"]) == (403, "server_process"), way


@pytest.mark.long  # a third of a second of processor time
async def test_whoever_no_server_started_needs_no_token(tmp_path: Path) -> None:
    """The first time, and again when it is known; in a sandbox of its own as well."""
    async with serving_agents(tmp_path) as agents:
        for words in ((), (), ("--confined",)):
            assert [status for status, _ in await agents.reach(*words)] == [200, 200]


@pytest.mark.long  # a third of a second of processor time
async def test_a_token_lets_in_what_a_server_started(tmp_path: Path) -> None:
    """An agent that is a server may use its gateway, where its operator wants that."""
    async with serving_agents(tmp_path) as agents:
        made = await agents.there.gateway.admin.agent_tokens.create("in-server", Scope())
        doors = [_spell_door(agents.there.base, era, Authorization=f"Bearer {made.secret}") for era in ERAS]
        (tmp_path / "doors").write_text("\n".join(doors) + "\n")
        assert [status for status, _ in await agents.let_server_reach("grandchild")] == [200, 200]


@pytest.mark.parametrize(
    ("entry", "is_let_in"), [({"command": "docker", "args": ["run", "x"]}, False), ({"url": "http://h/mcp"}, True)]
)
async def test_clients_are_looked_at_where_a_command_makes_a_container(entry: dict[str, Any], is_let_in: bool) -> None:
    """Its own process is one of this machine; only where no server has any is everybody let in at once."""
    servers = {"s": parse_entry("s", entry)[0]}
    doors = OperatorDoors(running=dict, servers=lambda: servers, record=lambda _: None, clock=lambda: 0.0)
    assert doors.knows(("127.0.0.1", 1), ("127.0.0.1", 2)) is is_let_in


@pytest.mark.long  # a third of a second of processor time
async def test_a_client_is_looked_for_once_a_process_and_once_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next connections are known by it, and so are further requests by their connection."""
    async with serving_agents(tmp_path) as agents:
        looks: list[int] = []
        real = server_processes.ServerProcesses.find_holder

        def look(self: server_processes.ServerProcesses, inode: int, *more: Any) -> Any:
            looks.append(inode)
            return real(self, inode, *more)

        monkeypatch.setattr(server_processes.ServerProcesses, "find_holder", look)
        method, fields, params = ERAS["modern"]
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        head = {"Accept": "application/json, text/event-stream", **fields}
        async with plain_client() as client:
            for _ in range(2):
                answer = await client.post(f"{agents.there.base}/mcp", json=body, headers=head)
                assert (answer.status_code, len(looks)) == (200, 1)
        assert [status for status, _ in await agents.reach(*agents.doors)] == [200] * 4
        assert len(looks) == 2


@pytest.mark.long  # a third of a second of processor time
async def test_a_server_that_would_join_is_told_to_stay_alone(tmp_path: Path) -> None:
    """At the socket that clients on pipes share; whoever no server started is let in."""
    async with serving_agents(tmp_path) as agents:
        gateway = agents.there.gateway
        service = JoinService(gateway, {}, asyncio.Event(), lambda: False, None)
        here = {"version": __version__, "data_dir": service._data_dir, "source": service._source}
        hello = Hello(pid=0, directory=str(tmp_path), profile="", settings={}, **here)
        (server,) = [pid for pid, name in gateway.admin.doors.running().items() if name == "reaching"]
        for pid, is_refused in ((server, True), (os.getpid(), False)):
            stat = server_processes._read_stat(pid)
            assert stat is not None
            answer, _ = await service._decide(hello, server_processes.Peer(pid, os.getuid(), stat.started))
            assert (answer is not None and "'reaching'" in answer.get("alone", "")) == is_refused, answer


@pytest.mark.long  # a third of a second of processor time
async def test_health_is_told_to_servers_as_well(tmp_path: Path) -> None:
    """It says nothing that they should not know."""
    async with serving_agents(tmp_path) as agents:
        head = f"{agents.there.base.removeprefix('http://')} POST "
        (tmp_path / "doors").write_text(head + json.dumps("GET /healthz HTTP/1.1\r\nX: y\r\n\r\n") + "\n")
        assert await agents.let_server_reach("itself") == [(200, {"status": "ok"})]


@pytest.mark.long  # a third of a second of processor time
async def test_a_client_that_has_left_is_refused_untold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can say whose it was, and clients leave at any time; asked again, the answer is the same."""
    async with serving_agents(tmp_path) as agents:
        host, _, port = agents.there.base.removeprefix("http://").rpartition(":")
        caller = AgentCaller(agents.there.gateway.admin.doors, (host, 1), (host, int(port)))
        for _ in range(2):
            with pytest.raises(RefusedError, match="has ended"):
                await caller.check()
        assert not [each for each in caplog.records if each.name.endswith(".doors")]
