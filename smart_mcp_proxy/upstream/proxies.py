"""HTTP proxies by HTTP_PROXY, HTTPS_PROXY and NO_PROXY, and the tunnel through them."""

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.upstream.addresses import AddressReach, classify_address

_PROXY_PORT: Final = 80
_HEAD_BYTES: Final = 16 * 1024


class HttpProxy(NamedTuple):
    """A proxy.

    Attributes:
        host: Its name or address.
        port: Its port.
        authorization: Value of `Proxy-Authorization`; empty for none. A secret.
    """

    host: str
    port: int
    authorization: str = ""

    def __repr__(self) -> str:
        return f"<Proxy {self.host}:{self.port}>"


def find_environ_proxy(environ: Mapping[str, str], scheme: str, host: str, port: int) -> HttpProxy | None:
    """The proxy for requests to this origin; None where they go directly, always on this machine.

    Raises:
        UpstreamError: What the variable holds is no http:// address.
    """
    if _is_this_machine(host):
        return None
    name = f"{scheme}_proxy"
    address = environ.get(name) or environ.get(name.upper(), "")
    if not address or _is_excepted(environ.get("no_proxy") or environ.get("NO_PROXY", ""), host, port):
        return None
    proxy = _read(address if "://" in address else f"http://{address}")
    if proxy is None:
        raise UpstreamError(
            f"{name.upper()} is no http:// address of a proxy, so {host} cannot be reached.",
            hint="Other kinds of proxies are not supported: correct it, or name the host in NO_PROXY.",
        )
    return proxy


def _read(address: str) -> HttpProxy | None:
    """Parse a proxy address; None if it is not http://.

    Errors may quote its password.
    """
    try:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            return None
        return HttpProxy(parts.hostname, parts.port or _PROXY_PORT, _authorization(parts))
    except ValueError:
        return None


def _is_this_machine(host: str) -> bool:
    """Whether a host is `localhost`, a name below it, or a loopback address, however it is spelled."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = host if ":" in host else socket.inet_ntoa(socket.inet_aton(host))
        return classify_address(address) is AddressReach.LOOPBACK
    except (OSError, ValueError):
        return False


def _authorization(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_excepted(listed: str, host: str, port: int) -> bool:
    """Return whether NO_PROXY covers a host: name, parent domain, network, with port, or `*`."""
    host = host.lower().rstrip(".")
    for entry in filter(None, map(str.strip, listed.lower().split(","))):
        if entry == "*" or _is_in_network(host, entry):
            return True
        name, colon, wanted = entry.rpartition(":")
        has_port = colon and wanted.isdecimal() and (":" not in name or name.startswith("["))
        if has_port and int(wanted) != port:
            continue
        domain = (name if has_port else entry).strip("[]").removeprefix("*").removeprefix(".")
        if domain and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def _is_in_network(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


async def tunnel(proxy: HttpProxy, host: str, port: int) -> socket.socket:
    """A connection through the proxy to this place, which speaks first only when it is spoken to.

    Raises:
        OSError: The proxy is not there, or refuses; never with what it was sent.
    """
    loop = asyncio.get_running_loop()
    end = await _connect_proxy(loop, proxy)
    try:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        await loop.sock_sendall(end, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = await loop.sock_recv(end, 1)  # not a byte of what follows may be taken
            head += chunk
            if not chunk or len(head) > _HEAD_BYTES:
                raise ConnectionRefusedError(None, f"the proxy {proxy.host}:{proxy.port} gave no answer to CONNECT")
        status = head.split(None, 2)[1:2]  # the reason phrase may be missing
        if status != [b"200"]:
            code = (status or [b"?"])[0][:3].decode("ascii", "replace")
            raise ConnectionRefusedError(None, f"the proxy {proxy.host}:{proxy.port} answered CONNECT with HTTP {code}")
    except BaseException:
        end.close()
        raise
    return end


async def _connect_proxy(loop: asyncio.AbstractEventLoop, proxy: HttpProxy) -> socket.socket:
    """A connection to the proxy, by whichever of its addresses."""
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    problem: OSError = ConnectionRefusedError(None, f"the proxy {proxy.host} has no address")
    for family, kind, protocol, _, address in found:
        end = socket.socket(family, kind, protocol)
        end.setblocking(False)
        try:
            await loop.sock_connect(end, address)
        except OSError as exc:
            end.close()
            problem = exc
        except BaseException:
            end.close()
            raise
        else:
            return end
    raise problem
