"""Sessions with child processes, over their stdin and stdout."""

import asyncio
from pathlib import Path
from typing import Final

from smart_mcp_proxy.errors import UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import StreamSession
from smart_mcp_proxy.upstream.protocol.codec import request_line
from smart_mcp_proxy.upstream.protocol.pending import next_request_id
from smart_mcp_proxy.upstream.protocol.session import LogLine, Revived
from smart_mcp_proxy.upstream.stdio.process import ChildProcess

_EXIT_NOTICE_S: Final = 0.2
"""After a pipe of it was closed, how long a server may take to have an exit code worth telling."""
_LAST_OUTPUT_S: Final = 0.2
"""After its exit, how long what it wrote may take to be read; a child of its own may hold the pipe open for ever."""
_STOPPED_S: Final = 3.0
"""How long a process that a signal has stopped may stay so once a call has timed out; another one is busy, perhaps, and
has the patience of a request."""
_LOOK_S: Final = 0.25
"""How often a silent server is looked at."""


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped and has not been continued; False where that cannot be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name stands in parentheses and may hold anything, parentheses included; the state follows it.
    return stat.rpartition(b")")[2].lstrip()[:1] == b"T"


async def open_stdio(opening: SessionOptions) -> "StdioSession":
    """Starts the server and agrees on an era with it.

    Raises:
        UpstreamError: It cannot be started, ends at once, or refuses both eras.
        UpstreamTimeoutError: It does not answer within `limits.init_s`.
    """
    deadline = asyncio.get_running_loop().time() + opening.config.limits.init_s
    session = await _spawn_session(opening)
    try:
        return await session.establish_session(opening.era, deadline)
    except UpstreamTimeoutError:
        raise  # it lived: another start would take as long
    except UpstreamError:
        # Some servers of the handshake era end when anything but `initialize` comes first: once more, without probe.
        if opening.era == "handshake" or not session.is_lost:
            raise
    session = await _spawn_session(opening)
    return await session.establish_session("handshake", deadline)


async def _spawn_session(opening: SessionOptions) -> "StdioSession":
    child = await ChildProcess.start(
        opening.config, opening.environ, lambda line: opening.on_event(LogLine(line)), opening.watchdog
    )
    return StdioSession(opening, child)


class StdioSession(StreamSession):
    """A session over a child's pipes.

    Args:
        opening: What it is opened from.
        child: The server's process, just started.
    """

    def __init__(self, opening: SessionOptions, child: ChildProcess) -> None:
        super().__init__(opening.config, opening.on_event, opening.max_message_bytes, opening.peer, child.put)
        self.folders = opening.folders()
        self._child = child
        child.offer(self._inbox.take)
        self._reader = spawn(self._read_all(), f"upstream-read-{self._server}")
        self._watcher = spawn(self._watch_exit(), f"upstream-exit-{self._server}")
        self._doubter: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StdioSession {self._server}, {self._child!r}, {len(self._pending)} calls>"

    async def close(self) -> None:
        """Ends the session and the server's whole process group; calls under way fail."""
        self._lose("was stopped")
        for task in (self._listener, self._doubter, self._watcher, self._reader):
            if task is not None:
                task.cancel()
        await self._child.close()

    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._child.write(line)
        except ConnectionError as exc:
            await self._lose_pipe("closed its input")
            raise self._build_lost_error(was_sent=False) from exc

    def _write_soon(self, line: bytes) -> None:
        self._child.write_soon(line)

    async def _read_all(self) -> None:
        await self._inbox.read(self._child.read)
        await self._lose_pipe("closed its output")

    async def _watch_exit(self) -> None:
        code = await self._child.wait()
        await asyncio.wait({self._reader}, timeout=_LAST_OUTPUT_S)
        self._lose("ended" if code is None else f"ended with {_exit_words(code)}")

    async def _lose_pipe(self, words: str) -> None:
        """Ends the session because a pipe is closed: mostly its server has just ended, which says more."""
        code = await self._child.wait(_EXIT_NOTICE_S)
        self._lose(words if code is None else f"ended with {_exit_words(code)}")

    def note_timeout(self, began_s: float) -> None:
        """Looks whether the server works at all, if it has said nothing since."""
        if self._inbox.heard_s < began_s and (self._doubter is None or self._doubter.done()):
            self._doubter = spawn(self._doubt(), f"upstream-doubt-{self._server}")

    async def _doubt(self) -> None:
        """End the session if the server stays silent: a stopped process never ends by itself."""
        silent_since_s, began_s = self._inbox.heard_s, self._loop.time()
        method = "ping" if self.era == "handshake" else "server/discover"
        params = {"_meta": self._envelope} if self.era == "modern" else {}
        self._child.write_soon(request_line(next_request_id(), method, params))
        while self._loop.time() - began_s < (_STOPPED_S if is_stopped(self._child.pid) else self.limits.patience_s):
            await asyncio.sleep(_LOOK_S)
            if self._inbox.heard_s != silent_since_s:
                self._on_event(Revived())
                return
        self._lose(f"does not even answer '{method}'")


def _exit_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
