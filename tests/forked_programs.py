"""Programs of the gateway as forks of one process in which all that they need is imported already.

Each is a process of its own, with its own arguments, environment and streams, and ends as any other does; only what
stands in /proc of its command line and its first environment is that of the process which forked. Where a start itself
is tested, a program is started as users start it.
"""

import asyncio
import atexit
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

__all__ = ["Ended", "Forked", "ForkedProcess", "fork_program", "run_forked", "start_forked"]

LIMIT_S = 60
LOADED_LATE = ("gateway", "catalog", "policy.scanner", "upstream", "web.rest", "web.serve_http", "cli.support.start")
"""What commands import when they are run."""
_LENGTH_BYTES = 8
_LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]
_DESCRIPTORS = 4
"""The three streams, and where the exit status is written."""


class Ended(NamedTuple):
    """A program that has ended.

    Attributes:
        status: Its exit status, negative for a signal.
        out: What it wrote to stdout.
        err: What it wrote to stderr.
    """

    status: int
    out: bytes
    err: bytes


class ForkedProcess:
    """A program with pipes, as `asyncio.subprocess.Process` shows one.

    Attributes:
        pid: Its number.
        stdin: Its stdin.
        stdout: Its stdout.
        returncode: Its exit status, negative for a signal; None while it runs.
    """

    def __init__(
        self,
        pid: int,
        status: int,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._reading = reading
        self._status, self._has_ended = status, asyncio.Event()
        asyncio.get_running_loop().add_reader(status, self._note_end)

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        await self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal.

        Raises:
            ProcessLookupError: It has ended.
        """
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def close_stdout(self) -> None:
        """Reads no more of what it writes, as a client that has ended."""
        self._reading.close()

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        self.returncode = int(os.read(self._status, 100))
        os.close(self._status)
        if not self._reading.is_closing():
            pipe = self._reading.get_extra_info("pipe")
            with suppress(BlockingIOError):  # what it has started holds the pipe open
                while rest := os.read(pipe.fileno(), 1 << 16):
                    self.stdout.feed_data(rest)
            self._reading.close()
        self.stdin.close()
        self._has_ended.set()


async def start_forked(
    *words: str,
    env: Mapping[str, str],
    stderr: IO[bytes],
    cwd: Path | None = None,
    limit: int = 1 << 16,
    leads_group: bool = False,
) -> ForkedProcess:
    """Starts `mcpproxy WORDS`.

    Args:
        words: The command line.
        env: The whole environment.
        stderr: File for what it writes there.
        cwd: Its working directory, that of the test by default.
        limit: Bytes of a line on its stdout.
        leads_group: Whether it is the first of a group of processes.
    """
    from_us, to_program = os.pipe()
    from_program, to_us = os.pipe()
    streams = (from_us, to_us, stderr.fileno())
    pid, status = await asyncio.to_thread(_fork, words, streams, cwd or Path.cwd(), env, leads_group=leads_group)
    os.close(from_us)
    os.close(to_us)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_program, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(to_program, "wb", 0)
    )
    return ForkedProcess(pid, status, asyncio.StreamWriter(transport, protocol, None, loop), reader, reading)


class Forked:
    """A program that nobody talks to.

    Attributes:
        pid: Its number.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status: int | None = status

    def wait(self, timeout_s: float) -> int:
        """Its exit status, negative for a signal; it is killed after so many seconds."""
        assert self._status is not None
        if not select.select([self._status], [], [], timeout_s)[0]:
            os.kill(self.pid, signal.SIGKILL)
        status = int(os.read(self._status, 100))
        os.close(self._status)
        self._status = None
        return status

    def close(self) -> None:
        """Kills it if nobody has waited for its end."""
        if self._status is not None:
            self.wait(0)


@contextmanager
def fork_program(
    *words: str, stdout: IO[bytes], stderr: IO[bytes], cwd: Path, env: Mapping[str, str]
) -> Iterator[Forked]:
    """Starts `mcpproxy WORDS` with nothing on its stdin; it is killed in the end, if nobody has waited for its own."""
    with open(os.devnull, "rb") as nothing:
        program = Forked(*_fork(words, (nothing.fileno(), stdout.fileno(), stderr.fileno()), cwd, env))
    try:
        yield program
    finally:
        program.close()


def run_forked(*words: str, cwd: Path, env: Mapping[str, str]) -> Ended:
    """Runs `mcpproxy WORDS` with nothing on its stdin."""
    with _unnamed() as out, _unnamed() as err:
        with fork_program(*words, stdout=out, stderr=err, cwd=cwd, env=env) as program:
            status = program.wait(LIMIT_S)
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read(), err.read())


@contextmanager
def _unnamed() -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create("stream"), "w+b") as file:
        yield file


def _fork(
    words: Sequence[str], streams: tuple[int, int, int], cwd: Path, env: Mapping[str, str], *, leads_group: bool = False
) -> tuple[int, int]:
    """The number of a new process, and the descriptor from which its exit status can be read."""
    status, told = os.pipe()
    limits = [(kind, resource.getrlimit(kind)) for kind in _LIMITS]
    job = json.dumps(
        {"words": words, "cwd": str(cwd), "env": dict(env), "leads_group": leads_group, "limits": limits}
    ).encode()
    link, lock = _begin_forking()
    with lock:
        socket.send_fds(link, [len(job).to_bytes(_LENGTH_BYTES)], [*streams, told])
        link.sendall(job)
        os.close(told)
        return int(link.recv(100)), status


@cache
def _begin_forking() -> tuple[socket.socket, threading.Lock]:
    """The link to the process that forks, which ends with this one."""
    link, other = socket.socketpair()
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process that forks has one thread
    nothing = subprocess.DEVNULL
    with other:
        words = [sys.executable, __file__, str(other.fileno())]
        process = subprocess.Popen(words, env=env, pass_fds=[other.fileno()], stdin=nothing, stdout=nothing)

    @atexit.register
    def end() -> None:
        link.close()
        process.wait()

    return link, threading.Lock()


def _load() -> None:
    # Here and below, not above: who starts programs needs nothing of it.
    from smart_mcp_proxy.cli.support.loop import load_sparingly

    load_sparingly(is_http=True)
    from smart_mcp_proxy.cli.app import COMMANDS

    for name in LOADED_LATE:
        import_module(f"smart_mcp_proxy.{name}")
    for module in [*(module for module, _ in COMMANDS.values()), "operate.serving", "operate.serving_http"]:
        import_module(f"smart_mcp_proxy.cli.commands.{module}")
    gc.collect()
    gc.freeze()


def _serve(link: socket.socket) -> None:
    """Begins what is asked for until nobody asks; returns in each process that is to become a program."""
    running: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([link, woken], [], [])
        if woken in ready:
            os.read(woken, 1_000)
            _tell_ends(running)
        if link not in ready:
            continue
        length, descriptors, _, _ = socket.recv_fds(link, _LENGTH_BYTES, _DESCRIPTORS)
        if not length:
            sys.exit()
        job = json.loads(link.recv(int.from_bytes(length), socket.MSG_WAITALL))
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, each in enumerate(descriptors[:3]):
                os.dup2(each, number)
            link.close()
            for each in (woken, wake, *running.values(), *descriptors):
                os.close(each)
            _become(job)
            return
        running[pid] = descriptors.pop()
        for each in descriptors:
            os.close(each)
        link.sendall(str(pid).encode())


def _tell_ends(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = running.pop(pid)
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(told)


def _become(job: dict[str, Any]) -> None:
    if job["leads_group"]:
        os.setpgid(0, 0)
    for kind, limits in job["limits"]:
        resource.setrlimit(kind, limits)
    # Those of the process that forked know of other files.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = ["mcpproxy", *job["words"]]
    gc.unfreeze()


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from smart_mcp_proxy.cli import main

    main()
