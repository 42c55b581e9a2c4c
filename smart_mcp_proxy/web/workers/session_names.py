"""Names of handshake-era sessions: random, and where each is kept.

`<32 hexadecimal digits>[-<worker>][.<replica>]`: a worker is found by its number, a replica by a balancer.
"""

import re
import socket
from collections.abc import Iterable
from typing import Final

from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.settings import Settings

_NAME: Final = rb"[ \t]*[0-9a-f]{32}-([0-9]{1,2})(?:\.[a-z0-9-]{1,63})?[ \t]*"
_SESSION: Final = re.compile(rb"\r\n(?i:mcp-session-id):" + _NAME + rb"\r\n")
_VALUE: Final = re.compile(_NAME)


def replica_name(settings: Settings) -> str | None:
    """The name of this gateway among those on its database, fit for a session's id; None without one."""
    if settings.database_url is None:
        return None
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:63].strip("-")
    return settings.replica or host or None


class SessionNames:
    """Completes the random part of a session's id.

    Args:
        worker: This process; its number is in an id where there are others.
        settings: They name the gateway; its name is in an id where gateways share a database.
    """

    def __init__(self, worker: Worker, settings: Settings) -> None:
        replica = replica_name(settings)
        self._end = ("" if worker.is_alone else f"-{worker.number}") + ("" if replica is None else f".{replica}")

    def __call__(self, random: str) -> str:
        """The whole id."""
        return random + self._end


def find_head_worker(request: bytes, head_bytes: int) -> int | None:
    """The number of the worker that keeps the session which an HTTP head names; None where it names none.

    Args:
        request: Begins with the head.
        head_bytes: How long that is, without the empty line.
    """
    found = _SESSION.search(request, 0, head_bytes)
    return None if found is None else int(found[1])


def find_field_worker(fields: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The same as `find_head_worker`, of header fields that a parser has read, names in lower case."""
    for name, value in fields:
        if name == b"mcp-session-id" and (found := _VALUE.fullmatch(value)) is not None:
            return int(found[1])
    return None
