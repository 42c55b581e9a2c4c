"""Connection to a gateway, without waiting: neither while it opens, nor while it is full or empty."""

import errno
import math
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

from smart_mcp_proxy.desktop.http.address import HttpAddress
from smart_mcp_proxy.desktop.http.reply import HttpReply
from smart_mcp_proxy.desktop.pipes import CHUNK_BYTES

_BUNDLES: Final = ("/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Certificates of macOS, and of the families of Linux."""
_Value = TypeVar("_Value")


class Link:
    """Connection of TCP, with TLS where the address asks for it.

    Args:
        address: The other end.

    Attributes:
        number: The descriptor, for `select.poll`.
        is_open: Whether it can carry a request.
        events: What `select.poll` is to wait for.
        since: When it was begun, or used last.

    Raises:
        OSError: The name is not known, or nobody is there.
    """

    def __init__(self, address: HttpAddress) -> None:
        self._address = address
        places = socket.getaddrinfo(*address.place, type=socket.SOCK_STREAM)
        # A network without IPv6 may swallow what is sent there; one without IPv4 says so.
        self._places = sorted(places, key=lambda place: place[0] != socket.AF_INET)
        self._socket: Any = None
        self._proxy: HttpReply | None = None
        self._is_shaking_hands = False
        self.is_open = False
        self.events = 0
        self.since = time.monotonic()
        self._connect()

    def _connect(self) -> None:
        while True:
            family, kind, protocol, _, place = self._places.pop(0)
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setblocking(False)
            self.number: int = self._socket.fileno()
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if (code := self._socket.connect_ex(place)) in (0, errno.EINPROGRESS):
                self.events = select.POLLOUT
                return
            self._refuse(code)

    def _refuse(self, code: int) -> None:
        self.close()
        if not self._places:
            raise OSError(code, "nobody is there")

    def go_on(self) -> None:
        """Carry the opening on, after one of `events`.

        Raises:
            OSError: It has failed.
        """
        if not self._is_shaking_hands:
            if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._refuse(code)
                self._connect()
                return
            if self._address.tunnel and not self._is_through_proxy():
                return
            if self._address.is_tls:
                name = self._address.host
                self._socket = _tls().wrap_socket(self._socket, server_hostname=name, do_handshake_on_connect=False)
                self._is_shaking_hands = True
        self.events = select.POLLIN
        if not self._is_shaking_hands or self._attempt(lambda: self._socket.do_handshake() or True):
            self.is_open = True

    def _is_through_proxy(self) -> bool:
        self.events = select.POLLIN
        if self._proxy is None:
            self._proxy = HttpReply()
            self._socket.sendall(self._address.tunnel)  # a few words, for which a new connection has room
        elif data := self.receive():
            list(self._proxy.feed(data))
        elif data is not None or self._proxy.status not in (0, 200):
            raise ConnectionRefusedError
        return self._proxy.status == 200

    def send(self, data: bytearray) -> None:
        """Send the beginning of `data`, as much as there is room for, and take it out of there.

        Raises:
            OSError: The connection has ended.
        """
        del data[: self._attempt(lambda: self._socket.send(data)) or 0]

    def receive(self) -> bytes | None:
        """The bytes that have come; none at the end, None where none have come.

        Raises:
            OSError: The connection has ended.
        """
        return self._attempt(lambda: bytes(self._socket.recv(CHUNK_BYTES)))

    def stays_idle(self, most_s: float = math.inf) -> bool:
        """Whether the gateway has neither closed it nor said anything unasked; else it is closed here, too.

        Args:
            most_s: It is closed as well if it was idle for longer.
        """
        with suppress(OSError):
            if time.monotonic() - self.since < most_s and self.receive() is None:
                return True
        self.close()
        return False

    def _attempt(self, do: Callable[[], _Value]) -> _Value | None:
        try:
            return do()
        except BlockingIOError:
            return None
        except OSError as exc:
            if type(exc).__name__ not in ("SSLWantReadError", "SSLWantWriteError"):
                raise
            if not self.is_open:
                self.events = select.POLLIN if "Read" in type(exc).__name__ else select.POLLOUT
            return None

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


@cache
def _tls() -> Any:
    import ssl  # it takes 7 MB

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not paths.capath:  # a Python from elsewhere
        context.load_verify_locations(next(filter(os.path.isfile, _BUNDLES), None))
    return context
