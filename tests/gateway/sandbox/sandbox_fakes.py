"""A sandbox with tools behind it that a script can call: small, real, and with a memory of what was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smart_mcp_proxy.errors import ProxyError, ToolNotFoundError
from smart_mcp_proxy.gateway.sandbox import Language, Ledger, Sandbox, Script
from smart_mcp_proxy.io.watchdog import Watchdog

MIB = 1 << 20
TIMEOUT_S = 20.0
"""Of scripts that are to end by themselves, on a machine that is busy with other things."""


@dataclass
class Tools:
    """Answers calls: `echo` says its arguments, `meet` too once eight run, the others are named for what they do.

    Attributes:
        asked: Every call in order.
        most: How many ran at the same time.
        hanging: Set when a call of `hang` has begun.
        cancelled: Calls of `hang` that were cancelled.
    """

    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    most: int = 0
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    _running: int = 0
    _meeting: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(8))

    async def __call__(self, name: str, args: Mapping[str, Any]) -> bytes:
        self.asked.append((name, args))
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            await asyncio.sleep(0)
            return await self._answer(name, args)
        finally:
            self._running -= 1

    async def _answer(self, name: str, args: Mapping[str, Any]) -> bytes:
        match name:
            case "meet":
                await self._meeting.wait()
                return result({"type": "text", "text": json.dumps(args)})
            case "echo":
                return result({"type": "text", "text": json.dumps(args)})
            case "say":
                return result({"type": "text", "text": args["text"]})
            case "shape":
                return result({"type": "text", "text": "see"}, structuredContent={"round": [1, None, "é"]})
            case "picture":
                return result({"type": "image", "data": "aGk=", "mimeType": "image/png"})
            case "fails":
                return result({"type": "text", "text": "the register is under water"}, isError=True)
            case "long":
                return result({"type": "text", "text": "x" * args["chars"]})
            case "hang":
                self.hanging.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
        raise ToolNotFoundError(f"No tool is named '{name}'.")


def result(*blocks: dict[str, Any], **more: Any) -> bytes:
    """A tool's result."""
    return json.dumps({"content": list(blocks), **more}).encode()


@dataclass
class Bench:
    """Runs scripts against `tools`.

    Attributes:
        sandbox: Where.
        tools: What they call.
        ledger: Of the script that was run last.
    """

    sandbox: Sandbox
    tools: Tools = field(default_factory=Tools)
    ledger: Ledger = field(default_factory=Ledger)
    output: str = ""

    async def run(self, language: Language, code: str, **limits: Any) -> Any:
        """What a script returns."""
        fields = {"input": {}, "timeout_s": TIMEOUT_S, "memory_bytes": 128 * MIB, "max_calls": 50} | limits
        self.ledger = Ledger()
        finished = await self.sandbox.run(Script(code, language, **fields), self.tools, self.ledger)
        self.output = finished.output
        return json.loads(bytes(finished.result))

    async def failure(self, language: Language, code: str, **limits: Any) -> ProxyError:
        """The error that a script ends with."""
        try:
            value = await self.run(language, code, **limits)
        except ProxyError as error:
            return error
        raise AssertionError(f"it ended well, with {value!r}")


@asynccontextmanager
async def opened_bench(parallel: int = 4) -> AsyncIterator[Bench]:
    """A bench; nothing of it is left at the end."""
    async with Watchdog() as watchdog, Sandbox(parallel, watchdog) as sandbox:
        yield Bench(sandbox)


def children_of(pid: int) -> list[int]:
    """The processes that descend from `pid` and run `launch.py`, a script's runtime or its interpreter."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            words = (stat.parent / "cmdline").read_bytes()
        except OSError:  # it ended while it was looked at
            continue
        if parent == pid and b"watchdog" not in words:
            found += [int(stat.parent.name), *children_of(int(stat.parent.name))]
    return found
