"""HTTP/1.1 exchanges over kept connections: one request, one answer, and little else in between.

A general client costs several times what a call costs otherwise. The parser is the one uvicorn uses (httptools).
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

import httptools

from smart_mcp_proxy.io.header_cache import KnownHeads
from smart_mcp_proxy.upstream.http.exchange import BadAnswerError, RequestBody, Response
from smart_mcp_proxy.upstream.proxies import HttpProxy, tunnel

_HEAD_BYTES: Final = 16 * 1024
"""Headers together: Node's own limit, on both of its sides.

Source: https://nodejs.org/api/http.html#httpmaxheadersize"""
_READ_BYTES: Final = 1 << 16
"""At a time; of an answer in thousands of tiny pieces that is a millisecond's work, then others get their turn."""
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A server that has been silent for so many seconds is asked by the system whether it is there, three times, ten
seconds apart: after a night's sleep, or behind a router that forgot it, a stream would be waited for in vain."""

Origin = tuple[str, str, int]
"""Scheme, host and port: what is meant for one is sent to no other."""


class AnswerHead(NamedTuple):
    """Status line and headers of a response.

    Attributes:
        status: Of HTTP.
        reason: The words that go with it.
        headers: By lower-case name, without the length.
    """

    status: int
    reason: str
    headers: dict[str, str]


class Connection(asyncio.BufferedProtocol):
    """A connection that carries one exchange at a time.

    A server that says more than it was asked is not listened to: what it said could be taken for the next answer.

    Args:
        origin: Scheme, host and port it leads to.
        heads: Of answers that came before, on whatever connection.
        on_free: Told when an exchange is over and another one may follow.
        on_lost: Told when the connection is gone.
    """

    def __init__(
        self,
        origin: Origin,
        heads: KnownHeads[AnswerHead],
        on_free: Callable[["Connection"], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self._heads = heads
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: Response | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._wordless_bytes = 0
        """Since the request, or since the last byte of a body: heads, what announces them, chunk sizes, trailers."""
        self._is_at_start = True
        """Whether nothing of the answer has arrived."""
        self._is_lost = False
        self._is_paused = False
        self._is_reusable = True
        self._unread = select.poll()
        self._start_head()

    def __repr__(self) -> str:
        return f"<Connection {'lost' if self._is_lost else 'idle' if self._response is None else 'busy'}>"

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return not self._is_lost and self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Whether the server has said nothing since its last answer, not even what nobody has read yet."""
        return not self._unread.poll(0)

    def send(self, head: bytes, body: RequestBody | None, url: str) -> Response:
        """Sends one request; its answer begins as soon as the server has it.

        Raises:
            ConnectionResetError: The connection is gone already; nothing was sent.
        """
        assert self._response is None
        if self._transport is None or not self.is_open:
            raise ConnectionResetError("the connection was closed")
        self._response = Response(self, url)
        self._wordless_bytes = 0
        self._is_at_start = True
        if body is None:
            self._transport.write(head)
        else:
            body.is_sent = True
            self._transport.write(head + body.text)
        return self._response

    def retire(self) -> None:
        """Ends the connection as soon as no exchange is under way."""
        self._is_reusable = False
        if self._response is None:
            self.abort()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Lets the server go on sending."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        # uvloop's transports have the methods, not the class.
        self._transport = cast(asyncio.Transport, transport)
        self._unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        response = self._response
        if response is None:  # nothing was asked
            self.abort()
            return
        packet = bytes(self._buffer[:nbytes]) if self._is_at_start else b""
        if packet and self._is_read(packet, response):
            return
        self._wordless_bytes += nbytes
        self._is_at_start = False
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            cause = exc.__context__ if isinstance(exc, httptools.HttpParserCallbackError) else exc
            self._break(BadAnswerError(str(cause)))
            return
        if response.is_complete:
            if packet and not response.cookies and self._is_reusable:
                headers = {name: value for name, value in response.headers.items() if name != "content-length"}
                head = AnswerHead(response.status, response.reason, headers)
                self._heads.learn(packet, response.available_body, head)
            self._let_go()
        elif self._wordless_bytes > _HEAD_BYTES:
            self._break(BadAnswerError("its headers are too long"))

    def _is_read(self, packet: bytes, response: Response) -> bool:
        """Whether these bytes are a whole answer with a head that was read before; the parser never sees it."""
        known = self._heads.find(packet)
        if known is None:
            return False
        self._response = None
        response.bring(*known[0], known[1])
        self._let_go()
        return True

    def _let_go(self) -> None:
        """The answer is whole, and these bytes held nothing else."""
        if self._is_reusable and self.is_open:
            self._on_free(self)
        elif self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._is_lost = True
        response, self._response = self._response, None
        if response is not None:
            is_chunked = "chunked" in self._headers.get("transfer-encoding", "").lower()
            ends_with_connection = "content-length" not in self._headers and not is_chunked
            if exc is None and self._is_head_whole and ends_with_connection:
                response.finish()
            else:
                response.fail(exc if isinstance(exc, OSError) else ConnectionResetError("the connection was closed"))
        self._on_lost(self)

    def _break(self, error: BadAnswerError) -> None:
        if self._response is not None:
            self._response.fail(error)
        self.abort()

    # --- called by the parser

    def _start_head(self) -> None:
        self._field_bytes = 0
        self._is_head_whole = False
        self._reason = b""
        self._headers: dict[str, str] = {}
        self._cookies: list[str] = []

    def on_message_begin(self) -> None:
        """An answer begins, asked for or not."""
        if self._response is None:
            self._is_reusable = False

    def on_status(self, reason: bytes) -> None:
        """The words of the status line, perhaps in parts."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store one header field; trailers after the body are ignored."""
        if self._is_head_whole:
            return
        self._field_bytes += len(name) + len(value)
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "replace")
        if key == "set-cookie":
            self._cookies.append(text)
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        """Finish the response head; a 1xx status only precedes the final one."""
        status = self._parser.get_status_code()
        if self._response is None or 100 <= status < 200:
            return
        if self._field_bytes > _HEAD_BYTES:
            self._break(BadAnswerError("its headers are too long"))
            self._response = None
            return
        self._is_head_whole = True
        self._response.begin(status, self._reason.decode("latin-1"), self._headers, self._cookies)

    def on_body(self, chunk: bytes) -> None:
        """A part of the body."""
        self._wordless_bytes = 0
        if self._response is not None and self._response.add(chunk) and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """An answer is whole."""
        is_interim = not self._is_head_whole
        self._start_head()
        if is_interim or self._response is None:
            return
        self._is_reusable &= self._parser.should_keep_alive()
        response, self._response = self._response, None
        response.finish()
        self.resume()


async def connect(
    new_connection: Callable[[], Connection], origin: Origin, tls: ssl.SSLContext | None, proxy: HttpProxy | None
) -> Connection:
    """A new connection.

    Args:
        new_connection: Makes one that is not open.
        origin: Where it leads to.
        tls: For https, else None.
        proxy: What stands between; it is spoken to itself where there is no TLS.

    Raises:
        OSError: Nobody is there, or no TLS can be agreed on.
    """
    loop = asyncio.get_running_loop()
    _, host, port = origin
    name = host if tls else None
    if proxy is not None and tls is not None:
        end = await tunnel(proxy, host, port)
        transport, connection = await loop.create_connection(new_connection, sock=end, ssl=tls, server_hostname=name)
    else:
        host, port = (host, port) if proxy is None else proxy[:2]
        transport, connection = await loop.create_connection(new_connection, host, port, ssl=tls, server_hostname=name)
    if connection.is_open:
        _probe_silence(transport.get_extra_info("socket"))
    return connection


def _probe_silence(end: socket.socket) -> None:
    """Lets the system find out when nobody is at the other end any more."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # not everywhere
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def encode_head(verb: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A request's first lines, without the empty one that ends them.

    Raises:
        ValueError: A field holds a line end or a NUL, or the target a space.
    """
    lines = [f"{verb} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    text = "\r\n".join(lines)
    if any(text.count(end) != len(lines) - 1 for end in ("\r\n", "\r", "\n")) or "\0" in text or " " in target:
        raise ValueError("a header field holds a line end or a NUL, or the target a space")
    return text.encode() + b"\r\n"
