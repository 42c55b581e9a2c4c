"""Reach of network addresses: a server's sign-in metadata must not lead into private networks."""

import asyncio
import ipaddress
import socket
from enum import IntEnum
from typing import Final

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
"""Source: RFC 6052, section 2.1."""
_CLOUD_METADATA: Final = frozenset({"100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"})
"""Addresses where clouds hand credentials to whoever asks, besides the link-local ones that all are refused anyway."""


class AddressReach(IntEnum):
    """Distance of an address from us. A server may lead as far away as itself or farther."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    FORBIDDEN = 3


def classify_address(address: str) -> AddressReach:
    """Classify an IP address by its reach; an embedded IPv4 address counts as itself.

    Raises:
        ValueError: It is no IP address.

    Source: RFC 6890;
    https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
    """
    ip = _unwrap_ipv4(ipaddress.ip_address(address.partition("%")[0]))
    if str(ip) in _CLOUD_METADATA or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return AddressReach.FORBIDDEN
    if ip.is_loopback:
        return AddressReach.LOOPBACK
    if ip.is_reserved:
        return AddressReach.FORBIDDEN
    return AddressReach.PUBLIC if ip.is_global else AddressReach.PRIVATE


def _unwrap_ipv4(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
    if inner is None and ip in _NAT64:
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return inner or ip


async def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a name to IP addresses in the order to try; decimal, hex and octal are understood.

    Raises:
        OSError: There is none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
