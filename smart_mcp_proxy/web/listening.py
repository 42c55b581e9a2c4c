"""The listening socket; imports nothing slow, as it listens before the gateway is loaded."""

import errno
import socket
from pathlib import Path
from typing import Any

from smart_mcp_proxy.desktop.port_holder import PortHolder, find_port_holder
from smart_mcp_proxy.desktop.spelling import spell_command
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
        raise _build_refusal(host, port, exc) from exc
    return listener


def _build_refusal(host: str, port: int, exc: OSError) -> ConfigError:
    """The error of a port that cannot be used, with who has it and how to talk to that."""
    message = f"Port {port} on {host} cannot be used: {exc.strerror or exc}."
    hint = "Stop the other program or set MCPPROXY_PORT to a free port (0 picks one)."
    holder = find_port_holder(port) if exc.errno == errno.EADDRINUSE else PortHolder()
    if holder.data_dir:
        hint = "To talk to it, use that data directory. Else set MCPPROXY_PORT to a free port (0 picks one)."
        error = ConfigError(f"{message} {describe_gateway(holder)}", hint=hint)
        error.add_note(spell_command("ui", data_dir=holder.data_dir))
        return error
    return ConfigError(f"{message} Process {holder.pid} ({holder.name}) has it." if holder.pid else message, hint=hint)


def find_other_gateway(port: int, data_dir: Path) -> PortHolder | None:
    """Find the gateway at a port that has a different data directory; commands do not reach it."""
    holder = find_port_holder(port)
    return holder if holder.data_dir not in ("", str(data_dir.absolute())) else None


def describe_gateway(holder: PortHolder) -> str:
    """Say which gateway listens at a port; commands reach it by its data directory."""
    return f"A gateway has it (process {holder.pid}), with its data in {holder.data_dir}."


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
