"""A user's desk: a home, a server file, clients that start `mcpproxy serve`, and what runs in the background."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from smart_mcp_proxy.desktop.places import shared_socket

SERVER = Path(__file__).parent / "desk_server.py"
PROGRAM = (sys.executable, "-m", "smart_mcp_proxy")
DEADLINE_S = 20.0
LINE_BYTES = 1 << 26
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "desk", "version": "1"}}
META = "io.modelcontextprotocol/"
ENVELOPE = {
    META + "protocolVersion": "2026-07-28",
    META + "clientInfo": HELLO["clientInfo"],
    META + "clientCapabilities": {},
}


async def until(is_true: Callable[[], Any], timeout_s: float = DEADLINE_S) -> None:
    """Returns when something outside this process has become true."""
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.01)


def read_environ(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty where it has ended."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (each.partition(b"=") for each in raw.split(b"\0") if each)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def read_words(pid: int) -> list[str]:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def read_status(pid: int) -> dict[str, str]:
    """The lines of a process's status by their names."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Sends a signal to processes that may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class DeskClient:
    """A client on the pipes of the process that it has started.

    Args:
        process: It.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout
        self.answers: dict[Any, list[dict[str, Any]]] = {}
        """By id; a request has one."""
        self.heard: list[dict[str, Any]] = []
        """Notifications and requests."""
        self.is_over = False
        self._last_id = 0
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """Of the door."""
        return self.process.pid

    def put(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any] | None = None, key: Any = None) -> Any:
        """Sends a request; returns its id."""
        self._last_id += 1
        key = self._last_id if key is None else key
        self.put({"id": key, "method": method, **({} if params is None else {"params": params})})
        return key

    def call(self, arguments: dict[str, Any], tool: str = "up:work", key: Any = None, **meta: Any) -> Any:
        """Sends a call of a server's tool; returns its id."""
        params: dict[str, Any] = {"name": "call_tool_read", "arguments": {"name": tool, "args": arguments}}
        return self.ask("tools/call", params | ({"_meta": meta} if meta else {}), key)

    def search(self, **meta: Any) -> Any:
        """Sends a search; returns its id."""
        params: dict[str, Any] = {"name": "retrieve_tools", "arguments": {"query": "work at the desk"}}
        return self.ask("tools/call", params | ({"_meta": meta} if meta else {}))

    async def answer(self, key: Any, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """The answer to a request."""
        await self._when(lambda: key in self.answers, timeout_s)
        return self.answers[key][0]

    async def hears(self, method: str) -> dict[str, Any]:
        """The first message with this method; it is taken from what was heard."""
        await self._when(lambda: any(each["method"] == method for each in self.heard), DEADLINE_S)
        found = next(each for each in self.heard if each["method"] == method)
        self.heard.remove(found)
        return found

    async def greet(self, **capabilities: Any) -> dict[str, Any]:
        """The handshake."""
        answer = await self.answer(self.ask("initialize", HELLO | {"capabilities": capabilities}))
        self.put({"method": "notifications/initialized"})
        return answer

    async def text(self, arguments: dict[str, Any] | None = None, tool: str = "up:work") -> str:
        """The text that a call is answered with, once its server is there."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.answer(self.call(arguments or {}, tool))
                result = answer.get("result", {"isError": True, "content": [{"text": ""}]})
                if not result.get("isError"):
                    text: str = result["content"][0]["text"]
                    return text
                await asyncio.sleep(0.02)

    async def leave(self) -> int:
        """Closes stdin; the exit status."""
        self.stdin.close()
        status: int = await asyncio.wait_for(self.process.wait(), DEADLINE_S)
        return status

    async def end(self) -> None:
        """Ends what is left."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self.stdin.close()

    async def _when(self, is_true: Callable[[], bool], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s), self._news:
            await self._news.wait_for(lambda: is_true() or self.is_over)
        assert is_true(), "the process ended before that"

    async def _read(self) -> None:
        try:
            while line := await self.stdout.readline():
                message = json.loads(line)
                async with self._news:
                    if "method" in message:
                        self.heard.append(message)
                    else:
                        self.answers.setdefault(message["id"], []).append(message)
                    self._news.notify_all()
        finally:
            async with self._news:
                self.is_over = True
                self._news.notify_all()


class Desk:
    """One user's files, and the processes that run on them.

    Args:
        folder: Empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.data_dir = folder / "data"
        for each in (self.home, self.data_dir):
            each.mkdir(parents=True, exist_ok=True)
        self.world = folder / "world"
        self.world.mkdir(exist_ok=True)
        self.server_file = self.data_dir / "mcp_config.json"
        self.write_servers(up=self.entry())

    def entry(self, *words: str, **more: Any) -> dict[str, Any]:
        """An entry of a server that notes in `world` what becomes of its calls."""
        return {"command": sys.executable, "args": ["-S", str(SERVER), str(self.world), *words], **more}

    def write_servers(self, file: Path | None = None, **servers: Any) -> Path:
        """Writes a server file, that of the data directory if no other is named."""
        file = file or self.server_file
        trusted = {name: {"trust": "trusted", **entry} for name, entry in servers.items()}
        file.write_text(json.dumps({"mcpServers": trusted}))
        return file

    def environ(self, **variables: str) -> dict[str, str]:
        """The environment of a client."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        own["MCPPROXY_ISOLATION"] = "none"  # tests/upstream/confinement has the sandbox
        return own | {"MCPPROXY_DATA_DIR": str(self.data_dir), "MCPPROXY_KEEP_ALIVE": "60"} | variables

    @property
    def socket(self) -> str:
        """Path at which clients of the data directory's server file meet."""
        return shared_socket(str(self.data_dir), os.path.realpath(self.server_file))

    @asynccontextmanager
    async def client(
        self, *words: str, cwd: Path | None = None, program: Sequence[str] = (*PROGRAM, "serve"), **variables: str
    ) -> AsyncIterator[DeskClient]:
        """A client whose door is killed at the end."""
        client = await self.start(*words, cwd=cwd, program=program, **variables)
        try:
            yield client
        finally:
            await client.end()

    async def start(
        self,
        *words: str,
        cwd: Path | None = None,
        program: Sequence[str] = (*PROGRAM, "serve"),
        kept: Sequence[int] = (),
        **variables: str,
    ) -> DeskClient:
        """A client; its stderr is added to `stderr`."""
        with (self.folder / "stderr").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *program,
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=cwd or self.home,
                env=self.environ(**variables),
                pass_fds=kept,
                limit=LINE_BYTES,
            )
        return DeskClient(process)

    @property
    def stderr(self) -> str:
        """What all clients' processes have written so far."""
        return (self.folder / "stderr").read_text()

    @property
    def log(self) -> str:
        """What gateways in the background have written."""
        files = [self.data_dir / "run" / name for name in ("background.log.old", "background.log")]
        return "".join(file.read_text() for file in files if file.exists())

    async def run(self, *words: str, **variables: str) -> tuple[int, str, str]:
        """Runs a command to its end: status, output, errors."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.home,
            env=self.environ(**variables),
        )
        said, complained = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert process.returncode is not None
        return process.returncode, said.decode(), complained.decode()

    def processes(self) -> list[int]:
        """All processes of this desk: clients' own, gateways, servers."""
        found = []
        for each in os.listdir("/proc"):
            if each.isdecimal() and read_environ(int(each)).get("HOME") == str(self.home):
                found.append(int(each))
        return found

    def gateways(self) -> list[int]:
        """The gateways in the background."""
        return [pid for pid in self.processes() if "--background" in read_words(pid)]

    def servers(self) -> list[int]:
        """The server processes."""
        return [pid for pid in self.processes() if str(SERVER) in read_words(pid)]

    async def gateway(self) -> int:
        """The one gateway in the background."""
        await until(lambda: len(self.gateways()) == 1)
        return self.gateways()[0]

    def notes(self, name: str) -> list[str]:
        """The lines that the servers have written to a file of the world."""
        path = self.world / name
        return path.read_text().split() if path.exists() else []

    def let_go(self, text: str) -> None:
        """Ends a call that waits."""
        (self.world / f"go-{text}").touch()

    async def close(self) -> list[str]:
        """Ends everything; the command lines of what did not end by itself."""
        kill(self.gateways(), signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await until(lambda: not self.processes(), 15)
        left = {pid: " ".join(read_words(pid)) for pid in self.processes()}
        kill(left)
        return list(left.values())


@asynccontextmanager
async def opened_desk(folder: Path) -> AsyncIterator[Desk]:
    """A desk at which nothing runs any more at the end."""
    desk = Desk(folder)
    try:
        yield desk
    finally:
        left = await desk.close()
    assert not left, left


async def gather_texts(clients: Iterable[DeskClient]) -> list[str]:
    """Has each of these clients call the server."""
    work: list[Awaitable[str]] = [each.text() for each in clients]
    return await asyncio.gather(*work)
