"""Waiting for the servers and for vectors, with something to look at."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from anyio import move_on_after

from smart_mcp_proxy.cli.support.output import console, plural, say
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.models import PENDING_STATES, ServerState
from smart_mcp_proxy.servers import ServerConfig

if TYPE_CHECKING:
    from rich.progress import Progress

SETTLE_S = 30.0
"""As long as one listing may take. Source: docs/design/limits.md#listing"""

_LOOK_S = 0.2
"""Seconds between two moves of the bar of embedding."""
_VECTORS_S = 2.0
"""As long as a command waits for vectors that take a tenth of a second, so that a lack of them is no failure."""
_SAY_S = 5.0
"""Seconds between two messages about what is waited for, where servers take long."""


async def settle(
    gateway: Gateway,
    timeout_s: float,
    is_enough: Callable[[Gateway], bool] = Gateway.is_settled,
    *,
    has_lines: bool = True,
) -> bool:
    """Waits until every server is listed or has failed, or `is_enough`; shows progress on stderr.

    Args:
        gateway: Its servers.
        timeout_s: At most.
        is_enough: Whether enough of them are listed.
        has_lines: Whether that is said off a terminal, too, where it takes long.

    Returns:
        Whether that came about within `timeout_s`.
    """

    async def wait(look: Callable[[], None]) -> None:
        look()
        while not (gateway.is_settled() or is_enough(gateway)):
            with suppress(TimeoutError):
                async with asyncio.timeout(_SAY_S):
                    await gateway.base.changes.wait()
            look()

    with _progress(gateway, timeout_s, has_lines=has_lines) as look:
        try:
            await asyncio.wait_for(wait(look), timeout_s)
        except TimeoutError:
            return False
    return True


def longest_start_s(servers: Iterable[ServerConfig]) -> float:
    """Seconds by which each of the servers is listed or has failed."""
    return max((one.limits.init_s + one.limits.list_s for one in servers if not one.is_off), default=SETTLE_S)


async def show_embedding(gateway: Gateway) -> None:
    """Shows on stderr how far embedding is, until every tool has its vector; nothing off a terminal.

    Off a terminal, and where people read no bars, the log says the same every few seconds.
    """
    embedding = gateway.admin.embedding
    if embedding is None or not sys.stderr.isatty():
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # 30 ms of each start off a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # Nothing of stdout passes through it: over stdio that is the protocol's.
    progress = Progress(*columns, console=console(sys.stderr), transient=True, redirect_stdout=False)
    task = progress.add_task("Opening the embedding model", total=None)
    with _log_above(progress):
        while _is_embedding(gateway, embedding):
            if embedding.progress is not None:
                done, total = embedding.progress
                label = f"Embedding tools {embedding.rate}".rstrip()
                progress.update(task, description=label, completed=done, total=total)
            await asyncio.sleep(_LOOK_S)


async def wait_light_vectors(gateway: Gateway) -> None:
    """Wait for vectors that come in a moment, so that a command ranks as a running gateway does."""
    embedding = gateway.admin.embedding
    with move_on_after(_VECTORS_S):
        while embedding is not None and embedding.setup.is_light and embedding.progress != (0, 0):
            if embedding.is_complete or embedding.is_stopped:
                return
            await asyncio.sleep(_LOOK_S / 10)


def _is_embedding(gateway: Gateway, embedding: Embedding) -> bool:
    """Whether there is more to come; without tools only as long as a server may still bring some."""
    if embedding.is_complete or embedding.is_stopped:
        return False
    return embedding.progress != (0, 0) or not gateway.is_settled()


@contextmanager
def _progress(gateway: Gateway, timeout_s: float, *, has_lines: bool) -> Iterator[Callable[[], None]]:
    """Two bars on stderr, brought up to date by what it yields; off a terminal a line now and then."""
    if not sys.stderr.isatty():
        yield _lines(gateway, timeout_s) if has_lines else lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    progress = Progress(*columns, console=console(sys.stderr), transient=True)
    connecting = progress.add_task("Connecting", total=None, note="")
    indexing = progress.add_task("Indexing", total=None, note="")

    def look() -> None:
        status = gateway.status()
        states = {server.name: server.state for server in status.servers if server.state is not ServerState.DISABLED}
        ready = [name for name, state in states.items() if state is ServerState.READY]
        connected = sum(state not in PENDING_STATES for state in states.values())
        indexed = sum(gateway.lists.tool_lists.is_fresh(name) for name in ready)
        progress.update(
            connecting, completed=connected, total=len(states), note=_format_pending_names(states, timeout_s)
        )
        tools = plural(sum(status.tools.values()), "tool")
        progress.update(indexing, completed=indexed, total=len(ready) or len(states), note=tools)

    look()
    with _log_above(progress):
        yield look


@contextmanager
def _log_above(progress: "Progress") -> Iterator[None]:
    """Shows the bars while open; what is logged meanwhile stands above them, not in the middle."""
    plain = sys.stderr
    streams = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.StreamHandler)]
    moved = [handler for handler in streams if handler.stream is plain]
    with progress:
        for handler in moved:
            handler.setStream(sys.stderr)  # the bars have put their own in its place
        try:
            yield
        finally:
            for handler in moved:
                handler.setStream(plain)


def _lines(gateway: Gateway, timeout_s: float) -> Callable[[], None]:
    """Says every few seconds for which servers the command waits, and how long."""
    clock = asyncio.get_running_loop().time
    next_s = clock() + _SAY_S

    def look() -> None:
        nonlocal next_s
        if clock() < next_s:
            return
        next_s = clock() + _SAY_S
        servers = [server for server in gateway.status().servers if server.state in PENDING_STATES]
        if servers:
            names = _format_pending_names({server.name: server.state for server in servers}, timeout_s)
            say(f"Waiting for {names}. {servers[0].name}: {servers[0].error or servers[0].state}", style="dim")

    return look


def _format_pending_names(states: Mapping[str, ServerState], timeout_s: float) -> str:
    names = [name for name, state in states.items() if state in PENDING_STATES]
    if not names:
        return ""
    return f"{', '.join(names[:4])}{' …' if len(names) > 4 else ''} (at most {timeout_s:g} s)"
