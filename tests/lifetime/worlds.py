"""A gateway process in front of a small server, and what can be seen of both from outside."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forked_programs import ForkedProcess

UPSTREAM = Path(__file__).parent / "upstream.py"
ENVIRON = {
    "MCPPROXY_SHARED": "false",  # tests/desktop has the gateway that clients share
    "MCPPROXY_EMBEDDER": "BM25",  # tests/gateway/test_vector_search.py has the default
    "MCPPROXY_ISOLATION": "none",  # tests/upstream/confinement has the sandbox
    "PATH": os.environ["PATH"],
    "HOME": os.environ.get("HOME", "/"),
    "LANG": "C.UTF-8",
}
DEADLINE_S = 60.0
LINE_BYTES = 1 << 24
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


async def until(is_true: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
    """Returns when something outside this process has become true."""
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.01)


async def until_so(is_true: Callable[[], Awaitable[bool]], timeout_s: float = DEADLINE_S) -> None:
    """As `until`, for what has to be asked for."""
    async with asyncio.timeout(timeout_s):
        while not await is_true():
            await asyncio.sleep(0.05)


def is_replaced(victim: int, workers: Collection[int]) -> bool:
    """Whether another process is in the place of a worker that was killed.

    Args:
        victim: Of two workers.
        workers: Those there are, all seen in one look: it may die between two.
    """
    return len(workers) == 2 and victim not in workers


def is_alive(pid: int) -> bool:
    """Whether this process runs; a dead one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False


def end(pids: Iterable[int], *words: str) -> None:
    """Ends what a failed test left.

    Args:
        pids: Of processes that may have ended; after a long test others have their numbers.
        words: One of them is in the command of each; by default the option that all servers here are started with.
    """
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if not set(words or ["-S"]).isdisjoint(command):
                os.kill(pid, signal.SIGKILL)


class SmallServer:
    """The directory that a small server lives in.

    Args:
        directory: Made here if it is not there.
        mode: Empty or `obstinate`.
    """

    def __init__(self, directory: Path, mode: str = "") -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self._mode = mode

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in a server file; its tools change as tests go on, and its user agrees to that."""
        command = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(self.directory), self._mode]}
        return {**command, "trust": "trusted"}

    def pids(self) -> list[int]:
        """All its processes so far."""
        return [int(line) for line in self._lines("pids")]

    def list_words(self, *words: str) -> None:
        """Lets it list other tools from now on, see `upstream.py`."""
        staged = self.directory / "tools.new"
        staged.write_text(" ".join(words))
        staged.replace(self.directory / "tools")

    def waiting(self) -> list[str]:
        """The calls of `wait` that have reached it."""
        return self._lines("waiting")

    def let_go(self, text: str) -> None:
        """Ends a call of `wait`."""
        (self.directory / f"go-{text}").touch()

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().split() if path.exists() else []


class Client:
    """A client of a gateway process on its pipes.

    Args:
        process: The gateway.
    """

    def __init__(self, process: "asyncio.subprocess.Process | ForkedProcess") -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self._stdout = process.stdout
        self._answers: dict[int, dict[str, Any]] = {}
        self._last_id = 0

    async def greet(self) -> None:
        """The handshake."""
        await self.answer(self.ask("initialize", HELLO))
        self._put({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> int:
        """Sends a request; returns its id."""
        self._last_id += 1
        self._put({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    def call(self, tool: str, arguments: dict[str, Any], *, with_progress: bool = False) -> int:
        """Sends a call of one of the gateway's tools; returns its id."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if with_progress:
            params["_meta"] = {"progressToken": f"token-{self._last_id}"}
        return self.ask("tools/call", params)

    async def answer(self, request_id: int) -> dict[str, Any]:
        """The answer to a request."""
        async with asyncio.timeout(DEADLINE_S):
            while request_id not in self._answers:
                line = await self._stdout.readline()
                assert line, "the gateway ended without an answer"
                message = json.loads(line)
                if "id" in message:
                    self._answers[message["id"]] = message
        return self._answers.pop(request_id)

    async def result(self, request_id: int) -> dict[str, Any]:
        """The result of a call."""
        message = await self.answer(request_id)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def search(self) -> dict[str, Any]:
        """The answer of `retrieve_tools`."""
        result = await self.result(self.call("retrieve_tools", {"query": "does echo", "limit": 20}))
        found: dict[str, Any] = result["structuredContent"]
        return found

    async def covered(self) -> None:
        """Returns when all servers are listed."""
        async with asyncio.timeout(DEADLINE_S):
            while (found := await self.search())["not_covered"] or not found["tools"]:
                await asyncio.sleep(0.01)

    async def ended(self, timeout_s: float = DEADLINE_S) -> tuple[int, float]:
        """Exit status, and seconds that the end took from now on."""
        began = time.monotonic()
        status = await asyncio.wait_for(self.process.wait(), timeout_s)
        return status, time.monotonic() - began

    def _put(self, message: dict[str, Any]) -> None:
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text_of(result: dict[str, Any]) -> str:
    """The first text of a result."""
    text: str = result["content"][0]["text"]
    return text


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    """The error that a result tells of."""
    error: dict[str, Any] = result["structuredContent"]["error"]
    return error


@asynccontextmanager
async def started(
    data_dir: Path, servers: dict[str, Any], *words: str, main: Sequence[str] = (), **settings: str
) -> AsyncIterator["asyncio.subprocess.Process | ForkedProcess"]:
    """A gateway process; its stderr is `log` beside the data directory.

    Args:
        data_dir: Of the gateway.
        servers: Entries by name.
        words: Options of `serve`.
        main: The program that Python is to run, one that runs the gateway changed; without one the gateway is a fork.
        settings: More settings.
    """
    variables = {"CONFIG_JSON": json.dumps({"mcpServers": servers}), "DATA_DIR": str(data_dir), **settings}
    env = ENVIRON | {f"MCPPROXY_{name}": value for name, value in variables.items()}
    process: asyncio.subprocess.Process | ForkedProcess
    with data_dir.with_name("log").open("ab") as log:
        if main:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *main, "serve", *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=env,
                limit=LINE_BYTES,
            )
        else:
            from forked_programs import start_forked  # here, as programs beside this file read it as well

            process = await start_forked("serve", *words, env=env, stderr=log, limit=LINE_BYTES)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def connected(data_dir: Path, small: SmallServer, **settings: str) -> AsyncIterator[Client]:
    """A client of a gateway process over stdio that has listed the server `up`."""
    try:
        async with started(data_dir, {"up": small.entry}, **settings) as process:
            client = Client(process)
            await client.greet()
            await client.covered()
            yield client
    finally:
        end(small.pids())
