"""Waiting for the servers and for vectors, with something to look at."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smart_mcp_proxy.cli.support.output import console, plural
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.models import PENDING_STATES, ServerState

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["SETTLE_S", "settle", "show_embedding"]

SETTLE_S = 30.0
"""As long as one listing may take. Source: product.md, Upstreams (30 s discovery)."""

_LOOK_S = 0.2
"""How often the bar of embedding moves."""


async def settle(gateway: Gateway, timeout_s: float, is_enough: Callable[[Gateway], bool] = Gateway.is_settled) -> bool:
    """Waits until every server is listed or has failed, or `is_enough`; shows progress on a terminal.

    Returns:
        Whether that came about within `timeout_s`.
    """

    async def wait(look: Callable[[], None]) -> None:
        look()
        while not (gateway.is_settled() or is_enough(gateway)):
            await gateway.changes.wait()
            look()

    with _progress(gateway) as look:
        try:
            await asyncio.wait_for(wait(look), timeout_s)
        except TimeoutError:
            return False
    return True


async def show_embedding(gateway: Gateway) -> None:
    """Shows on stderr how far embedding is, until every tool has its vector; nothing off a terminal.

    Off a terminal, and where people read no bars, the log says the same every few seconds.
    """
    embedding = gateway.embedding
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
                label = f"Embedding tools {embedding.pace}".rstrip()
                progress.update(task, description=label, completed=done, total=total)
            await asyncio.sleep(_LOOK_S)


def _is_embedding(gateway: Gateway, embedding: Embedding) -> bool:
    """Whether there is more to come; without tools only as long as a server may still bring some."""
    if embedding.is_complete or embedding.is_stopped:
        return False
    return embedding.progress != (0, 0) or not gateway.is_settled()


@contextmanager
def _progress(gateway: Gateway) -> Iterator[Callable[[], None]]:
    """Two bars on stderr while open, brought up to date by what it yields; nothing off a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
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
        indexed = sum(gateway.tool_lists.is_fresh(name) for name in ready)
        progress.update(connecting, completed=connected, total=len(states), note=_waiting_for(states))
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


def _waiting_for(states: Mapping[str, ServerState]) -> str:
    names = [name for name, state in states.items() if state in PENDING_STATES]
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
