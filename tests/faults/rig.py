"""A real gateway in front of a faulty server and a healthy neighbour, and a caller that measures both."""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modes import TOXICS, Mode, Place
from relay import CLEAN, Relay, opened_relay
from run_wire import look_at

from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import LOCAL, ProgressReport
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.serve import tune_process

PROGRAMS = Path(__file__).parent / "upstream"
LIMITS = {"init_s": 2, "list_s": 2, "call_s": 2, "call_max_s": 2}
CALL_S = LIMITS["call_s"]
SETTLE_S = 10.0
ENVIRON = {"PATH": os.environ["PATH"]}
PACE_S = 0.002
"""Pause between two calls of the neighbour: a steady trickle, not a load test; once they are enough, ten times this."""
VERSIONS = {"handshake": "2025-11-25", "modern": "2026-07-28"}


@dataclass(frozen=True)
class Answer:
    """What a call got.

    Attributes:
        outcome: `ok`, `tool_error` or an error code.
        delivery: Of an error, else empty.
        text: First text of a result, message of an error.
        seconds: From call to answer.
    """

    outcome: str
    delivery: str
    text: str
    seconds: float


class Faulty:
    """A server of `upstream/` whose faults can be switched on and off.

    Args:
        directory: Its world: control file, ledger, wire log.
        place: Transport and era.
    """

    def __init__(self, directory: Path, place: Place) -> None:
        directory.mkdir()
        self._directory = directory
        self._place = place
        self._process: asyncio.subprocess.Process | None = None
        self._relay: Relay | None = None
        self.ledger_file.touch()

    @property
    def ledger_file(self) -> Path:
        """One line for each call that was carried out."""
        return self._directory / "ledger"

    def executions(self, nonce: str) -> int:
        """How often the call with this nonce was carried out."""
        return self.ledger_file.read_text(encoding="utf-8").splitlines().count(nonce)

    def arrivals(self, nonce: str) -> int:
        """How often the call with this nonce was sent to it."""
        return sum(f'"{nonce}"' in entry["message"] for entry in self.wire())

    def look_at_wire(self) -> None:
        """Looks for headers that it was sent and are nothing to it."""
        for entry in self.wire():
            look_at({name: value for name, value in entry["headers"].items() if name != "verb"})

    def wire(self) -> list[dict[str, Any]]:
        """Everything it was sent: process id, headers, message."""
        return [json.loads(line) for line in (self._directory / "wire").read_text(encoding="utf-8").splitlines()]

    def switch(self, fault: str) -> None:
        """Switches `STAGE NAME` on, or everything off."""
        stage, _, name = fault.partition(" ")
        if self._relay is not None:
            self._relay.toxic = TOXICS[name] if stage == "net" else CLEAN
        staged = self._directory / "fault.new"
        staged.write_text("" if stage == "net" else fault, encoding="utf-8")
        staged.replace(self._directory / "fault")

    async def lift(self) -> None:
        """Switches everything off; an HTTP server that ended is started again on its port, as an operator would."""
        self.switch("")
        if self._process is not None and self._process.returncode is not None:
            await self._start(self._port())

    def _command(self) -> list[str]:
        program = PROGRAMS / f"on_{self._place.transport}.py"
        return [sys.executable, "-S", str(program), str(self._directory), self._place.era]

    def _port(self) -> int:
        return int((self._directory / "port").read_text())

    async def _start(self, port: int = 0) -> None:
        port_file = self._directory / "port"
        port_file.unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(*self._command(), str(port), env=ENVIRON)
        async with asyncio.timeout(SETTLE_S):
            while not port_file.exists():
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """Ends an HTTP server as kill -9 does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._process is not None:
            await self._process.wait()

    @asynccontextmanager
    async def opened(self, *, with_relay: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Its entry in a server file, for as long as it is there."""
        if self._place.transport == "stdio":
            command, *args = self._command()
            yield {"command": command, "args": args, "limits": LIMITS}
            return
        async with AsyncExitStack() as stack:
            stack.callback(self.look_at_wire)
            await self._start()
            stack.push_async_callback(self.kill)
            port = self._port()
            if with_relay:
                self._relay = await stack.enter_async_context(opened_relay(port))
                port = self._relay.port
            path = "sse" if self._place.transport == "sse" else "mcp"
            yield {"url": f"http://127.0.0.1:{port}/{path}", "limits": LIMITS}


class Rig:
    """The gateway with both servers.

    Args:
        gateway: Open and settled.
        faulty: Under test.
        era: Protocol era in which the caller speaks.
    """

    def __init__(self, gateway: Gateway, faulty: Faulty, era: str) -> None:
        self.gateway = gateway
        self.faulty = faulty
        self.reports: list[ProgressReport] = []
        self._era: Any = era
        self._calls = 0

    def nonce(self) -> str:
        """A text that no other call of this rig carries."""
        self._calls += 1
        return f"nonce-{self._calls}"

    async def call(self, nonce: str, mode: Mode | None = None, *, tool: str = "faulty:effect") -> Answer:
        """One call of the faulty server through the SDK's path, so that results are read too."""
        arguments = {"nonce": nonce, **(mode.arguments if mode else {})}
        params = {"name": "call_tool_write", "arguments": {"name": tool, "args": arguments}}
        progress = self._note if mode is not None and mode.with_progress else None
        inbound = Inbound(params, {}, self._era, VERSIONS[self._era], LOCAL, progress)
        began = time.monotonic()
        result = await self.gateway.agent.call_tool(inbound)
        seconds = time.monotonic() - began
        structured = result.get("structuredContent")
        error = structured.get("error") if result.get("isError") and isinstance(structured, dict) else None
        if isinstance(error, dict):
            assert error["message"], error
            return Answer(error["code"], error["delivery"], error["message"], seconds)
        return Answer("tool_error" if result.get("isError") is True else "ok", "", json.dumps(result), seconds)

    async def _note(self, report: ProgressReport) -> None:
        self.reports.append(report)

    async def neighbour(self, count: int, busy: "asyncio.Task[Any] | None" = None) -> list[float]:
        """Seconds that calls of the healthy server take: `count` of them, and on for as long as `busy` runs."""
        caller = Caller("local", {}, None)
        arguments = {"name": "neighbour:echo", "args": {"nonce": "good"}}
        taken: list[float] = []
        while len(taken) < count or (busy is not None and not busy.done()):
            began = time.perf_counter()
            raw = await self.gateway.agent.answer(
                self.gateway.agent.require_tools("", LOCAL).call, "call_tool_write", arguments, caller, self._era
            )
            taken.append(time.perf_counter() - began)
            assert b"recorded good" in raw.text, raw.text[:500]
            await asyncio.sleep(PACE_S if len(taken) < count else 10 * PACE_S)
        return taken

    async def reconnect(self) -> None:
        """Lets the gateway meet the faulty server anew."""
        upstream = self.gateway.upstreams.fleet.upstreams.get("faulty")
        assert upstream is not None
        await upstream.restart()

    async def settle(self) -> None:
        """Waits until both servers are listed or have failed."""
        assert await self.gateway.wait_settled(SETTLE_S), self.gateway.status()


def percentile_95(taken: list[float]) -> float:
    """The value that 95 % of `taken` do not exceed."""
    return sorted(taken)[int(len(taken) * 0.95)]


@asynccontextmanager
async def settled() -> AsyncIterator[None]:
    """While open, memory and threads are arranged as in the gateway's own process."""
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    try:
        async with tune_process():
            yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        sys.setswitchinterval(switch_s)


@asynccontextmanager
async def opened_rig(directory: Path, place: Place, *, with_relay: bool = False) -> AsyncIterator[Rig]:
    """A rig in which everything is healthy and listed."""
    faulty = Faulty(directory / "faulty", place)
    neighbour = Faulty(directory / "neighbour", Place("stdio", "handshake"))
    async with faulty.opened(with_relay=with_relay) as entry, neighbour.opened() as other:
        loaded = load_servers(json.dumps({"mcpServers": {"faulty": entry, "neighbour": other}}))
        assert not loaded.problems, loaded.problems
        # Some faults lie in what is listed: it must come through to be met.
        settings = Settings(data_dir=directory / "data", trust="trusted")
        async with open_gateway(settings, loaded.servers, environ=ENVIRON) as gateway:
            gateway.start_upstreams()
            rig = Rig(gateway, faulty, place.era)
            await rig.settle()
            async with settled():
                yield rig
