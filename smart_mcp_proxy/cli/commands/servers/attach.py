"""`mcpproxy attach`: a client that only starts programs, on a gateway that runs."""

import sys
from typing import Annotated

from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.arguments import parse_address, parse_headers
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.desktop.http.address import read_address, takes_token
from smart_mcp_proxy.settings import environment

app = App(
    name="attach",
    help_epilogue="""\
For clients that cannot be given an address. stdout belongs to the protocol.
MCPPROXY_AUTH_TOKEN is sent to an address on this machine.

Examples:
  mcpproxy attach http://127.0.0.1:8000/mcp
  mcpproxy attach https://tools.example.com/mcp --header 'Authorization: Bearer ...'""",
)


@app.default
def attach(url: str, /, *, header: Annotated[list[str] | None, Parameter(negative=())] = None) -> int:
    """Carry messages between stdio and a gateway that runs.

    Args:
        url: Its address, such as http://127.0.0.1:8000/mcp.
        header: 'NAME: VALUE' to send with every request; may be repeated.
    """
    plain = parse_address(url)
    if sys.stdin.isatty():
        raise UsageError("A client starts this and writes to it; a terminal is none.", hint="Name it in a client.")
    address = read_address(plain, parse_headers(header or []))
    token = open_settings().auth_token
    if token is not None and takes_token(address):
        address.headers["authorization"] = f"Bearer {token.get_secret_value()}"
    # Here and not above: a mistyped address is answered without them.
    from smart_mcp_proxy.desktop.http.door import HttpDoor
    from smart_mcp_proxy.upstream.proxies import find_environ_proxy

    scheme = "https" if address.is_tls else "http"
    if (proxy := find_environ_proxy(environment(), scheme, address.host, address.port)) is not None:
        address = address.go_through(*proxy)
    return HttpDoor(address).run()
