"""`mcpproxy attach`: a client that only starts programs, on a gateway that runs."""

import sys
from typing import Annotated

from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.arguments import gateway_host, parse_headers
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.settings import Settings

app = App(
    name="attach",
    help_epilogue="""\
For clients that cannot be given an address. stdout belongs to the protocol.
MCPPROXY_AUTH_TOKEN is sent to an address on this machine.

Examples:
  mcpproxy attach http://127.0.0.1:8000/mcp
  mcpproxy attach https://tools.example.com/mcp --header 'Authorization: Bearer ...'""",
)

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@app.default
async def attach(
    url: str,
    /,
    *,
    header: Annotated[list[str] | None, Parameter(negative=())] = None,
) -> int:
    """Carry messages between stdio and a gateway that runs.

    Args:
        url: Its address, such as http://127.0.0.1:8000/mcp.
        header: 'NAME: VALUE' to send with every request; may be repeated.
    """
    host = gateway_host(url)
    if sys.stdin.isatty():
        raise UsageError("A client starts this and writes to it; a terminal is none.", hint="Name it in a client.")
    headers = parse_headers(header or [])
    headers |= _token(open_settings(), host, headers)
    # Here and not above: a mistyped address is answered without it.
    from smart_mcp_proxy.cli.commands.servers.relay import StdioRelay

    await StdioRelay(url, headers, sys.stdout.buffer).run(sys.stdin.buffer)
    return 0


def _token(settings: Settings, host: str, headers: dict[str, str]) -> dict[str, str]:
    """The gateway's token, which only its own machine is sent."""
    if settings.auth_token is None or host not in _LOOPBACK or any(name.lower() == "authorization" for name in headers):
        return {}
    return {"Authorization": f"Bearer {settings.auth_token.get_secret_value()}"}
