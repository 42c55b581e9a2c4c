"""The listening socket; imports nothing slow, as it listens before the gateway is loaded."""

import socket
from typing import Any

from smart_mcp_proxy.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; of a name with addresses of both families, at its IPv4 address.

    Raises:
        ConfigError: The address is taken or not ours.
    """
    family, address = _resolve_address(host, port)
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise ConfigError(
            f"Port {port} on {host} cannot be used: {exc.strerror or exc}.",
            hint="Stop the other program or set MCPPROXY_PORT to a free port (0 picks one).",
        ) from exc
    return listener


def _resolve_address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The family and address to listen at; `localhost` has no IPv4 address everywhere.

    Raises:
        ConfigError: The name is nobody's.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise ConfigError(
            f"MCPPROXY_HOST is '{host}', which is no address of this machine: {exc.strerror or exc}.",
            hint="Use 127.0.0.1, ::1 or localhost, or 0.0.0.0 or :: to be reached from elsewhere.",
        ) from exc
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address
