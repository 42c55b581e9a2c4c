"""The operator's command that runs after the list of tools has changed."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.stdio.inheritance import select_inherited

LIMIT_S = 60.0
"""Limit on a command that reports a change: it is no service, and one that takes longer hangs."""
PAUSE_S = 5.0
"""Servers that start or restart together change the list many times within seconds."""

log = get_logger("hook")


class _Failure(NamedTuple):
    """Kind of a failed run; logged only when it differs from the last run's."""

    kind: Literal["start", "exit", "limit"]
    text: str


@dataclass(eq=False, repr=False)
class ListChangedHook:
    """Runs a command after changes, one run at a time; nobody waits for it.

    It gets no data of ours: no input, no output, and of the environment only what servers inherit. A run is a process
    group, and what is left of the group ends with the run, also if the gateway is killed. Changes before a run starts
    share it; changes while it runs share the next.

    Attributes:
        argv: Program and arguments as they are, at least the program; no shell reads them.
        environ: The gateway's own environment.
        watchdog: Ends a run if the gateway is killed and cannot do it any more.
        limit_s: A run that takes longer is killed.
        pause_s: Least time from one start to the next.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    watchdog: Watchdog
    _: KW_ONLY
    limit_s: float = LIMIT_S
    pause_s: float = PAUSE_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._argv = tuple(self.argv)
        self._environment = select_inherited(self.environ).variables
        self._next_start_s = self.clock()
        self._is_due = False
        self._is_closed = False
        self._is_pausing = False
        self._task: asyncio.Task[None] | None = None
        self._group: int | None = None
        self._failed_by: str | None = None

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "busy" if self._is_busy else "idle"
        return f"<ListChangedHook {self._argv[0]}, {state}>"

    def fire(self) -> None:
        """Schedule the command, once more if it runs already; on the event loop, returns at once."""
        if self._is_closed:
            return
        self._is_due = True
        if not self._is_busy:
            self._task = spawn(self._run_while_due(), "list-changed command")

    async def close(self) -> None:
        """Ends a run that is going on; there are none afterwards."""
        self._is_closed = True
        if self._group is not None:
            _kill_group(self._group)
        if self._task is not None:
            # Only a pause is broken off: of a broken start the event loop ends the program, not what that has started.
            if self._is_pausing:
                self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def _is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _run_while_due(self) -> None:
        while self._is_due and not self._is_closed:
            self._is_pausing = True
            await self.sleep(max(0.0, self._next_start_s - self.clock()))
            self._is_pausing = self._is_due = False
            self._next_start_s = self.clock() + self.pause_s
            failure = await self._run()
            if not self._is_closed:
                self._report(failure)

    async def _run(self) -> _Failure | None:
        """Starts the command and sees it end; how it failed, if it did."""
        await self.watchdog.start()
        async with self.watchdog.announce_child() as mark:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    env=self._environment | mark,
                    start_new_session=True,
                )
            except OSError as exc:
                return _Failure("start", f"cannot be started: {exc.strerror}")
            self._group = process.pid
            self.watchdog.watch(process.pid)
        limit = spawn(self._kill_late(process.pid), "list-changed limit")
        try:
            if not self._is_closed:  # while it was started
                await process.wait()
        finally:
            is_late = not limit.cancel()
            # Also after a clean exit: what it started would add up, change by change.
            _kill_group(process.pid)
            code = await process.wait()
            self._group = None
            self.watchdog.release(process.pid)
        if is_late:
            return _Failure("limit", f"was killed: it took longer than {self.limit_s:g} s")
        if code < 0:
            return _Failure("exit", f"was ended by signal {-code}")
        return _Failure("exit", f"failed with exit code {code}") if code else None

    async def _kill_late(self, group: int) -> None:
        await self.sleep(self.limit_s)
        _kill_group(group)

    def _report(self, failure: _Failure | None) -> None:
        if failure is not None:
            # Once: a program that is missing stays missing. Its arguments may hold secrets and are not shown.
            level = logging.DEBUG if failure.kind == self._failed_by else logging.WARNING
            text = "the command '%s' %s; check MCPPROXY_LIST_CHANGED_EXEC"
            log.log(level, text, self._argv[0], failure.text)
        self._failed_by = failure and failure.kind


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty, or only zombies are left
        os.killpg(group, signal.SIGKILL)
