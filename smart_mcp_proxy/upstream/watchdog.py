"""Ends what the gateway started if the gateway itself is killed and cannot do it any more."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Self

from smart_mcp_proxy.telemetry import get_logger

__all__ = ["Watchdog"]

_PROGRAM = Path(__file__).with_name("watchdog_child.py")
_CLOSE_S = 2.0

_log = get_logger("upstream")


class Watchdog:
    """A small process at the other end of a pipe that knows our children's process groups.

    The pipe closes with this process, however it ends; then the groups are ended, politely first. Started with the
    first child, so a gateway without stdio servers has none.

    Source: contract.md, Processes.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Watchdog {'off' if self._process is None else f'pid {self._process.pid}'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _CLOSE_S)

    async def watch(self, group: int) -> None:
        """Ends this process group if we are killed."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """Forgets this process group: it is gone, and its number may be given to another."""
        self._tell(f"-{group}\n")

    async def _start(self) -> None:
        try:
            # Isolated and without site: it starts in milliseconds and depends on nothing that can break.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(_PROGRAM),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as exc:
            _log.warning("no watchdog: servers may outlive a killed gateway: %s", exc)

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line.encode())
