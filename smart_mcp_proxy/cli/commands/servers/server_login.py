"""`mcpproxy login` and `server login|logout`: where a person is asked to sign in to a server."""

import asyncio
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
from anyio import to_thread
from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.access import open_api, record_access
from smart_mcp_proxy.cli.support.api import read_servers
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, next_step, report
from smart_mcp_proxy.cli.support.output import clean, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import has_desktop, open_settings
from smart_mcp_proxy.errors import ConfigError, ProxyError, ServerNotFoundError
from smart_mcp_proxy.models import LOCAL, ServerState
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, collect_secrets, expand, read_oauth, require_named
from smart_mcp_proxy.settings import Settings, environment
from smart_mcp_proxy.telemetry import secrets_hidden

if TYPE_CHECKING:
    from smart_mcp_proxy.upstream import CallbackServer

_WITHOUT_BROWSER = """\
On a machine without a browser, open the printed address on another one. At the end
its browser shows a page that cannot be loaded: paste that page's address here. Or set
"redirect_port" under the entry's "oauth" and forward it: ssh -L 8765:127.0.0.1:8765 HOST"""

app = App(
    name="login",
    help_epilogue=f"""\
Examples:
  mcpproxy login
  mcpproxy login notion
  mcpproxy login notion --no-browser
  mcpproxy login --list

{_WITHOUT_BROWSER}""",
)


def add_login_commands(server_app: App) -> None:
    """Adds the commands `login` and `logout` to `server_app`."""
    server_app.command(
        login,
        help_epilogue=f"""\
Examples:
  mcpproxy server login notion
  mcpproxy server login notion --no-browser

{_WITHOUT_BROWSER}""",
    )
    server_app.command(logout, help_epilogue="Examples:\n  mcpproxy server logout notion")


@app.default
async def login(
    name: str | None = None,
    /,
    *,
    no_browser: bool = False,
    person: str = LOCAL.id,
    list_only: Annotated[bool, Parameter(name="--list")] = False,
    json: bool = False,
) -> int:
    """Sign in to all servers that wait for it, or to one.

    One after the other, with OAuth. What that brings is kept encrypted in the data directory. Prints the address to
    sign in at and waits up to 300 s. A running gateway takes the sign-in up within 2 s.

    Args:
        name: Server name; all servers that wait for a sign-in if left out.
        no_browser: Only print the address.
        person: Whose sign-in it is, at a server where each person has their own.
        list_only: Sign in nowhere; show how the sign-ins stand, and since when.
        json: Print {"server", "issuer", "scopes", "expires_at_s", "is_renewable"}, as a list where no server is named;
            with --list [{"server", "state", "since_s", "scopes", "url", "hint"}].
    """
    settings = open_settings()
    if list_only:
        await _show_sign_ins(settings, name, person, as_json=json)
        return 0
    is_desktop = not no_browser and has_desktop()
    if name is not None:
        servers = await read_servers(settings)
        signed_in = await _perform_login(settings, name, servers, person, is_desktop=is_desktop)
        if json:
            show_json(signed_in)
        return 0
    return await _sign_in_to_all(settings, is_desktop=is_desktop, as_json=json)


async def _show_sign_ins(settings: Settings, name: str | None, person: str, *, as_json: bool) -> None:
    """Show a person's sign-ins, and those that all have together."""
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.gateway.admin.own_sign_ins import look_up
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import open_sign_ins
    from smart_mcp_proxy.upstream import TlsContext

    servers = await read_servers(settings)
    if name is not None:
        require_named(name, servers)
    named = [config for config in servers.values() if name in (None, config.name) and config.can_use_oauth]
    async with open_sign_ins(settings, TlsContext(environment())) as sign_ins:
        found = [await look_up(sign_ins, config, environment(), person) for config in named]
    shown = [each for each in found if each.state != "none" or servers[each.server].is_personal or name is not None]
    if as_json:
        show_json(msgspec.to_builtins(shown))
        return
    if not shown:
        say("Nobody has signed in to a server.")
        return
    rows = []
    for each in shown:
        since = "" if each.since_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(each.since_s))
        rows.append([clean(each.server), each.state.replace("_", " "), since, clean(" ".join(each.scopes))])
    show(table(["server", "sign-in", "since", "scopes"], rows))


async def _sign_in_to_all(settings: Settings, *, is_desktop: bool, as_json: bool) -> int:
    """Sign in to each server that waits; a failure does not keep the others from their turn."""
    servers = await read_servers(settings)
    waiting = await _find_needing_auth(settings, servers)
    done, failed = [], 0
    for place, (name, hint) in enumerate(waiting.items(), start=1):
        say(f"Server '{name}' ({place} of {len(waiting)})", style="bold")
        if not servers[name].can_use_oauth:
            say(clean(hint), style="yellow")
            failed += 1
            continue
        try:
            done.append(await _perform_login(settings, name, servers, LOCAL.id, is_desktop=is_desktop))
        except ProxyError as error:
            report(error, as_json=False)
            failed += 1
    if as_json:
        show_json(done)
    if not waiting:
        say("No server waits for a sign-in.")
    elif failed:
        say(f"Signed in to {plural(len(done), 'server')}; {failed} still {'waits' if failed == 1 else 'wait'}.")
    return 1 if failed else 0


async def _find_needing_auth(settings: Settings, servers: Mapping[str, ServerConfig]) -> dict[str, str]:
    """The servers that let nobody in, each with its hint; programs are not started to find out."""
    remote = {name: config for name, config in servers.items() if config.transport != "stdio"}
    if not remote:
        return {}
    async with open_api(settings, remote) as api:
        rows = (await api.status())["servers"]
    needs = {row["name"]: row["hint"] for row in rows if row["state"] == ServerState.NEEDS_AUTH}
    return {name: needs[name] for name in remote if name in needs}


async def _perform_login(
    settings: Settings, name: str, servers: Mapping[str, ServerConfig], person: str, *, is_desktop: bool
) -> dict[str, Any]:
    """Sign in to one server; returns the facts of it."""
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import open_sign_ins
    from smart_mcp_proxy.upstream import CallbackServer, TlsContext

    config = await _resolve_login_config(name, servers, person)
    options = read_oauth(name, config.oauth or {})
    with secrets_hidden(collect_secrets(config)), next_step(f"mcpproxy server show {shell_word(name)}"):
        async with open_sign_ins(settings, TlsContext(environment())) as sign_ins:
            if options.grant == "client_credentials":
                signed_in = await sign_ins.authorize_server(config, None)
            else:
                say(f"Asking server '{name}' where to sign in ...", style="dim")
                browser = CallbackServer(
                    name, options.redirect_port, lambda url: _present(url, browser, is_desktop=is_desktop)
                )
                async with browser:
                    with _accept_pasted_addresses(browser):
                        signed_in = await sign_ins.authorize_server(config, browser)
    await record_access(settings, "signed in", person, name)
    is_renewable = bool(signed_in.refresh_token) or options.grant == "client_credentials"
    say(clean(f"Signed in to server '{name}' at {signed_in.issuer}."), style="green")
    if not is_renewable:
        say("It cannot be renewed: when it has run out, sign in again.")
    facts: dict[str, Any] = {"server": name, "issuer": signed_in.issuer, "scopes": signed_in.scope.split()}
    return facts | {"expires_at_s": signed_in.expires_at_s or None, "is_renewable": is_renewable}


def _present(url: str, browser: "CallbackServer", *, is_desktop: bool) -> None:
    """Shows the address, alone on its line, and how it goes on; opens it where that can be seen."""
    from smart_mcp_proxy.upstream import LOGIN_TIMEOUT_S

    say("Open this address in a browser and sign in:")
    say()
    say(clean(url))
    say()
    if is_desktop:
        # Without a shell, and in a thread: some browsers only return when they are closed.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    else:
        place = urlsplit(browser.redirect_uri)
        way = "paste that page's address here" if sys.stdin.isatty() else "on this machine: curl 'THAT ADDRESS'"
        say("No browser on this machine? Open it on any other. In the end that browser shows a page that")
        say(f"cannot be loaded ({place.netloc}): {way}.")
        say(f"Or forward the port before you open it: ssh -L {place.port}:{place.netloc} THIS-HOST")
    say(f"Waiting up to {LOGIN_TIMEOUT_S:g} s for the browser to come back; Ctrl-C gives up.", style="dim")


@contextmanager
def _accept_pasted_addresses(browser: "CallbackServer") -> Iterator[None]:
    """Takes addresses that are pasted into the terminal for as long as it is open."""
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, _read_pasted, browser.take, lambda: loop.remove_reader(sys.stdin))
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


def _read_pasted(take: Callable[[str], bool], stop: Callable[[], object]) -> None:
    line = sys.stdin.readline()  # the terminal hands over whole lines
    if not line:
        stop()
    elif line.strip() and not take(line.strip()):
        say("That is not the address that this sign-in ends at.", style="yellow")


async def logout(name: str, /, *, person: str = LOCAL.id, json: bool = False) -> None:
    """Give a server's sign-in back where its authorization server offers that, and forget it.

    Args:
        name: Server name.
        person: Whose sign-in it is, at a server where each person has their own.
        json: Print {"server", "was_signed_in", "is_revoked", "problem"}.
    """
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import open_sign_ins  # see _perform_login
    from smart_mcp_proxy.upstream import TlsContext

    settings = open_settings()
    config = await _resolve_login_config(name, await read_servers(settings), person)
    with secrets_hidden(collect_secrets(config)):
        async with open_sign_ins(settings, TlsContext(environment())) as sign_ins:
            done = await sign_ins.sign_out(config)
    if done.was_signed_in:
        await record_access(settings, "signed out", person, name)
    if json:
        facts = {"server": name, "was_signed_in": done.was_signed_in, "is_revoked": done.is_revoked}
        show_json(facts | {"problem": done.problem})
        return
    if not done.was_signed_in:
        say(f"Nobody was signed in to server '{name}'.")
        return
    say(f"Forgot the sign-in to server '{name}'" + (" and revoked it." if done.is_revoked else "."))
    if done.problem:
        say(clean(f"It was not revoked: {done.problem}"), style="yellow")


async def _resolve_login_config(name: str, servers: Mapping[str, ServerConfig], person: str) -> ServerConfig:
    """The server as it is connected to, its placeholders filled in.

    Raises:
        ServerNotFoundError: There is none of that name.
        UsageError: It is not one to sign in to.
        QuarantinedError: It waits for approval: nothing is asked of it before.
        ConfigError: Its entry cannot be used.
    """
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.gateway.shared.refusals import server_quarantined

    config = servers.get(name)
    if config is None:
        raise ServerNotFoundError(
            f"Server '{name}' is not configured.", hint=f"Known: {', '.join(sorted(servers)) or 'none'}."
        )
    if config.quarantined:
        raise server_quarantined(name)
    if config.refusal is not None:
        raise ConfigError(config.refusal[0], hint=config.refusal[1])
    if config.transport == "stdio":
        raise add_next_step(
            UsageError(f"Server '{name}' is a program started here; it gets its credentials from 'env'."),
            f"mcpproxy server patch {shell_word(name)} 'env.TOKEN=${{env:TOKEN}}'",
        )
    if not config.can_use_oauth:
        word = shell_word(name)
        if config.raw.get("oauth") is False:
            error = ConfigError(f"The entry of server '{name}' says that nobody signs in.", hint="Take that out first.")
            error.add_note(f"mcpproxy server patch {word} oauth=null")
        else:
            error = ConfigError(
                f"Server '{name}' is sent an Authorization header from its entry, so a sign-in would not be used.",
                hint="Remove the header to sign in.",
            )
            error.add_note(f"mcpproxy server patch {word} headers.Authorization=null")
        raise error
    expanded = await to_thread.run_sync(expand, config, environment())
    return msgspec.structs.replace(expanded, person=person) if config.is_personal else expanded
