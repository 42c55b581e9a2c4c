"""`mcpproxy serve`: the gateway, over stdio or HTTP."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.loop import load_sparingly, run
from smart_mcp_proxy.cli.support.opening import opening
from smart_mcp_proxy.cli.support.output import say
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.servers import load_configured_servers
from smart_mcp_proxy.web.listening import bind

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

app = App(
    name="serve",
    help_epilogue="""\
The file that the servers come from is followed: what changes in it is
applied, and only that is restarted. A broken file changes nothing.

Examples:
  mcpproxy serve                           stdio, for a client that starts it
  mcpproxy serve --http --port 9000        one endpoint for many clients
  mcpproxy serve --passthrough github      one server's own tools, guarded
  mcpproxy serve --config servers.json --check""",
)


@app.default
def serve(  # noqa: PLR0913  (one parameter per flag)
    *,
    http: bool = False,
    sse: bool = False,
    host: str | None = None,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    workers: Annotated[int | None, Parameter(validator=Number(gte=1, lte=64))] = None,
    config: Path | None = None,
    passthrough: str | None = None,
    profile: str | None = None,
    alone: bool = False,
    check: bool = False,
    json: bool = False,
) -> int:
    """Start the gateway, over stdio or HTTP.

    Args:
        http: Serve streamable HTTP instead of MCPPROXY_TRANSPORT.
        sse: Serve HTTP for clients that only know the older SSE transport.
        host: Address to listen on (MCPPROXY_HOST).
        port: Port to listen on, 0 for a free one (MCPPROXY_PORT).
        workers: Processes that serve HTTP together (MCPPROXY_WORKERS).
        config: File that names the servers (MCPPROXY_CONFIG_PATH).
        passthrough: Show the tools of this one server under their own names, and nothing else.
        profile: Over stdio: only what this profile of the server file has. Over HTTP it is served at /mcp/p/NAME.
        alone: Over stdio: a gateway for this client alone, instead of the one that clients share (MCPPROXY_SHARED).
        check: Connect and list every server, report, and end; the exit status is 1 if one of them fails.
        json: With --check or HTTP: report as one JSON object on stdout.
    """
    if http and sse:
        raise UsageError("--http and --sse are both given.", hint="Use one: --http also serves clients of SSE.")
    transport: Literal["streamable-http", "sse"] | None = "sse" if sse else "streamable-http" if http else None
    flags: dict[str, Any] = {
        "transport": transport,
        "host": host,
        "port": port,
        "workers": workers,
        "config_path": config,
    }
    if check:
        # Here and below, not above: importing the gateway takes a second, and the command line is parsed before it.
        from smart_mcp_proxy.cli.commands.operate.serving_check import check as check_servers

        return run(check_servers(open_settings(**flags), passthrough=passthrough, as_json=json))
    log_level = "WARNING" if sys.stderr.isatty() else None
    settings = open_settings(is_serving=True, log_level=log_level, **flags)
    _require_one_view(settings, passthrough, profile, as_json=json)
    if settings.workers > 1 and settings.transport == "streamable-http":
        return run(serve_on_port(settings, flags, log_level, passthrough=passthrough, as_json=json))
    if workers is not None and workers > 1:
        raise UsageError("--workers goes with --http alone.")
    greet_anew(settings, is_whole=passthrough is None and profile is None)
    if settings.transport == "stdio":
        load_sparingly()
    return run(serve_settings(settings, passthrough=passthrough, profile=profile, as_json=json))


def _require_one_view(settings: "Settings", passthrough: str | None, profile: str | None, *, as_json: bool) -> None:
    """Raises UsageError where it is not clear which tools a client is to see, or where."""
    if as_json and settings.transport == "stdio":
        raise UsageError(
            "--json does not go with stdio: stdout belongs to the protocol.", hint="Add --http or --check."
        )
    if profile is not None and passthrough is not None:
        raise UsageError("--profile and --passthrough are both given.", hint="Use one of them.")
    if profile is not None and settings.transport != "stdio":
        raise UsageError("--profile goes with stdio.", hint=f"Over HTTP connect to /mcp/p/{profile} instead.")


async def serve_on_port(
    settings: "Settings", flags: Mapping[str, Any], log_level: str | None, *, passthrough: str | None, as_json: bool
) -> int:
    """Serves HTTP with several processes; returns the exit status.

    Raises:
        ConfigError: The address cannot be used.
        ProxyError: The system starts no processes.
    """
    from smart_mcp_proxy.cli.commands.operate.workers import serve_workers

    given = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    options = {"flags": given, "log_level": log_level, "passthrough": passthrough, "as_json": as_json}
    with closing(bind(settings.host, settings.port)) as listener:
        return await serve_workers(settings, listener, options)


def greet_anew(settings: "Settings", *, is_whole: bool) -> None:
    """Lets a client on stdio be answered before the gateway is imported, if this is the first start ever.

    Args:
        settings: As they are read.
        is_whole: The client sees the gateway, not one server or profile of it, for which nobody can answer yet.

    Raises:
        ConfigError: The configuration cannot be read as a whole.
    """
    if opening.record is not None:
        opening.begin_anew(settings, load_configured_servers(settings, Path.cwd()), is_whole=is_whole)


async def serve_settings(
    settings: "Settings", *, passthrough: str | None = None, profile: str | None = None, as_json: bool = False
) -> int:
    """Serves on the transport that the settings name; returns the exit status.

    Raises:
        ConfigError: The configuration, the address or the data directory cannot be used.
    """
    if settings.transport == "stdio":
        from smart_mcp_proxy.cli.commands.operate.serving import serve_one_client

        if sys.stdin.isatty():
            say("Waiting for an MCP client on stdin. For many clients: mcpproxy serve --http")
        return await serve_one_client(settings, passthrough=passthrough, profile=profile)
    # Before the gateway is imported: who connects meanwhile waits instead of being refused.
    with closing(bind(settings.host, settings.port)) as listener:
        load_sparingly(is_http=True)
        from smart_mcp_proxy.cli.commands.operate.serving_http import serve_agents_over_http

        return await serve_agents_over_http(
            settings, listener, is_sse=settings.transport == "sse", passthrough=passthrough, as_json=as_json
        )
