"""The gateway at work: its doors opened, its configuration followed, its end in good order."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from smart_mcp_proxy.cli.keep_greeting import keeping_greeting
from smart_mcp_proxy.cli.one_start import start_environment
from smart_mcp_proxy.cli.opening import opening
from smart_mcp_proxy.cli.output import say, show_json
from smart_mcp_proxy.cli.own import api_of
from smart_mcp_proxy.cli.render import waiting_text
from smart_mcp_proxy.cli.report import Address, show_report, summarize
from smart_mcp_proxy.cli.settle import SETTLE_S, settle, show_embedding
from smart_mcp_proxy.cli.watch import follow_config
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.paths import serving_path
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.open_files import raise_limit
from smart_mcp_proxy.servers import ServerFile, configured_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.auth import OwnToken, own_token
from smart_mcp_proxy.web.serve import StopEvent, open_socket, serve_http, settled_process, stop_signals
from smart_mcp_proxy.web.sign_in import SignInDoor, asks_for_sign_in
from smart_mcp_proxy.web.signed_tokens import signed_tokens
from smart_mcp_proxy.web.stdio import serve_stdio

__all__ = ["check", "serve_agents_over_http", "serve_one_client"]

log = get_logger("serve")


async def serve_one_client(settings: Settings, *, passthrough: str | None = None, profile: str | None = None) -> int:
    """Serves the client on stdin and stdout until it leaves or a signal comes; returns the exit status.

    Raises:
        ConfigError: The configuration or the data directory cannot be used, or does not know the profile.
    """
    file = await _read_servers(settings)
    if profile is not None and profile not in file.profiles:
        raise ConfigError(
            f"Profile {profile!r} is not configured.", hint=f"Known: {', '.join(sorted(file.profiles)) or 'none'}."
        )
    with stop_signals() as stop, serving_path("" if profile is None else f"p/{profile}"):
        async with _open(settings, file, passthrough) as gateway:
            showing = spawn(show_embedding(gateway), "embedding bar")
            async with keeping_greeting(gateway, opening.record, passthrough, profile):
                try:
                    await serve_stdio(gateway, stop, opening.take())
                finally:
                    showing.cancel()
    return _status(stop)


async def serve_agents_over_http(
    settings: Settings,
    listener: socket.socket,
    *,
    is_sse: bool = False,
    passthrough: str | None = None,
    as_json: bool = False,
) -> int:
    """Serves HTTP until a signal comes, and tells people what is there; returns the exit status.

    Args:
        settings: Frozen settings.
        listener: Listens already.
        is_sse: Whether people are told of the older transport's address.
        passthrough: The one server whose tools agents see, instead of the gateway's.
        as_json: Whether the report is one JSON object on stdout.

    Raises:
        ConfigError: The configuration or the data directory cannot be used.
    """
    file = await _read_servers(settings)
    sign_in = await _sign_in(settings)
    token = own_token(settings, has_signed=signed_tokens(settings) is not None or sign_in is not None)
    with stop_signals() as stop:
        address = Address(settings.host, listener.getsockname()[1], is_sse=is_sse, has_token=token.value is not None)
        async with (
            _open(settings, file, passthrough) as gateway,
            serve_http(gateway, listener, token=token.value, sign_in=sign_in),
        ):
            gateway.start_upstreams()
            _tell_token(token, settings)
            telling = spawn(_tell(gateway, address, as_json=as_json), "start report")
            await stop.wait()
            telling.cancel()
    if settings.log_format == "console":
        say("Stopped.")
    return _status(stop)


async def check(settings: Settings, *, passthrough: str | None = None, as_json: bool = False) -> int:
    """Connects and lists every server, reports, and ends; returns 0 if all of them can be used, else 1.

    A tool that waits for approval cannot be used.

    Raises:
        ConfigError: The configuration as a whole, or the data directory, cannot be used.
    """
    file = await _read_servers(settings, is_logged=False)
    async with Gateway(settings, file.servers, environ=start_environment(settings), passthrough=passthrough) as gateway:
        gateway.start_upstreams()
        await settle(gateway, SETTLE_S)
        async with api_of(gateway) as api:
            summary = await summarize(api)
    problems = [problem for problem in file.problems if problem.severity == "error"]
    unfit = [server["name"] for server in summary["servers"] if server["state"] not in ("ready", "disabled")]
    waiting = list(filter(None, map(waiting_text, summary["servers"])))
    is_ok = bool(file.servers) and not (unfit or problems or waiting)
    if as_json:
        facts = [{"server": one.server, "message": one.message, "severity": one.severity} for one in file.problems]
        show_json({"ok": is_ok, "config": file.source, **summary, "problems": facts})
        return 0 if is_ok else 1
    show_report(summary, None, to_stdout=True)
    for problem in file.problems:
        say(f"{problem.severity}: {problem}")
    say("All servers can be used." if is_ok else "Not everything can be used.")
    if not is_ok:
        say("Next: mcpproxy approve" if waiting and not (unfit or problems) else "Next: mcpproxy doctor")
    return 0 if is_ok else 1


async def _read_servers(settings: Settings, *, is_logged: bool = True) -> ServerFile:
    file = await to_thread.run_sync(configured_servers, settings, Path.cwd())
    for problem in file.problems if is_logged else ():
        log.warning("%s", problem)
    return file


async def _sign_in(settings: Settings) -> SignInDoor | None:
    if not asks_for_sign_in(settings):
        return None
    # Here and not above: it takes a quarter of a second that all others are spared.
    from smart_mcp_proxy.web.sign_in_pages import open_sign_in

    return await open_sign_in(settings)


@asynccontextmanager
async def _open(settings: Settings, file: ServerFile, passthrough: str | None) -> AsyncIterator[Gateway]:
    """A gateway that the command line can reach and that follows its configuration."""
    raise_limit()
    async with (
        Gateway(
            settings, file.servers, profiles=file.profiles, environ=start_environment(settings), passthrough=passthrough
        ) as gateway,
        open_socket(gateway),
    ):
        following = follow_config(settings, Path.cwd(), file, gateway.apply, on_follow=gateway.management.apply_with)
        watching = spawn(following, "config watch")
        try:
            async with settled_process():
                yield gateway
        finally:
            watching.cancel()
            await asyncio.wait([watching])


def _tell_token(token: OwnToken, settings: Settings) -> None:
    """Says where a token that was made here is; the person who started the gateway on a terminal sees it once."""
    if token.file is None:
        return
    if settings.log_format != "console":
        log.info("agents must send the token in %s", token.file)
        return
    say(f"Other machines can reach {settings.host}, so agents must send the token in {token.file}")
    if token.is_new and sys.stderr.isatty():
        say(f"Shown this once: {token.value}")


async def _tell(gateway: Gateway, address: Address, *, as_json: bool) -> None:
    """Says that the gateway listens, and once the servers have answered what it has to offer."""
    is_for_people = gateway.settings.log_format == "console"
    if is_for_people:
        say(f"Listening on {address.url}")
    await settle(gateway, SETTLE_S)
    async with api_of(gateway) as api:
        summary = await summarize(api)
    if as_json:
        show_json({"url": address.url, "health": address.health_url, **summary})
    elif is_for_people:
        show_report(summary, address)
        await show_embedding(gateway)
    else:
        log.info("serving %s: %s", address.url, json.dumps({row["name"]: row["state"] for row in summary["servers"]}))


def _status(stop: StopEvent) -> int:
    """130 after Ctrl-C, as a shell expects it; an end that was asked for in another way is a success."""
    return 128 + signal.SIGINT if stop.number == signal.SIGINT else 0
