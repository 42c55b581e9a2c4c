"""The process of one script: only pipes, bounded reads, killed with all it started."""

import asyncio
import contextlib
import os
import signal
from asyncio import SubprocessTransport
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.io.lines import LineSplitter, OverlongLine
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.telemetry import spawn

LINE_BYTES: Final = 4 * 1024 * 1024
"""The longest message, either way: room for large arguments and results, and for those of all scripts together."""
_TRAFFIC_BYTES: Final = 8 * LINE_BYTES
"""Limit on what a process says; far more than any agent wants to read, and little for the gateway to look through."""
_ENVIRONMENT: Final = {"DENO_DIR": "/dev/null/none", "NO_COLOR": "1"}
"""All that a process finds. Deno keeps its caches and what scripts store in DENO_DIR, a folder that cannot exist."""
_CHUNK_BYTES: Final = 1 << 16
"""Read at a time: other work gets its turn between two chunks."""
_LAST_WORDS_BYTES: Final = 4096
_REAP_S: Final = 2.0


class ScriptProcess:
    """A running process.

    Args:
        transport: Of the process, started with pipes and as leader of its group.
        protocol: Its protocol.
    """

    def __init__(self, transport: SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        process = Process(transport, protocol, asyncio.get_running_loop())
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process, self._transport = process, transport
        self._stdin, self._stdout = process.stdin, process.stdout
        self._writing = asyncio.Lock()
        self.last_words = b""
        """The end of what it wrote to stderr."""
        self._draining = spawn(self._drain(process.stderr), f"script-stderr-{process.pid}")

    def __repr__(self) -> str:
        state = "running" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"<ScriptProcess pid {self.pid}, {state}>"

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield its output line by line until it closes.

        Raises:
            ValueError: It says more than a script may.
        """
        splitter, size_bytes = LineSplitter(LINE_BYTES), 0
        while chunk := await self._stdout.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > _TRAFFIC_BYTES:
                raise ValueError(f"more than {_TRAFFIC_BYTES >> 20} MiB in all")
            for line in splitter.feed(chunk):
                if isinstance(line, OverlongLine):
                    raise ValueError(f"a message of {line.size_bytes} bytes; at most {LINE_BYTES} are taken")
                yield line

    async def write(self, line: bytes) -> None:
        """Hands it one line; returns when the pipe has room again. Nothing happens once it has ended."""
        with contextlib.suppress(ConnectionError):
            async with self._writing:
                self._stdin.write(line)
                await self._stdin.drain()

    def kill(self) -> None:
        """Ends it at once, with everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or only zombies are left
            os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Returns when it has ended and its last words are read, or does not end after all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_S):
                await self._process.wait()
                await asyncio.wait({self._draining})
        self._draining.cancel()
        # A pipe with more in it than was read does not close by itself.
        self._transport.close()

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_CHUNK_BYTES):
            self.last_words = (self.last_words + chunk)[-_LAST_WORDS_BYTES:]


@asynccontextmanager
async def open_script_process(argv: Sequence[str], watchdog: Watchdog) -> AsyncIterator[ScriptProcess]:
    """Run a command without our environment in a process group; killed when the block ends.

    Raises:
        ProxyError: It cannot be started.
    """
    await watchdog.start()
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=_CHUNK_BYTES, loop=loop),
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
        )
    except OSError as exc:
        raise ProxyError(f"No process can be started for the script: {exc.strerror}.", code="code_failed") from exc
    running = ScriptProcess(transport, protocol)
    watchdog.watch(running.pid)
    try:
        yield running
    finally:
        running.kill()
        watchdog.release(running.pid)
        await running.wait()
