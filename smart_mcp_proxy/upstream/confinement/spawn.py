"""Starts a process in a thread that is confined, so that the process is from its first instruction."""

import asyncio
import os
import subprocess
import threading
from asyncio import SubprocessTransport
from asyncio.base_subprocess import BaseSubprocessTransport
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

_Protocol = TypeVar("_Protocol", bound=SubprocessStreamProtocol)


class _ConfinedTransport(BaseSubprocessTransport):
    """Transport of a process that runs already; the system tells of its end through a descriptor.

    Args:
        loop: The running one.
        protocol: Told of what comes.
        process: With three pipes.
        waiter: Done when the pipes are connected.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: SubprocessStreamProtocol,
        process: "subprocess.Popen[bytes]",
        waiter: "asyncio.Future[None]",
    ) -> None:
        self._process = process
        super().__init__(loop, protocol, [], False, PIPE, PIPE, PIPE, 0, waiter)

    def _start(self, *args: Any, **kwargs: Any) -> None:
        self._proc = self._process
        self._notice = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._notice, self._notice_end)

    def _notice_end(self) -> None:
        self._loop.remove_reader(self._notice)
        os.close(self._notice)
        self._process_exited(self._process.wait())


async def start_confined(
    protocol_factory: Callable[[], _Protocol],
    command: Sequence[str],
    confine: Callable[[], None],
    environ: Mapping[str, str],
    cwd: str | None,
    pass_fds: Sequence[int] = (),
) -> tuple[SubprocessTransport, _Protocol]:
    """Start a command as `loop.subprocess_exec` does, with three pipes and a session of its own.

    Raises:
        OSError: It cannot be started, or the kernel does not confine it.
    """

    def start() -> subprocess.Popen[bytes]:
        confine()
        return subprocess.Popen(
            command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=environ,
            bufsize=0,
            start_new_session=True,
            pass_fds=pass_fds,
        )

    loop = asyncio.get_running_loop()
    process = await _run_in_fresh_thread(start)
    protocol = protocol_factory()
    waiter = loop.create_future()
    transport = _ConfinedTransport(loop, protocol, process, waiter)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol


async def _run_in_fresh_thread(job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Run a job in a thread that ends with it and serves no other job."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[subprocess.Popen[bytes]] = loop.create_future()

    def run() -> None:
        try:
            result = job()
        except (OSError, ValueError) as exc:
            loop.call_soon_threadsafe(_settle, done, None, exc)
        else:
            loop.call_soon_threadsafe(_settle, done, result, None)

    threading.Thread(target=run, name="start confined", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        done.add_done_callback(_kill_unwanted)
        raise


def _kill_unwanted(done: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().kill()
        done.result().wait()


def _settle(done: asyncio.Future[Any], result: object, exc: Exception | None) -> None:
    if done.cancelled():
        return
    if exc is None:
        done.set_result(result)
    else:
        done.set_exception(exc)
