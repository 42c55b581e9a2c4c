"""Proxy of the gateway in a server's own network, the only way out where its entry lists hosts.

Refused: *Landlock's rights to connect by port.* They name no address, so the proxy's port would be open everywhere.
"""

import asyncio
import contextlib
import re
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.io.server_processes import listens_at
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.isolation import NetworkHost
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.addresses import AddressReach, classify_address
from smart_mcp_proxy.upstream.proxies import find_environ_proxy, tunnel

_PROGRAM: Final = str(Path(__file__).with_name("own_network.py"))
_PORTS: Final = range(3128, 3300)
"""Ports of the proxy in the server's network, where nothing else is: it has the first that the entry does not name."""
_PROXY_VARIABLE: Final = r"(?i).*proxy"
_HEAD_S: Final = 30.0
_CONNECT_S: Final = 30.0
_MOST_CONNECTIONS: Final = 128
"""Each takes two of the gateway's open files."""
_MOST_TOLD: Final = 100
_CHUNK_BYTES: Final = 1 << 16
_MOST_DESCRIPTORS: Final = 253
"""Sent at once. Source: https://man7.org/linux/man-pages/man7/unix.7.html"""


class HostProxy:
    """Carries the connections of one server to the hosts that its entry lists.

    Args:
        server: Its name.
        hosts: That it may reach.
        environ: The gateway's own, for proxies on the way.
        tell: Told of each host that is refused, once, a line.

    Attributes:
        ended: Set once its server is gone.
    """

    def __init__(
        self, server: str, hosts: Sequence[str], environ: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._server, self._environ, self._tell = server, environ, tell
        self._hosts = [NetworkHost.read(text) for text in hosts]
        here = [host for host in self._hosts if host.is_here]
        self._port = next(port for port in _PORTS if all(port != host.port for host in here))
        # What is on this machine is found at its own place: programs ask no proxy for it.
        self._places: dict[str, NetworkHost | None] = {
            f"{'127.0.0.1' if 'localhost' in host.name else host.name}:{host.port}": host for host in here
        }
        self._places[f"127.0.0.1:{self._port}"] = None
        self._listening: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HostProxy of {self._server}, {len(self._tasks)} connections>"

    def lead(self, command: Sequence[str], end: int) -> list[str]:
        """The command in a network of its own, which sends what listens there through the socket `end`."""
        return [sys.executable, "-I", "-S", _PROGRAM, str(end), ",".join(self._places), *command]

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables of the server with those that lead to the proxy; no other proxy can be reached."""
        address, here = f"http://127.0.0.1:{self._port}", "localhost,127.0.0.1,::1"
        names = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": here}
        others = {name: text for name, text in variables.items() if not re.fullmatch(_PROXY_VARIABLE, name)}
        # Node looks at none of them otherwise.
        return others | names | {name.lower(): text for name, text in names.items()} | {"NODE_USE_ENV_PROXY": "1"}

    async def serve(self, end: socket.socket) -> None:
        """Take what listens in the server's network, and serve it until `close`.

        Raises:
            UpstreamError: The system gives it no network.
        """
        words, descriptors, *_ = await asyncio.to_thread(socket.recv_fds, end, 1024, _MOST_DESCRIPTORS)
        listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not listeners:
            raise refuse_hosts(self._server, f"the system gives it no network of its own: {words.decode() or 'gone'}")
        for listener, here in zip(listeners, self._places.values(), strict=True):
            self._listening.append(await asyncio.start_server(partial(self._accept, here), sock=listener))

    def close(self) -> None:
        """End it with all connections: its server is gone."""
        self.ended.set()
        for each in self._listening:
            each.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self, here: NetworkHost | None, near: StreamReader, back: StreamWriter) -> None:
        if len(self._tasks) >= _MOST_CONNECTIONS:
            back.transport.abort()
            return
        task = spawn(self._carry(here, near, back), f"carry-{self._server}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, here: NetworkHost | None, near: StreamReader, back: StreamWriter) -> None:
        """Carry one connection, to where it was made or to where its first request asks for."""
        with contextlib.closing(back):
            try:
                async with asyncio.timeout(_HEAD_S):
                    target, first = (here, b"") if here else _read_request(await near.readuntil(b"\r\n\r\n"))
                async with asyncio.timeout(_CONNECT_S):
                    far, out = await self._connect(target)
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, UpstreamError) as exc:
                status = "403" if isinstance(exc, PermissionError) else "502"
                if here is None:
                    back.write(f"HTTP/1.1 {status} {exc}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            with contextlib.closing(out):
                if first:
                    out.write(first)
                elif here is None:
                    back.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                try:
                    async with anyio.create_task_group() as both:
                        both.start_soon(_copy, near, out)
                        both.start_soon(_copy, far, back)
                except* OSError:
                    pass  # one of them has hung up, which ends the other

    async def _connect(self, target: NetworkHost) -> tuple[StreamReader, StreamWriter]:
        """A connection to a host.

        Raises:
            PermissionError: It may not be reached; how it could be is said.
        """
        if not any(host.covers(*target) for host in self._hosts):
            raise self._refuse(
                target, f"which allow.network does not list: {hint_host(self._server, write_host(target))}"
            )
        if proxy := find_environ_proxy(self._environ, "https", *target):
            return await asyncio.open_connection(sock=await tunnel(proxy, *target))
        far, out = await asyncio.open_connection(*target)
        own, peer = (str(out.get_extra_info(name)[0]) for name in ("sockname", "peername"))
        reach = AddressReach.LOOPBACK if own == peer else classify_address(peer)
        if reach >= AddressReach.LOOPBACK and not _is_address(target):
            out.close()
            raise self._refuse(target, f"which leads to {peer}: allow.network has to name that itself")
        if reach is AddressReach.LOOPBACK and listens_at(target.port):
            out.close()
            raise self._refuse(target, "which is the gateway's own")
        return far, out

    def _refuse(self, target: NetworkHost, why: str) -> PermissionError:
        words = f"mcpproxy refused a connection to {write_host(target)}, {why}"
        if words not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(words)
            self._tell(words)
        return PermissionError(words)


def open_hosts(config: ServerConfig, environ: Mapping[str, str], tell: Callable[[str], None]) -> HostProxy | None:
    """The way out of a server whose entry lists hosts; None where it lists none.

    Raises:
        UpstreamError: It is not to run in a sandbox, and nothing else keeps it to them.
    """
    allow, mode = config.isolation.allow, config.isolation.mode
    if allow is None or isinstance(allow.network, bool):
        return None
    if mode != "sandbox":
        held = "in a container, which does not keep to them" if mode == "container" else "unconfined"
        raise refuse_hosts(config.name, f"it is to run {held}")
    return HostProxy(config.name, allow.network, environ, tell)


def write_host(host: NetworkHost) -> str:
    """The host as an entry names it."""
    name = f"[{host.name}]" if ":" in host.name else host.name
    return f"{name}:{host.port}" if host.port else name


def refuse_hosts(server: str, reason: str) -> UpstreamError:
    """The error for a server whose hosts cannot be kept apart."""
    return UpstreamError(
        f"Server '{server}' may reach listed hosts alone (allow.network), and {reason}.",
        hint=f'"isolation": "sandbox" does that where bubblewrap works. To open the network: {hint_host(server, "on")}',
    )


def hint_host(server: str, host: str) -> str:
    """The command that lets a server reach a host."""
    return f"mcpproxy server allow {shell_word(server)} --network {shell_word(host)}"


def _read_request(head: bytes) -> tuple[NetworkHost, bytes]:
    """Target of the first request to a proxy, and what is sent there in its place; nothing for a tunnel.

    All of a connection goes to that one host, whatever later requests name.

    Raises:
        ValueError: It is no request to a proxy.

    Source: RFC 9110, section 9.3.6; RFC 9112, section 3.2.2
    """
    line, _, rest = head.partition(b"\r\n")
    method, place, version = line.decode("ascii").split(" ")
    if method == "CONNECT":
        return NetworkHost.read(place), b""
    parts = urlsplit(place)
    if parts.scheme != "http":
        raise ValueError("This proxy takes CONNECT and http://")
    target = NetworkHost.read(write_host(NetworkHost(parts.hostname or "", parts.port or 80)))
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    kept = [each for each in rest.split(b"\r\n") if not each.lower().startswith((b"proxy-", b"connection:"))]
    return target, b"\r\n".join([f"{method} {path} {version}".encode(), b"Connection: close", *kept])


async def _copy(source: StreamReader, sink: StreamWriter) -> None:
    while chunk := await source.read(_CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()
    sink.write_eof()


def _is_address(host: NetworkHost) -> bool:
    """Whether it is no name that somebody else can lead elsewhere."""
    return host.is_here or ":" in host.name or host.name.rpartition(".")[2].isdecimal()
