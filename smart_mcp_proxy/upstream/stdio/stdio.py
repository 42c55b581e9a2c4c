"""Sessions with child processes, over their stdin and stdout."""

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
from asyncio import SubprocessTransport
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from smart_mcp_proxy.errors import UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.io.lines import LineSink, LineSplitter, OfferingReader, OverlongLine
from smart_mcp_proxy.io.open_files import OPEN_FILES_HINT, why_none_left
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import await_shielded, spawn
from smart_mcp_proxy.upstream.confinement.container import plan_container, remove_container
from smart_mcp_proxy.upstream.confinement.host_proxy import open_hosts
from smart_mcp_proxy.upstream.confinement.limits import limit_command
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.confinement.sandbox import start_in_sandbox
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import StreamSession
from smart_mcp_proxy.upstream.protocol.codec import request_line
from smart_mcp_proxy.upstream.protocol.pending import next_request_id
from smart_mcp_proxy.upstream.protocol.session import STOPPED, LogLine, Revived
from smart_mcp_proxy.upstream.stdio.inheritance import child_environment

_CHUNK_BYTES = 1 << 18
_STDERR_LINE_BYTES = 4_096
_EOF_GRACE_S = 1.0
"""Seconds that a server may take to end by itself once its input is closed."""
_TERM_GRACE_S = 1.0
"""Seconds that a server may take to end after SIGTERM."""
_REAP_S = 2.0
_LAST_WORDS_S = 0.2
_INSTALL = {
    **dict.fromkeys(("node", "npm", "npx"), "Install Node.js"),
    **dict.fromkeys(("uv", "uvx"), "Install uv (pip install uv)"),
    "docker": "Install Docker",
}
"""Advice for programs that start servers and come with something of another name."""
_WINDOWS_PATH = r"(?i)[A-Za-z]:[\\/]|%\w+%|\.{0,2}\\|.*\\.*\.(?:exe|cmd|bat|ps1)$"
"""Paths as Windows writes them."""
_WINDOWS_ENDS = (".exe", ".cmd", ".bat", ".ps1")

_EXIT_NOTICE_S: Final = 0.2
"""After a pipe of it was closed, how long a server may take to have an exit code worth telling."""
_LAST_OUTPUT_S: Final = 0.2
"""After its exit, how long what it wrote may take to be read; a child of its own may hold the pipe open for ever."""
_STOPPED_S: Final = 3.0
"""Seconds that a process that a signal has stopped may stay so once a call has timed out; a running one is busy,
perhaps, and has the patience of a request."""
_LOOK_S: Final = 0.25
"""Seconds between two looks at a silent server."""


class _Notices(SubprocessStreamProtocol):
    """Reports the exit itself: `Process.wait()` also waits for pipes that grandchildren hold.

    Attributes:
        exited: Set then.
        output: What it writes to stdout.
        removal: Command that ends its container; empty without one.
    """

    removal: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK_BYTES, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()
        self.output = OfferingReader(_CHUNK_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        assert isinstance(self.stdout, asyncio.StreamReader)
        self.output.set_transport(transport.get_pipe_transport(1))  # type: ignore[attr-defined]  # of a subprocess
        self.stdout = self.output

    def process_exited(self) -> None:
        """Called by the event loop."""
        super().process_exited()
        self.exited.set()


class ChildProcess:
    """A running server in a process group of its own.

    Args:
        transport: Of the process, started with pipes and as leader of its group.
        notices: Its protocol.
        on_stderr: Told of every line it writes to stderr.
        watchdog: Ends its group if we are killed.
    """

    def __init__(
        self,
        transport: SubprocessTransport,
        notices: _Notices,
        on_stderr: Callable[[str], None],
        watchdog: Watchdog | None = None,
    ) -> None:
        process = Process(transport, notices, asyncio.get_running_loop())
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process, self._transport = process, transport
        self._notices = notices
        self._watchdog = watchdog
        self._stdin = LineSink(process.stdin)
        self._stdout = process.stdout
        self._write_lock = asyncio.Lock()
        self._stderr_task = spawn(_drain(process.stderr, on_stderr), f"upstream-stderr-{process.pid}")

    def __repr__(self) -> str:
        state = "running" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"<ChildProcess pid {self.pid}, {state}>"

    @classmethod
    async def start(
        cls,
        config: ServerConfig,
        environ: Mapping[str, str],
        on_stderr: Callable[[str], None],
        watchdog: Watchdog | None = None,
        shelter: Shelter | None = None,
    ) -> "ChildProcess":
        """Starts the server's command.

        Args:
            config: The server, expanded.
            environ: The gateway's environment.
            on_stderr: Told of every line it writes to stderr.
            watchdog: Ends its group if we are killed.
            shelter: Keeps folders for confined servers.

        Raises:
            UpstreamError: It cannot be started; the message says what is missing.
        """
        if watchdog is None:
            return cls(*await _begin(config, environ, {}, shelter, on_stderr), on_stderr)
        await watchdog.start()
        async with watchdog.announce_child(config.name) as mark:
            transport, notices = await _begin(config, environ, mark, shelter, on_stderr)
            watchdog.watch(transport.get_pid(), config.name, notices.removal)
        return cls(transport, notices, on_stderr, watchdog)

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def read(self) -> bytes:
        """Return the next unread bytes of stdout; empty at the end."""
        return await self._stdout.read(_CHUNK_BYTES)

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """Has what it writes to stdout offered to `take` as it arrives; see `OfferingReader`."""
        self._notices.output.take = take

    async def write(self, line: bytes) -> None:
        """Hands one line to the pipe, whole, once the lines before it have mostly left.

        Raises:
            ConnectionError: The pipe is closed; nothing of `line` was written.
        """
        async with self._write_lock:
            await self._stdin.drain()
            if self._is_closed:
                raise ConnectionResetError("stdin is closed")
            self._stdin.write(line)

    def put(self, line: bytes) -> bool:
        """Hands one line to the pipe, whole; False where that has to be done with `write`.

        Lines before it have yet to leave, or the pipe is closed.
        """
        if self._write_lock.locked() or self._stdin.backlog_bytes or self._is_closed:
            return False
        self._stdin.write(line)
        return True

    @property
    def _is_closed(self) -> bool:
        return self._stdin.is_closing or self.exit_code is not None

    def write_soon(self, line: bytes) -> None:
        """Hands one small line to the pipe without waiting; it is dropped when the server has stopped reading."""
        if not self._stdin.is_closing and self._stdin.backlog_bytes < _CHUNK_BYTES:
            self._stdin.write(line)

    async def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, or None if it is still running after `timeout_s` (None: however long it takes)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._notices.exited.wait()
        return self.exit_code

    async def close(self) -> None:
        """Ends it: closed input first, then SIGTERM, then SIGKILL, the last always and to the whole group."""
        try:
            self._stdin.close()
            if await self.wait(_EOF_GRACE_S) is None:
                self._signal_group(signal.SIGTERM)
                await self.wait(_TERM_GRACE_S)
        finally:
            # Also after a clean exit: what the server started may have outlived it.
            self._signal_group(signal.SIGKILL)
            removing = spawn(remove_container(self._notices.removal), f"remove-container-{self.pid}")
            if self._watchdog is not None:
                self._watchdog.release(self.pid)
            # Also where whoever closes it is cancelled: it is killed, so this takes no time.
            await self._reap()
            await await_shielded(removing)

    async def _reap(self) -> None:
        """Takes what is left of a killed process."""
        try:
            await self.wait(_REAP_S)
            # What it said last is still in the pipe; something that left its group may hold the pipe open.
            await asyncio.wait({self._stderr_task}, timeout=_LAST_WORDS_S)
        finally:
            self._stderr_task.cancel()
            # A pipe with more in it than was read, or that something outside the group holds, does not close by itself.
            self._transport.close()
        await asyncio.wait({self._stderr_task})

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty, or only zombies are left
            os.killpg(self.pid, number)


async def _begin(
    config: ServerConfig,
    environ: Mapping[str, str],
    mark: Mapping[str, str],
    shelter: Shelter | None,
    tell: Callable[[str], None],
) -> tuple[SubprocessTransport, _Notices]:
    """Transport and protocol of the process of a server's command.

    Nothing of it is left where this is cancelled.
    """
    # A task of its own: asyncio waits for ever, or keeps pipes, where a start is cancelled while these are connected.
    starting = spawn(_run_command(config, environ, mark, shelter, tell), f"start-{config.name}", is_awaited=True)
    try:
        return await await_shielded(starting)
    except asyncio.CancelledError:
        await asyncio.wait({spawn(_end_unwanted(starting), "end-unwanted")}, timeout=_REAP_S)
        raise


async def _end_unwanted(starting: "asyncio.Task[tuple[SubprocessTransport, _Notices]]") -> None:
    with contextlib.suppress(UpstreamError):  # it could not be started
        transport, notices = await await_shielded(starting)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        transport.close()
        # The exit is awaited: a loop that closes before would leave the process unreaped.
        await asyncio.gather(notices.exited.wait(), remove_container(notices.removal))


async def _run_command(
    config: ServerConfig,
    environ: Mapping[str, str],
    mark: Mapping[str, str],
    shelter: Shelter | None,
    tell: Callable[[str], None],
) -> tuple[SubprocessTransport, _Notices]:
    proxy = open_hosts(config, environ, tell)
    env = {**child_environment(environ, config.env), **mark}
    try:
        if config.isolation.mode == "container":
            container = await plan_container(config, env, environ, shelter)
            transport, notices = await _execute(container.command, container.variables, None)
            notices.removal = container.removal
            return transport, notices
        command = limit_command(config, env.get("PATH"))
        if config.isolation.mode == "sandbox":
            return await start_in_sandbox(_Notices, config, command, env, shelter, proxy)
        return await _execute(command, env, config.cwd or None)
    except (OSError, ValueError) as exc:
        raise _start_error(config, exc) from exc


async def _execute(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> tuple[SubprocessTransport, _Notices]:
    return await asyncio.get_running_loop().subprocess_exec(
        _Notices, *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
    )


async def _drain(stderr: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    """Reads stderr to its end, so that the server never blocks on it."""
    splitter = LineSplitter(_STDERR_LINE_BYTES)
    while chunk := await stderr.read(_CHUNK_BYTES):
        for line in splitter.feed(chunk):
            on_line(_log_text(line))
    for line in splitter.feed(b"\n"):  # often the reason of the end is a last line without its own
        if line:
            on_line(_log_text(line))


def _log_text(line: bytes | OverlongLine) -> str:
    text = line.head + b" ..." if isinstance(line, OverlongLine) else line
    return text.decode(errors="replace")


def _several_words(config: ServerConfig, words: Sequence[str]) -> UpstreamError:
    """The error for a command that is a whole command line, the most frequent slip in such files."""
    program, *args = words[0], *words[1:], *config.args
    written = json.dumps(args, ensure_ascii=False)
    patch = shell_word(f'{{"command": {json.dumps(program)}, "args": {written}}}')
    return UpstreamError(
        f"Server '{config.name}': command '{config.command}' not found; 'command' names the program alone.",
        hint=f"Its arguments go into 'args': mcpproxy server patch {shell_word(config.name)} --input-json {patch}",
    )


def _of_windows(config: ServerConfig) -> UpstreamError:
    """The error for a command from an entry that was written on another machine."""
    name = (config.command or "").replace("\\", "/").rpartition("/")[2]
    end = next((end for end in _WINDOWS_ENDS if name.lower().endswith(end)), "")
    program = name.removesuffix(name[len(name) - len(end) :]) if end else name
    return UpstreamError(
        f"Server '{config.name}': command '{config.command}' not found: that is a path of Windows.",
        hint="Name the program as this machine calls it: "
        f"mcpproxy server patch {shell_word(config.name)} {shell_word(f'command={program}')}",
    )


def _start_error(config: ServerConfig, exc: OSError | ValueError) -> UpstreamError:
    """Why the command cannot be started, in the user's words."""
    command, where = config.command or "", f"Server '{config.name}'"
    # By os.path: pathlib raises where a folder above may not be entered, or a name is too long.
    if config.cwd and not os.path.isdir(config.cwd):
        return UpstreamError(f"{where}: folder '{config.cwd}' does not exist.", hint="Correct its 'cwd'.")
    if isinstance(exc, FileNotFoundError):
        if re.match(_WINDOWS_PATH, command):
            return _of_windows(config)
        words = command.split()
        # A path with a blank in it may be meant as it stands.
        if len(words) > 1 and ("/" not in words[0] or os.path.isfile(words[0])):
            return _several_words(config, words)
        place = "" if "/" in command else " on PATH"
        hint = f"{_INSTALL.get(command, 'Install it')}, or give its full path."
        return UpstreamError(f"{where}: command '{command}' not found{place}.", hint=hint)
    if isinstance(exc, PermissionError):
        kind = "is a folder" if os.path.isdir(command) else "is not executable"
        return UpstreamError(f"{where}: command '{command}' {kind}.", hint="Correct its 'command', or run chmod +x.")
    if isinstance(exc, OSError) and exc.errno == errno.ENOEXEC:
        return UpstreamError(
            f"{where}: '{command}' is no program this system can run.", hint="Name its interpreter as the command."
        )
    failed = f"{where}: command '{command}' cannot be started"
    if isinstance(exc, OSError) and (reason := why_none_left(exc)):
        return UpstreamError(f"{failed}: {reason}.", hint=OPEN_FILES_HINT)
    return UpstreamError(f"{failed}: {exc}.", hint="Check command, args and env.")


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
        opening.config, opening.environ, lambda line: opening.on_event(LogLine(line)), opening.watchdog, opening.shelter
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
        self._lose(STOPPED)
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
