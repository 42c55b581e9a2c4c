"""HTTP client of one server: address, cookies, kept connections; proxies by the environment."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlsplit

from smart_mcp_proxy.io.busy_poll import Side, get_busy_poll
from smart_mcp_proxy.io.clocks import since_boot
from smart_mcp_proxy.io.header_cache import KnownHeads
from smart_mcp_proxy.upstream.http.connection import AnswerHead, Connection, Origin, connect, encode_head
from smart_mcp_proxy.upstream.http.exchange import RequestBody, Response
from smart_mcp_proxy.upstream.http_failures import TlsContext

_CONNECT_S: Final = 10.0
_IDLE_S: Final = 4.0
"""Seconds that an idle connection is kept: below the 5 s after which common servers (uvicorn, Node) close theirs, so
that no call is sent into a connection that is just being closed."""
_HEADS: Final = 256
"""Request heads remembered: one for each tool and method in use."""
_ANSWER_HEADS: Final = 64
"""Heads of answers that are remembered; where they hold the time there is a new one every second."""
_COOKIES: Final = 50
"""Kept of one server; the oldest goes. Source: RFC 6265, section 6.1."""
_COOKIE_BYTES: Final = 4_096
"""Longest one that is kept. Source: RFC 6265, section 6.1."""
_PORTS: Final = {"http": 80, "https": 443}


class HttpClient:
    """Sends requests; each gets a connection for itself, a kept one if there is one.

    Args:
        headers: Sent with every request; names in lower case.
        tls: For https.
        clock: Monotonic seconds, those included in which the computer sleeps: else a connection would still be young
            after a night in which the server, or a router on the way, has forgotten it, and a call wait in vain for it.
    """

    def __init__(self, headers: Mapping[str, str], tls: TlsContext, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._poll, self._side = get_busy_poll(self._loop), Side()
        self._headers = dict(headers)
        self._tls = tls
        self._cookies: dict[str, str] = {}
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._known: KnownHeads[AnswerHead] = KnownHeads(_ANSWER_HEADS)
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._address: tuple[str, SplitResult, Origin] = ("", urlsplit(""), ("", "", 0))

    def __repr__(self) -> str:
        return f"<HttpClient {len(self._connections)} connections, {len(self._idle)} idle>"

    async def request(self, verb: str, url: str, headers: Mapping[str, str], body: RequestBody | None) -> Response:
        """The beginning of the answer, whatever its status.

        Raises:
            ConnectionRefusedError: And other kinds of OSError: nobody is there, or the connection broke.
            TimeoutError: Nobody took the connection in time.
            BadAnswerError: What came back is no valid HTTP.
            ValueError: The address or a header is not valid in HTTP.
        """
        address, origin = self._split(url)
        head = self._head(verb, address, headers, body)
        connection = self._take_idle_connection(origin) or await self._open_connection(origin)
        response = connection.send(head, body, url)
        self._poll.begin(self._loop, self._side)
        try:
            await response.wait_head()
        except BaseException:
            connection.abort()
            raise
        self._poll.note_arrival()
        for cookie in response.cookies:
            self._store(cookie)
        return response

    async def close(self) -> None:
        """Closes all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self._connections):
            connection.abort()
        # Their transports report the end in the loop's next round.
        await asyncio.sleep(0)

    def _split(self, url: str) -> tuple[SplitResult, Origin]:
        if self._address[0] != url:
            address = urlsplit(url)
            if address.scheme not in _PORTS or not address.hostname:
                raise ValueError("no address of an HTTP server")
            origin = (address.scheme, address.hostname, address.port or _PORTS[address.scheme])
            self._address = (url, address, origin)
        return self._address[1:]

    def _head(self, verb: str, address: SplitResult, headers: Mapping[str, str], body: RequestBody | None) -> bytes:
        key = (verb, address, *headers.items())
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) == _HEADS:
                self._heads.clear()
            head = self._heads[key] = self._build_request_head(verb, address, headers)
        if body is None:
            return head + b"\r\n"
        return b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (head, body.fields, len(body.text))

    def _build_request_head(self, verb: str, address: SplitResult, headers: Mapping[str, str]) -> bytes:
        fields = {"host": address.netloc.rpartition("@")[2], **self._headers}
        for name, value in headers.items():
            fields[name.lower()] = value
        fields.pop("content-type", None)  # goes with a body
        if self._cookies:
            fields["cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        proxy = self._tls.find_proxy(*self._address[2]) if address.scheme == "http" else None
        if proxy is not None:
            target = f"http://{fields['host']}{target}"
            if proxy.authorization:
                fields["proxy-authorization"] = proxy.authorization
        return encode_head(verb, target, fields)

    def _take_idle_connection(self, origin: Origin) -> Connection | None:
        """The connection to `origin` that was used last, if it can still be used."""
        while self._idle:
            connection = self._idle.pop()
            is_young = self._clock() - connection.idle_since_s < _IDLE_S
            if is_young and connection.origin == origin and connection.is_open and connection.is_quiet:
                return connection
            connection.abort()
        return None

    async def _open_connection(self, origin: Origin) -> Connection:
        tls = await self._tls.get() if origin[0] == "https" else None
        proxy = self._tls.find_proxy(*origin)
        new_connection = partial(Connection, origin, self._known, self._free, self._connections.discard)
        try:
            async with asyncio.timeout(_CONNECT_S):
                connection = await connect(new_connection, origin, tls, proxy)
        except TimeoutError:
            raise TimeoutError(f"did not accept a connection within {_CONNECT_S:g} s") from None
        if connection.is_open:
            self._connections.add(connection)
        return connection

    def _free(self, connection: Connection) -> None:
        connection.idle_since_s = self._clock()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(_IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        """Closes what nobody used for a while."""
        self._sweep = None
        limit_s = self._clock() - _IDLE_S
        old = [connection for connection in self._idle if connection.idle_since_s <= limit_s or not connection.is_open]
        for connection in old:
            self._idle.remove(connection)
            connection.abort()
        if self._idle:
            self._sweep = self._loop.call_later(_IDLE_S, self._close_idle)

    def _store(self, cookie: str) -> None:
        """Keeps a cookie for the life of the session; some balancers find the way to a session by it."""
        pair, *attributes = cookie.split(";")
        name, equals, value = pair.strip().partition("=")
        if not equals or not name or len(pair) > _COOKIE_BYTES:
            return
        self._heads.clear()
        if any(attribute.strip().lower() == "max-age=0" for attribute in attributes):
            self._cookies.pop(name, None)
        else:
            self._cookies[name] = value
            if len(self._cookies) > _COOKIES:
                del self._cookies[next(iter(self._cookies))]
