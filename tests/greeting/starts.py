"""Gateway processes on stdio that are held up while they load."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.rehearsal import Rehearsal
from smart_mcp_proxy.greeting.eras import EVERY_ERA
from smart_mcp_proxy.greeting.record import GreetingRecord, default_answers
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

HERE = Path(__file__).parent
META = "io.modelcontextprotocol/"
CLIENT = {"name": "test", "version": "1"}
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientInfo": CLIENT, META + "clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
SEARCH = {"name": "retrieve_tools", "arguments": {"query": "light the lamp"}}
DEADLINE_S = 60
WITHOUT_GREETER = ("serve", "--port", "8000")
"""Words that start the same gateway, and that nobody is greeted early for."""


class Start:
    """One process, and what it said so far.

    Args:
        process: It.
        gate: A file that lets it go on.
    """

    def __init__(self, process: asyncio.subprocess.Process, gate: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.stdin, self._stdout = process.stdin, process.stdout
        self._gate = gate
        self._modules = gate.with_name(f"{gate.name}.modules")

    def send(self, method: str, request_id: Any = None, **params: Any) -> None:
        """One message; a notification without an id."""
        self.stdin.write(line(method, request_id, **params))

    async def reads(self) -> bytes:
        """Its next line; empty at the end."""
        return await self._stdout.readline()

    async def answers(self, *ids: Any) -> dict[Any, dict[str, Any]]:
        """The answers to these requests, in whatever order they come; nothing else may."""
        found: dict[Any, dict[str, Any]] = {}
        while found.keys() != set(ids):
            message = json.loads(await self.reads())
            assert message["id"] in ids and message["id"] not in found, message
            found[message["id"]] = message
        return found

    async def ended(self) -> int:
        """Its exit status, after the end of its output."""
        assert await self._stdout.read() == b""
        return await self.process.wait()

    async def held(self) -> list[str]:
        """The modules that it has imported, once it stands at the gate."""
        while not self._modules.exists():
            await asyncio.sleep(0.01)
        return self._modules.read_text().splitlines()

    def let_go(self) -> None:
        """Opens the gate."""
        self._gate.touch()

    def child(self) -> int:
        """The process that answers meanwhile."""
        (child,) = self.children()
        return child

    async def child_waits(self) -> None:
        """Returns once it has noted what it did: between an answer and its note it could be killed, and repeat it."""
        while Path(f"/proc/{self.child()}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            await anyio.lowlevel.checkpoint()

    def children(self) -> list[int]:
        """Its child processes: while it is held up, none but the one that answers meanwhile."""
        return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and self._is_parent_of(each)]

    def _is_parent_of(self, entry: Path) -> bool:
        try:
            return int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == self.process.pid
        except OSError:
            return False


def line(method: str, request_id: Any = None, **params: Any) -> bytes:
    """One message."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message | ({} if request_id is None else {"id": request_id})).encode() + b"\n"


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@asynccontextmanager
async def started(
    folder: Path, *words: str, held_at: str = "", config: str = "{}", **settings: str
) -> AsyncIterator[Start]:
    """A gateway on the data directory `folder/data`.

    Args:
        folder: Has the server file, too.
        words: The command line.
        held_at: The module before which it is held up, empty for none.
        config: What the server file holds, where there is none yet.
        settings: Without their prefix.
    """
    file, gate = folder / "servers.json", folder / "gate"
    if not file.exists():
        file.write_text(config)
    for left in folder.glob("gate*"):
        left.unlink()
    environ = environment(folder, **settings)
    if held_at:
        environ |= {"PYTHONPATH": str(HERE / "gate"), "GATE": str(gate), "GATE_AT": held_at}
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "smart_mcp_proxy", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environ,
            limit=2**24,
        )
    start = Start(process, gate)
    try:
        with anyio.fail_after(DEADLINE_S):
            yield start
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipes as well, now and not when collected


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """The variables of a gateway on the data directory `folder/data`."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("MCPPROXY_")}
    environ |= {"MCPPROXY_CONFIG_PATH": str(folder / "servers.json"), "MCPPROXY_DATA_DIR": str(folder / "data")}
    environ |= {"MCPPROXY_SHARED": "false", "MCPPROXY_ISOLATION": "none"}  # they have tests of their own
    return environ | {f"MCPPROXY_{name}": text for name, text in settings.items()}


def prepared(folder: Path) -> Path:
    """As if a gateway with default settings had been there once; returns the file of what it would say."""
    (folder / "servers.json").write_text("{}")
    record = GreetingRecord([], environment(folder))
    record.save(*default_answers(), EVERY_ERA)
    return Path(record.path)


async def rehearsed(folder: Path, words: Sequence[str], config: str, **settings: str) -> GreetingRecord:
    """As if a gateway with these words and settings had been there once, and had kept what it would say."""
    (folder / "servers.json").write_text(config)
    record, loaded = GreetingRecord([*words], environment(folder, **settings)), load_servers(config)
    passthrough = words[2] if "--passthrough" in words else None
    given: dict[str, Any] = {name.lower(): text for name, text in settings.items()}
    own = Settings(data_dir=folder / "data", **given)
    async with open_gateway(
        own, loaded.servers, profiles=loaded.profiles, environ={}, passthrough=passthrough
    ) as gateway:
        rehearsal = Rehearsal(gateway, is_whole=len(words) < 2)
        record.save(await rehearsal.answers(), rehearsal.name, gateway.stdio_eras)
    return record


async def recorded(folder: Path, config: str = "{}") -> Path:
    """Starts a gateway once and ends it when its servers are listed; returns the file of what it would say."""
    async with started(folder, config=config) as start:
        start.send("initialize", 1, **HELLO)
        await start.answers(1)
        states = {"unlisted"}
        while not states.isdisjoint({"unlisted", "connecting", "disconnected"}):
            start.send("tools/call", 2, **SEARCH)
            found = (await start.answers(2))[2]["result"]["structuredContent"]
            states = {row["state"] for row in found["not_covered"]}
        start.stdin.close()
        assert await start.ended() == 0
    (file,) = (folder / "data" / "run").glob("greeting-*.json")
    return file
