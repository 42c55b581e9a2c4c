"""Serving with several processes: their parent, which starts, replaces and ends them."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any, Final, NamedTuple

from smart_mcp_proxy.cli.exit_codes import EXIT_CONFIG
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import fields, get_logger, spawn

_HEALTHY_S: Final = 10.0
"""A worker that lives so long is no failing start."""
_PAUSE_S: Final = 1.0
"""Before a worker that died sooner is replaced; once the gateway has served, each pause is twice the last one."""
_LONGEST_PAUSE_S: Final = 30.0
_FAILED_STARTS: Final = 5
"""In a row, of one worker, while none has been healthy: then all end."""
_BEAT_S: Final = 5.0
"""Each worker says so often that it still works."""
_SILENT_TURNS: Final = 12
"""A worker that says nothing for so many turns of `_BEAT_S` hangs. Turns of this process, and not its clock: a machine
that slept, or processes that were stopped together, have had none."""
_REPORTED: Final = 255
"""Says that people have been told, where other bytes are numbers of workers."""
_PIPE_BYTES: Final = 1 << 20
"""More than a pipe holds."""

log = get_logger("serve")


async def serve_workers(settings: Settings, listener: socket.socket, options: Mapping[str, Any]) -> int:
    """Serves with as many processes as the settings say, until a signal comes; returns the exit status.

    Args:
        settings: As they are read.
        listener: Listens already; all workers accept from it.
        options: What each worker is told besides: flags of the command line.

    Raises:
        ProxyError: The system starts no processes.
    """
    with ExitStack() as stack:
        boxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(settings.workers)]
        for box in boxes:
            for end in box:
                end.setblocking(False)
                stack.enter_context(closing(end))
        life = os.pipe()  # its end tells the workers of this process's
        stack.callback(os.close, life[0])
        stack.callback(os.close, life[1])
        report = os.pipe()  # workers write to it that they work, and once that people have been told
        for side in report:  # nobody waits: neither for a worker that says nothing, nor for a parent that was stopped
            os.set_blocking(side, False)
            stack.callback(os.close, side)
        shared = {
            "listener": listener.fileno(),
            "life": life[0],
            "sending": [sending.fileno() for sending, _ in boxes],
            "report": report[1],
            "reported": _REPORTED,
            "beat_s": _BEAT_S,
        }
        orders = [{**options, **shared, "receiving": box[1].fileno()} for box in boxes]
        return await _Parent(orders, report[0]).run()


class _End(NamedTuple):
    """Exit of one worker.

    Attributes:
        status: Its exit status; 1 where there was no process.
        words: For the log.
        error: Why there was no process.
    """

    status: int
    words: str
    error: OSError | None = None


class _Parent:
    """The workers of one port.

    Args:
        orders: What each worker is told; descriptors are inherited.
        report: What workers say of themselves, a byte each time.
    """

    def __init__(self, orders: list[dict[str, Any]], report: int) -> None:
        self._orders = orders
        self._report = report
        self._is_reported = False
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._silent: dict[int, int] = {}
        """Turns since a worker was last heard; one that has yet to say anything is left out."""
        self._has_served = False
        """Whether any worker has been healthy: from then on failed starts end nothing."""
        self._stop: int | None = None
        self._ending = asyncio.Event()
        self._status = 0
        self._failure: ProxyError | None = None

    async def run(self) -> int:
        """The exit status, once all have ended.

        Raises:
            ProxyError: The system starts no processes.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end, number)
        watching = spawn(self._watch(), "watch of workers")
        try:
            await asyncio.gather(*(self._keep(number) for number in range(len(self._orders))))
        finally:
            watching.cancel()
        if self._failure is not None:
            raise self._failure
        return 128 + signal.SIGINT if self._stop == signal.SIGINT else self._status

    async def _keep(self, number: int) -> None:
        """Run one worker, and its successors."""
        failures, pause_s, told = 0, _PAUSE_S, set[str]()
        while not self._ending.is_set():
            began_s = time.monotonic()
            ended = await self._run(number)
            if self._ending.is_set():
                break
            is_healthy = time.monotonic() - began_s >= _HEALTHY_S
            failures = 0 if is_healthy else failures + 1
            if is_healthy:
                pause_s, told = _PAUSE_S, set()
            if ended.status == EXIT_CONFIG and not self._has_served:  # it has said why
                self._give_up(ended)
                break
            if ended.words not in told:
                told.add(ended.words)
                facts = fields(worker=number, status=ended.status)
                log.error("worker %d %s; another one takes its place", number, ended.words, extra=facts)
            if failures >= _FAILED_STARTS and not self._has_served:
                self._give_up(ended)
                break
            if not is_healthy:
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S) if self._has_served else _PAUSE_S

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._ending.wait()

    def _note_healthy(self) -> None:
        self._has_served = True

    async def _run(self, number: int) -> _End:
        self._hear()
        order = self._orders[number] | {"number": number, "is_reported": self._is_reported}
        inherited = (order["listener"], order["life"], *order["sending"], order["receiving"], order["report"])
        command = [sys.executable, "-P", "-m", "smart_mcp_proxy.cli.commands.operate.worker", json.dumps(order)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=inherited,
                start_new_session=True,  # Ctrl-C is told to them once, by this process
            )
        except OSError as exc:  # too many processes, no memory, no such interpreter any more
            return _End(1, f"cannot be started: {exc.strerror or exc}", exc)
        self._processes[number] = process
        becoming_healthy = asyncio.get_running_loop().call_later(_HEALTHY_S, self._note_healthy)
        if self._stop is not None:
            process.terminate()
        try:
            status = await process.wait()
        finally:
            becoming_healthy.cancel()
            del self._processes[number]
            self._hear()  # its last words are not those of the one in its place
            self._silent.pop(number, None)
        return _End(status, f"ended with status {status}")

    async def _watch(self) -> None:
        """Kill each worker that hangs, for `_keep` to start another; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_BEAT_S)
            self._end_silent()

    def _end_silent(self) -> None:
        """Count a turn, and end those that have been silent for too many."""
        self._hear()
        for number, process in self._processes.items():
            if number not in self._silent:
                continue
            self._silent[number] += 1
            if self._silent[number] == _SILENT_TURNS:
                words = "worker %d has not answered for %g s and is ended"
                log.error(words, number, _SILENT_TURNS * _BEAT_S, extra=fields(worker=number))
                with suppress(ProcessLookupError):  # it has just ended
                    process.kill()

    def _hear(self) -> None:
        """Take note of what workers have said."""
        with suppress(BlockingIOError):
            for word in os.read(self._report, _PIPE_BYTES):
                if word == _REPORTED:
                    self._is_reported = True
                else:
                    self._silent[word] = 0

    def _end(self, number: int) -> None:
        """Have all workers end; the second time at once.

        Never by SIGINT: one that still starts would end with a traceback.
        """
        self._stop = number
        self._ending.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):  # it has just ended
                process.terminate()

    def _give_up(self, ended: _End) -> None:
        self._status = ended.status if ended.status > 0 else 1
        if ended.error is not None:
            self._failure = ProxyError(
                f"Workers cannot be started: {ended.error.strerror or ended.error}.",
                hint="Allow more processes or memory, or use fewer workers (MCPPROXY_WORKERS).",
            )
        self._end(signal.SIGTERM)
