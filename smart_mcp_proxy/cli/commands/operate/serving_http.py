"""Serving agents over HTTP from the command line: listening, and saying where."""

import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext

from smart_mcp_proxy.cli.commands.operate.serving import load_server_file, open_served_gateway, status_at
from smart_mcp_proxy.cli.support.local_gateway import open_local_api
from smart_mcp_proxy.cli.support.one_start import start_environment
from smart_mcp_proxy.cli.support.output import say, show_json
from smart_mcp_proxy.cli.support.report import GatewayAddress, show_report, summarize
from smart_mcp_proxy.cli.support.wait_ready import SETTLE_S, settle, show_embedding
from smart_mcp_proxy.desktop.spelling import spell_command
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.roles import OWNER
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import fields, get_logger, spawn
from smart_mcp_proxy.web.auth.auth import OwnToken, own_token
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn, is_sign_in_enabled
from smart_mcp_proxy.web.auth.signed_tokens import create_jwt_verifier
from smart_mcp_proxy.web.serve import stop_signals
from smart_mcp_proxy.web.serve_http import serve_http
from smart_mcp_proxy.web.stdio.joined import let_join

log = get_logger("serve")


async def serve_agents_over_http(
    settings: Settings,
    listener: socket.socket,
    *,
    is_sse: bool = False,
    passthrough: str | None = None,
    as_json: bool = False,
    worker: Worker = ALONE,
    is_reported: bool = False,
    on_report: Callable[[], object] | None = None,
) -> int:
    """Serves HTTP until a signal comes, and tells people what is there; returns the exit status.

    Args:
        settings: Frozen settings.
        listener: Listens already.
        is_sse: Whether people are told of the older transport's address.
        passthrough: The one server whose tools agents see, instead of the gateway's.
        as_json: Whether the report is one JSON object on stdout.
        worker: This process among its workers; the first of them tells people.
        is_reported: Whether people have been told already, by a worker that this one replaces.
        on_report: Called once they have been told.

    Raises:
        ConfigError: The configuration or the data directory cannot be used.
    """
    file = await load_server_file(settings)
    token = own_token(settings, has_signed=create_jwt_verifier(settings) is not None or is_sign_in_enabled(settings))
    is_first = worker.number == 0
    with stop_signals() as stop:
        address = GatewayAddress(
            settings.host, listener.getsockname()[1], is_sse=is_sse, has_token=token.value is not None
        )
        environ = dict(start_environment(settings))
        async with (
            open_served_gateway(settings, file, passthrough, worker, environ, is_http=True) as gateway,
            let_join(gateway, environ, stop, lambda: stop.number is not None)
            if is_first and passthrough is None and settings.shared
            else nullcontext(),
            serve_http(gateway, listener, token=token.value, sign_in=await _open_browser_login(gateway)),
        ):
            gateway.start_upstreams()
            telling = None
            if is_first and not is_reported:
                telling = spawn(_tell(gateway, token, address, on_report, as_json=as_json), "start report")
            await stop.wait()
            if telling is not None:
                telling.cancel()
    if is_first and settings.log_format == "console":
        say("Stopped.")
    return status_at(stop)


async def _open_browser_login(gateway: Gateway) -> BrowserSignIn | None:
    if not is_sign_in_enabled(gateway.settings):
        return None
    # Here and not above: it takes a quarter of a second that all others are spared.
    from smart_mcp_proxy.web.auth.sign_in_pages import open_oidc_login

    return await open_oidc_login(gateway.settings, gateway.catalog, gateway.base.config.profiles)


def _tell_token(token: OwnToken, settings: Settings) -> None:
    """Print where a new token is; the person at a terminal sees it once."""
    if token.file is None:
        return
    if settings.log_format != "console":
        log.info("agents must send the token in %s", token.file)
        return
    say(f"Other machines can reach {settings.host}, so agents must send the token in {token.file}")
    if token.is_new and sys.stderr.isatty():
        say(f"Shown this once: {token.value}")


async def _spell_page(gateway: Gateway) -> str:
    """Spell the way to the page: on a terminal a link that works once, which no log may hold."""
    command = spell_command("ui", data_dir=str(gateway.settings.data_dir.absolute()))
    if not sys.stderr.isatty():
        return command
    try:
        link = await gateway.admin.page_sessions.make_link(OWNER)
    except ProxyError:  # the command says why
        return command
    return f"{link.url}\n        It works once, in the next {link.expires_in_s / 60:.0f} minutes. Later: {command}"


async def _tell(
    gateway: Gateway, token: OwnToken, address: GatewayAddress, on_report: Callable[[], object] | None, *, as_json: bool
) -> None:
    """Says that the gateway listens, and once the servers have answered what it has to offer."""
    _tell_token(token, gateway.settings)
    is_for_people = gateway.settings.log_format == "console"
    if is_for_people:
        say(f"Listening on {address.url}")
    await settle(gateway, SETTLE_S, has_lines=False)  # it serves meanwhile
    async with open_local_api(gateway) as api:
        summary = await summarize(api)
    if as_json:
        show_json({"url": address.url, "health": address.health_url, **summary})
    elif is_for_people:
        show_report(summary, address, await _spell_page(gateway))
    else:
        states = {row["name"]: row["state"] for row in summary["servers"]}
        shown = ", ".join(f"{name} {state}" for name, state in states.items())
        log.info("serving %s: %s", address.url, shown or "no servers", extra=fields(url=address.url, servers=states))
    if on_report is not None:
        on_report()
    if is_for_people and not as_json:
        await show_embedding(gateway)
