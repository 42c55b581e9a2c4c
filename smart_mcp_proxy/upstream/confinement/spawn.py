"""Starts a process in a thread that is confined, so that the process is from its first instruction."""

import asyncio
import os
import subprocess
from asyncio import SubprocessTransport
from asyncio.base_subprocess import BaseSubprocessTransport
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Protocol = TypeVar("_Protocol", bound=SubprocessStreamProtocol)


class _ConfinedTransport(BaseSubprocessTransport):
    """Transport of a process that runs already; the system tells of its end through a descriptor.

    Args:
        loop: The running one.
        protocol: Told of what comes.
        process: With three pipes.
        waiter: Done when the pipes are connected.
        on_end: Called once the process has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: SubprocessStreamProtocol,
        process: "subprocess.Popen[bytes]",
        waiter: "asyncio.Future[None]",
        on_end: Callable[[], None],
    ) -> None:
        self._process, self._on_end = process, on_end
        super().__init__(loop, protocol, [], False, PIPE, PIPE, PIPE, 0, waiter)

    def _start(self, *args: Any, **kwargs: Any) -> None:
        self._proc = self._process
        self._notice = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._notice, self._notice_end)

    def _notice_end(self) -> None:
        self._loop.remove_reader(self._notice)
        os.close(self._notice)
        self._process_exited(self._process.wait())
        self._on_end()


async def start_confined(
    protocol_factory: Callable[[], _Protocol],
    command: Sequence[str],
    confine: Callable[[], None],
    environ: Mapping[str, str],
    cwd: str | None,
    pass_fds: Sequence[int] = (),
    on_end: Callable[[], None] = lambda: None,
) -> tuple[SubprocessTransport, _Protocol]:
    """Start a command as `loop.subprocess_exec` does, with three pipes and a session of its own.

    Not to be cancelled: the process would go on.

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
    executor = ThreadPoolExecutor(1, "start confined")
    starting = loop.run_in_executor(executor, start)
    executor.shutdown(wait=False)  # its thread ends with the job: confined for ever, it may serve no other
    process = await starting
    protocol, connected = protocol_factory(), loop.create_future()
    transport = _ConfinedTransport(loop, protocol, process, connected, on_end)
    try:
        await connected
    except BaseException:
        transport.close()
        raise
    return transport, protocol
