"""Follows the server file: what changed in it is applied, a broken file leaves everything as it was."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio
from anyio import to_thread

from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.io.file_looks import file_looks
from smart_mcp_proxy.servers import (
    Profile,
    ServerConfig,
    ServerFile,
    diff,
    find_config,
    load_configured_servers,
    next_servers,
)
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger

__all__ = ["follow_config", "next_servers"]

QUIET_S = 0.1
DEBOUNCE_S = 0.3
"""Seconds after which a change is read at the latest, if no pause of `QUIET_S` without a further change came before."""

log = get_logger("config")

Apply = Callable[[Mapping[str, ServerConfig], Mapping[str, Profile]], Awaitable[None]]
"""Makes servers and profiles the ones in force."""


async def follow_config(
    settings: Settings,
    cwd: Path,
    current: ServerFile,
    apply: Apply,
    *,
    on_follow: Callable[[Callable[[], Awaitable[None]]], None] | None = None,
) -> None:
    """Call `apply` with servers and profiles whenever their file changes; never returns.

    Args:
        settings: Say where the file is looked for.
        cwd: The other place where it is looked for.
        current: What is in force.
        apply: Makes servers and profiles the ones in force.
        on_follow: Given what looks at the file at once, for who has just changed it.
    """
    if settings.config_json is not None:
        return
    follower = _Follower(settings, cwd, current, apply)
    if on_follow is not None:
        on_follow(follower.look)
    await follower.look()  # it may have changed since it was loaded
    while True:
        await follower.wait_change()
        await follower.look()


class _Follower:
    """The configuration in force, and the file's state at the last look."""

    def __init__(self, settings: Settings, cwd: Path, current: ServerFile, apply: Apply) -> None:
        self._settings = settings
        self._cwd = cwd
        self._settle(current)
        self._current = current.servers
        self._profiles = current.profiles
        self._apply = apply
        self._seen: object = None
        self._looking = anyio.Lock()

    async def wait_change(self) -> None:
        """Return once the file has changed and nobody is writing it."""
        stamp = await file_looks.wait(self._stamp, self._seen)
        with anyio.move_on_after(DEBOUNCE_S):
            while stamp != (stamp := await self._pause()):
                pass

    async def _pause(self) -> object:
        await anyio.sleep(QUIET_S)
        return await to_thread.run_sync(self._stamp)

    async def look(self) -> None:
        """Read the file if it changed, and apply the differences."""
        async with self._looking:
            stamp = await to_thread.run_sync(self._stamp)
            if stamp != self._seen:
                await self._take_up()
                self._seen = stamp  # not before: who waits for this may give up in the middle

    async def _take_up(self) -> None:
        try:
            file = await to_thread.run_sync(load_configured_servers, self._settings, self._cwd)
        except ConfigError as exc:
            log.warning("the last good servers stay: %s", exc)
            return
        if not file.source:
            if self._current:
                log.warning("the server file is gone; the last good servers stay")
            return
        self._settle(file)
        servers = next_servers(file, self._current)
        change = diff(self._current, servers)
        if change or file.profiles != self._profiles:
            for problem in file.problems:
                log.warning("%s", problem)
            counts = map(len, (change.added, change.changed, change.removed))
            log.info("%s: servers: %d added, %d changed, %d removed", file.source, *counts)
            try:
                await self._apply(servers, file.profiles)
            except ProxyError as exc:
                log.warning("the new servers could not be put in force completely: %s", exc)
        self._current, self._profiles = servers, file.profiles

    def _settle(self, file: ServerFile) -> None:
        """Stay with the file that there is: nobody puts another in its place that would go before it."""
        if file.source and self._settings.config_path is None:
            self._settings = self._settings.model_copy(update={"config_path": Path(file.source)})

    def _stamp(self) -> tuple[object, ...]:
        """Stamp of the file that differs whenever file or content do; empty without a file."""
        try:
            path = find_config(self._settings, self._cwd)
            facts = None if path is None else os.stat(path)
        except (ConfigError, OSError):
            return ()
        return () if facts is None else (path, facts.st_ino, facts.st_size, facts.st_mtime_ns)
