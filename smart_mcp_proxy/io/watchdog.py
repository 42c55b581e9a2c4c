"""Ends what the gateway started if the gateway itself is killed and cannot do it any more."""

import asyncio
import contextlib
import secrets
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from smart_mcp_proxy.io.server_processes import MARK, lower_limit, tag_server
from smart_mcp_proxy.telemetry import get_logger, spawn

_PROGRAM = Path(__file__).with_name("watchdog_child.py")
_CLOSE_S = 2.0
_RESTART_S = 0.5
"""Pause before it is started again: something that kills it at once must not keep us busy."""

_log = get_logger("upstream")


class _Watched(NamedTuple):
    """Process group that ends with us.

    Attributes:
        server: Name of the server that it is; empty for what is none.
        line: What the other process is told of it.
    """

    server: str
    line: str


class Watchdog:
    """A small process at the other end of a pipe that knows our children's process groups.

    The pipe closes with this process, however it ends; then the groups are ended, politely first. Started with the
    first child, so a gateway without stdio servers has none.

    Source: docs/design/processes.md#the-watchdog
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._groups: dict[int, _Watched] = {}
        self._announced: set[str] = set()
        self._starting = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._is_missed = False

    def __repr__(self) -> str:
        return f"<Watchdog {'off' if self._process is None else f'pid {self._process.pid}'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _CLOSE_S)

    async def start(self) -> None:
        """Start the process if it does not run: before the first child, which could outlive us."""
        async with self._starting:
            if self._keeper is None:
                await self._launch()
                self._keeper = spawn(self._keep(), "watchdog")

    @contextlib.asynccontextmanager
    async def announce_child(self, server: str = "") -> AsyncIterator[dict[str, str]]:
        """Variables for a child that is started inside: it is ended even if we are killed before `watch`.

        Args:
            server: Name of the server that it is; empty for what is none.
        """
        value = f"{secrets.token_hex(8)}.{tag_server(server)}" if server else secrets.token_hex(8)
        mark = f"{MARK}={value}"
        self._announced.add(mark)
        self._tell(f"?{mark}\n")
        await asyncio.sleep(0)  # uvloop writes when its round ends
        try:
            yield {MARK: value}
        finally:
            self._announced.discard(mark)
            self._tell(f"!{mark}\n")

    @property
    def servers(self) -> dict[int, str]:
        """Names of the servers that run, by the process group of each."""
        return {group: watched.server for group, watched in self._groups.items() if watched.server}

    def watch(self, group: int, server: str = "", removal: Sequence[str] = ()) -> None:
        """Ends this process group if we are killed, and then runs a command that removes what is left.

        Args:
            group: Its id.
            server: Name of the server that it is, known as its from now on; empty for what is none.
            removal: The command, with the path of its program.
        """
        self._groups[group] = watched = _Watched(server, "\t".join(map(str, (group, *removal))))
        if server:
            lower_limit(group)
        self._tell(f"+{watched.line}\n")

    def release(self, group: int) -> None:
        """Forgets this process group: it is gone, and its number may be given to another."""
        self._groups.pop(group, None)
        self._tell(f"-{group}\n")

    async def _keep(self) -> None:
        """Starts the process again whenever it ends, with the groups it has to know."""
        while True:
            if self._process is not None:
                await self._process.wait()
                _log.warning("the watchdog ended (exit code %s); it is started again", self._process.returncode)
            await asyncio.sleep(_RESTART_S)
            await self._launch()

    async def _launch(self) -> None:
        self._process = None
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
            if not self._is_missed:
                _log.warning("no watchdog: servers may outlive a killed gateway: %s", exc)
        self._is_missed = self._process is None
        for watched in self._groups.values():
            self._tell(f"+{watched.line}\n")
        for mark in self._announced:
            self._tell(f"?{mark}\n")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line.encode())
