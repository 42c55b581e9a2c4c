"""A session with a server on stdio that shows its messages as they are: libraries drop fields that they do not know."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

PROTOCOL = "2025-11-25"
LINE_BYTES = 64 * 1024 * 1024
PATIENCE_S = 10.0
"""Seconds that a server gets to end after its input has, and after SIGTERM."""
PROC = Path("/proc")


class RefusedRequestError(Exception):
    """A server's JSON-RPC error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(error, sort_keys=True))


class EndedError(Exception):
    """A server that has ended before it answered."""


class RawSession:
    """A process that speaks MCP, its messages, and how it ended.

    Attributes:
        other_lines: Lines on its output that are no JSON objects.
        asked: Requests that it has made, with their number.
        ending: What made it end, and after how many seconds.
    """

    def __init__(self, argv: tuple[str, ...], environ: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._argv, self._environ, self._cwd, self._log = argv, dict(environ), cwd, log
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self.other_lines: list[str] = []
        self.asked: dict[str, int] = {}
        self.ending: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self._environ}
        pipe = asyncio.subprocess.PIPE
        with self._log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                env=environ,
                cwd=self._cwd,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        started = time.monotonic()
        was_running = self.process.returncode is None
        how = "end of input" if was_running else "by itself"
        assert self.process.stdin
        self.process.stdin.close()
        for stop in (signal.SIGTERM, signal.SIGKILL):
            if await self._has_ended():
                break
            how = stop.name
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, stop)
        await self.process.wait()
        self.ending = {"by": how, "seconds": round(time.monotonic() - started, 1), "code": self.process.returncode}
        self._reading.cancel()

    async def _has_ended(self) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        return self.process.returncode is not None

    async def initialize(self, limit_s: float) -> dict[str, Any]:
        """Begin the session; the server's answer."""
        asked = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "published-servers", "version": "1"},
        }
        answer = await self.request("initialize", asked, limit_s)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def request(self, method: str, params: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Ask the server and wait for its answer.

        Raises:
            RefusedRequestError: It answered with an error.
            EndedError: It ended instead.
            TimeoutError: It did not answer in time.
        """
        self._number += 1
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        message = await asyncio.wait_for(future, limit_s)
        if "error" in message:
            raise RefusedRequestError(message["error"])
        result: dict[str, Any] = message["result"]
        return result

    async def list_tools(self, limit_s: float) -> list[dict[str, Any]]:
        """All pages of the list."""
        tools: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            page = await self.request("tools/list", params, limit_s)
            tools += page.get("tools") or []
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    async def call(self, name: str, arguments: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """A tool's result, or the error that came in its place under `error`."""
        try:
            return await self.request("tools/call", {"name": name, "arguments": arguments}, limit_s)
        except RefusedRequestError as error:
            return {"error": json.loads(str(error))}
        except (TimeoutError, EndedError) as error:
            return {"error": type(error).__name__}

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            await self.process.stdin.drain()

    async def _read(self) -> None:
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                self.other_lines.append(line.decode("utf-8", "replace").rstrip()[:200])
            elif "method" not in message:
                waiting = self._waiting.get(message.get("id") or 0)
                if waiting and not waiting.done():
                    waiting.set_result(message)
            elif "id" in message:
                await self._answer(message)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EndedError("The server has ended."))

    async def _answer(self, message: Mapping[str, Any]) -> None:
        method = str(message["method"])
        self.asked[method] = self.asked.get(method, 0) + 1
        refusal = {"code": -32601, "message": "Method not found"}
        answer: dict[str, Any] = {"result": {}} if method == "ping" else {"error": refusal}
        await self._send({"jsonrpc": "2.0", "id": message["id"], **answer})


def find_processes(mark: str) -> dict[int, str]:
    """Processes that carry a server's mark, with their names."""
    wanted = f"PUBLISHED_SERVER={mark}\0".encode()
    found = {}
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes() + b"\0":
                found[int(folder.name)] = (folder / "comm").read_text("utf-8").strip()
    return found


async def count_left(mark: str) -> list[str]:
    """Names of the processes that a server has left; they are ended."""
    left = find_processes(mark)
    deadline = time.monotonic() + 2
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        left = find_processes(mark)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return sorted(left.values())
