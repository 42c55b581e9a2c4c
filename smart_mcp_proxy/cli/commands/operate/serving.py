"""The gateway at work: its configuration followed, one client served, its end in good order."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from anyio import to_thread

from smart_mcp_proxy.cli.support.one_start import start_environment
from smart_mcp_proxy.cli.support.opening import opening
from smart_mcp_proxy.cli.support.watch import follow_config
from smart_mcp_proxy.desktop.background import LISTENER
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.paths import bind_request_path
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.admin.people import require_people
from smart_mcp_proxy.gateway.rehearsal import Rehearsal
from smart_mcp_proxy.greeting.record import GreetingRecord
from smart_mcp_proxy.io.open_files import raise_limit
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.servers import ServerFile, explain_separation, load_configured_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.serve import StopEvent, open_socket, stop_signals, tune_process
from smart_mcp_proxy.web.stdio.joined import JoinService
from smart_mcp_proxy.web.stdio.stdio import serve_stdio

_SETTLE_S: Final = 30.0
"""As long as one listing may take. Source: docs/design/limits.md#listing"""

log = get_logger("serve")


async def serve_one_client(settings: Settings, *, passthrough: str | None = None, profile: str | None = None) -> int:
    """Serves the client on stdin and stdout until it leaves or a signal comes; returns the exit status.

    Raises:
        ConfigError: The configuration or the data directory cannot be used, or does not know the profile.
    """
    file = await load_server_file(settings)
    if profile is not None and profile not in file.profiles:
        raise ConfigError(
            f"Profile {profile!r} is not configured.", hint=f"Known: {', '.join(sorted(file.profiles)) or 'none'}."
        )
    with stop_signals() as stop, bind_request_path("" if profile is None else f"p/{profile}"):
        async with open_served_gateway(settings, file, passthrough) as gateway:
            # Here and not above: one in the background shows nothing.
            from smart_mcp_proxy.cli.support.wait_ready import show_embedding

            showing = spawn(show_embedding(gateway), "embedding bar")
            async with _save_greeting(gateway, opening.record, passthrough, profile):
                try:
                    await serve_stdio(gateway, stop, opening.take())
                finally:
                    showing.cancel()
    return status_at(stop)


async def serve_in_background(settings: Settings) -> int:
    """Serve clients that join until none has been there for `keep_alive` or a signal comes; exit status.

    Raises:
        ConfigError: The configuration or the data directory cannot be used.
    """
    listener = socket.socket(fileno=LISTENER)
    file = await load_server_file(settings)
    for name, config in file.servers.items():
        if reason := explain_separation(config):
            log.info(
                "server %r %s: each client gets a process of its own; 'connection': 'shared' has one", name, reason
            )
    with stop_signals() as stop:
        environ = dict(start_environment(settings))
        async with (
            open_served_gateway(settings, file, None, environ=environ) as gateway,
            # For the door of the client that starts the next one.
            _save_greeting(gateway, GreetingRecord([], environ), None, None),
        ):
            service = JoinService(gateway, environ, stop, lambda: stop.number is not None, settings.keep_alive)
            await service.serve(listener)
    return 0


async def load_server_file(settings: Settings, *, is_logged: bool = True) -> ServerFile:
    """The configured servers; what is wrong with single ones is logged."""
    file = await to_thread.run_sync(load_configured_servers, settings, Path.cwd())
    for problem in file.problems if is_logged else ():
        log.warning("%s", problem)
    return file


@asynccontextmanager
async def open_served_gateway(
    settings: Settings,
    file: ServerFile,
    passthrough: str | None,
    worker: Worker = ALONE,
    environ: dict[str, str] | None = None,
    *,
    is_http: bool = False,
) -> AsyncIterator[Gateway]:
    """A gateway that the command line can reach and that follows its configuration."""
    raise_limit()
    async with (
        open_gateway(
            settings,
            file.servers,
            profiles=file.profiles,
            environ=start_environment(settings) if environ is None else environ,
            separates=environ is not None,
            passthrough=passthrough,
            worker=worker,
        ) as gateway,
        open_socket(gateway),
        _serve_metrics(gateway),
    ):
        await require_people(settings, file.servers, gateway.admin.agent_tokens, is_http=is_http)
        following = follow_config(
            settings, Path.cwd(), file, gateway.apply, on_follow=gateway.admin.management.apply_with
        )
        watching = spawn(following, "config watch")
        try:
            async with tune_process():
                yield gateway
        finally:
            watching.cancel()
            await asyncio.wait([watching])


def _serve_metrics(gateway: Gateway) -> AbstractAsyncContextManager[None]:
    """Serves figures on the port that the settings name, if they name one, while open."""
    if gateway.settings.metrics_port is None:
        return nullcontext()
    # Here and not above: few ask for it, and it needs all of REST.
    from smart_mcp_proxy.web.metrics.endpoint import serve_metrics

    return serve_metrics(gateway)


@asynccontextmanager
async def _save_greeting(
    gateway: Gateway, record: GreetingRecord | None, passthrough: str | None, profile: str | None
) -> AsyncIterator[None]:
    """Keeps the answers to a connecting client for the next start with the same settings, while open.

    Once the stored catalog is there, once the servers are, and at the end.

    Args:
        gateway: Open.
        record: Where it is kept; None where it is not.
        passthrough: The one server whose tools the client sees, instead of the gateway's.
        profile: The one profile that it sees.
    """
    if record is None:
        yield
        return
    rehearsal = Rehearsal(gateway, is_whole=passthrough is None and profile is None)

    keeping = asyncio.Lock()

    async def keep() -> None:
        async with keeping:
            await to_thread.run_sync(record.save, await rehearsal.answers(), rehearsal.name, gateway.stdio_eras)

    async def follow() -> None:
        if await to_thread.run_sync(record.load) is None:  # else the first search is waiting to be answered
            await gateway.lists.index_sync.loaded.wait()
            await keep()
        await gateway.wait_settled(_SETTLE_S)
        await keep()

    following = spawn(follow(), "greeting")
    try:
        yield
    finally:
        async with keeping:  # a rehearsal that is cut short would be an error in the log
            following.cancel()
        await asyncio.wait([following])
        await keep()


def status_at(stop: StopEvent) -> int:
    """130 after Ctrl-C, as a shell expects it; an end that was asked for in another way is a success."""
    return 128 + signal.SIGINT if stop.number == signal.SIGINT else 0
