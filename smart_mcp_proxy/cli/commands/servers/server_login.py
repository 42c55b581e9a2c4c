"""`mcpproxy server login` and `logout`: the only place where a person is asked to sign in to a server."""

import sys
import threading
import webbrowser
from typing import Any

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.api import read_servers
from smart_mcp_proxy.cli.support.failure import UsageError, next_step
from smart_mcp_proxy.cli.support.output import clean, say, show_json
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ConfigError, ServerNotFoundError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, expand, read_oauth, secrets_of
from smart_mcp_proxy.settings import Settings, environment
from smart_mcp_proxy.telemetry import secrets_hidden

__all__ = ["add_sign_in"]

_ADD = 'Add "oauth": true to its entry in mcp_config.json.'


def add_sign_in(app: App) -> None:
    """Adds the commands `login` and `logout` to `app`."""
    app.command(
        login,
        help_epilogue="""\
Examples:
  mcpproxy server login notion
  mcpproxy server login notion --no-browser

On a machine without a browser, set "redirect_port" under the entry's "oauth", forward that port
(ssh -L 8765:127.0.0.1:8765 HOST), and open the printed address at home.""",
    )
    app.command(logout, help_epilogue="Examples:\n  mcpproxy server logout notion")


async def login(name: str, /, *, no_browser: bool = False, json: bool = False) -> None:
    """Sign in to a server with OAuth, and keep the sign-in encrypted in the data directory.

    Prints the address to sign in at and waits up to 300 s. A running gateway takes the sign-in up within 2 s.

    Args:
        name: Server name.
        no_browser: Only print the address.
        json: Print {"server", "issuer", "scopes", "expires_at_s", "is_renewable"}.
    """
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import opened_sign_ins
    from smart_mcp_proxy.upstream import LOGIN_TIMEOUT_S, CallbackServer, TlsContext

    settings = open_settings()
    config = await _configured(settings, name)
    options = read_oauth(name, config.oauth or {})

    def present(url: str) -> None:
        say("Open this address in a browser and sign in:")
        say(clean(url))
        say(f"Waiting up to {LOGIN_TIMEOUT_S:g} s for the browser to come back; Ctrl-C gives up.", style="dim")
        if not no_browser and _has_desktop():
            # Without a shell, and in a thread: some browsers only return when they are closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    with secrets_hidden(secrets_of(config)), next_step(f"mcpproxy server login {shell_word(name)}"):
        async with opened_sign_ins(settings, TlsContext(environment())) as sign_ins:
            if options.grant == "client_credentials":
                signed_in = await sign_ins.sign_in(config, None)
            else:
                say(f"Asking server '{name}' where to sign in ...", style="dim")
                async with CallbackServer(name, options.redirect_port, present) as browser:
                    signed_in = await sign_ins.sign_in(config, browser)
    is_renewable = bool(signed_in.refresh_token) or options.grant == "client_credentials"
    if json:
        facts: dict[str, Any] = {"server": name, "issuer": signed_in.issuer, "scopes": signed_in.scope.split()}
        show_json(facts | {"expires_at_s": signed_in.expires_at_s or None, "is_renewable": is_renewable})
        return
    say(clean(f"Signed in to server '{name}' at {signed_in.issuer}."), style="green")
    if not is_renewable:
        say("It cannot be renewed: when it has run out, sign in again.")


async def logout(name: str, /, *, json: bool = False) -> None:
    """Give a server's sign-in back where its authorization server offers that, and forget it.

    Args:
        name: Server name.
        json: Print {"server", "was_signed_in", "is_revoked", "problem"}.
    """
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import opened_sign_ins  # see login
    from smart_mcp_proxy.upstream import TlsContext

    settings = open_settings()
    config = await _configured(settings, name)
    with secrets_hidden(secrets_of(config)):
        async with opened_sign_ins(settings, TlsContext(environment())) as sign_ins:
            done = await sign_ins.sign_out(config)
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


async def _configured(settings: Settings, name: str) -> ServerConfig:
    """The server as it is connected to, its placeholders filled in.

    Raises:
        ServerNotFoundError: There is none of that name.
        UsageError: It is not one to sign in to.
        ConfigError: Its entry cannot be used.
    """
    servers = await read_servers(settings)
    config = servers.get(name)
    if config is None:
        raise ServerNotFoundError(
            f"Server '{name}' is not configured.", hint=f"Known: {', '.join(sorted(servers)) or 'none'}."
        )
    if config.transport == "stdio":
        raise UsageError(f"Server '{name}' is a program started here; it gets its credentials from 'env'.")
    if config.oauth is None:
        error = ConfigError(f"Server '{name}' is not set up for a sign-in.", hint=_ADD)
        error.add_note(f"mcpproxy server login {shell_word(name)}")
        raise error
    return await to_thread.run_sync(expand, config, environment())


def _has_desktop() -> bool:
    """Whether a browser window can be opened for the person at this terminal."""
    environ = environment()
    has_screen = sys.platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    return has_screen and not environ.get("SSH_CONNECTION") and sys.stderr.isatty()
