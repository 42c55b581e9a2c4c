"""The HTTP side of a raw session: sends requests to one address, and says truthfully why one got no answer."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.upstream.http import Failure

__all__ = ["Endpoint", "RequestBody", "media_type"]

_CONNECT_S: Final = 10.0
_IDLE_S: Final = 4.0
"""How long an idle connection is kept: below the 5 s after which common servers (uvicorn, Node) close theirs, so that
no call is sent into a connection that is just being closed."""
_LOOK_S: Final = 1.0
"""How often a reader that waits looks whether its connection is still there."""
_CUT: Final = "broke the connection in the middle of its answer"
_READ_BYTES: Final = 1 << 18
_MAX_REDIRECTS: Final = 5
_DRAIN_S: Final = 1.0
_DRAIN_BYTES: Final = 1 << 16


class RequestBody(aiohttp.payload.Payload):
    """A JSON body that knows whether any of it may have left.

    Args:
        text: The body.

    Attributes:
        is_sent: False for as long as the server certainly has nothing of it.
    """

    def __init__(self, text: bytes) -> None:
        super().__init__(text, content_type="application/json")
        self._text = text
        self.is_sent = False

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._text)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return self._text.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Hands the body to the connection."""
        transport = writer.transport
        if transport is not None and not transport.is_closing():
            self.is_sent = True
        await writer.write(self._text)


class Endpoint:
    """One server's address, with connections, cookies and headers of its own. Nothing comes from the environment.

    Compression is declined: a small answer that unpacks to gigabytes would pass every limit on size.

    Args:
        server: Configured name, for messages.
        url: The server's address.
        headers: Configured for it; sent with every request.
        max_body_bytes: Longer answers are refused while they are read.
        on_unreachable: Told why, when there is nobody at the address.
    """

    def __init__(
        self,
        server: str,
        url: str,
        headers: Mapping[str, str],
        max_body_bytes: int,
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._server = server
        self._url = url
        self._max_body_bytes = max_body_bytes
        self._on_unreachable = on_unreachable
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            headers={
                "user-agent": "smart-mcp-proxy",
                **{name.lower(): value for name, value in headers.items()},  # so that none is sent twice
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",
            },
            cookie_jar=aiohttp.CookieJar(unsafe=True),  # of this one server, which may have an address for a name
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            trust_env=False,
        )

    async def send(
        self, verb: str, headers: Mapping[str, str], body: RequestBody | None = None
    ) -> aiohttp.ClientResponse:
        """The beginning of an answer of whatever status but a redirect. Who gets it has to close it.

        A redirect is followed on the same host only, and not for a POST that would become a GET: everything in a
        request was meant for that host.

        Raises:
            UpstreamError: There is no answer, or none that is accepted.
        """
        url = self._url
        response = await self._send(verb, url, headers, body)
        followed = 0
        while 300 <= response.status < 400:
            response.close()
            target = _target(response)
            if followed == _MAX_REDIRECTS or target is None or not _may_follow(verb, response, target):
                raise self.error(_redirected(response, target))
            url = str(target)
            if response.status == 308:
                self._url = url
            followed += 1
            response = await self._send(verb, url, headers, body)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise self.error(Failure("sent a compressed answer although none was accepted"))
        return response

    async def _send(
        self, verb: str, url: str, headers: Mapping[str, str], body: RequestBody | None
    ) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(verb, url, headers=headers, data=body, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            reason = _words_for_unreachable(exc)
            self._on_unreachable(reason)
            raise self.error(Failure(reason, was_refused=True)) from exc
        except (ValueError, aiohttp.NonHttpUrlClientError) as exc:
            reason = "cannot be asked: its url or one of its headers is not valid in HTTP"
            raise self.error(Failure(reason, was_refused=True)) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise self.error(Failure(_words(exc), was_refused=body is not None and not body.is_sent)) from exc

    async def read_some(self, response: aiohttp.ClientResponse) -> bytes:
        """What has arrived of the body, at least one byte; empty at its end.

        Raises:
            UpstreamError: The connection broke.
        """
        content = response.content
        try:
            while not (chunk := content.read_nowait()) and not content.at_eof():
                # aiohttp tells a reader of most that can happen to a connection, but not of a malformed chunk.
                if not _is_connected(response):
                    raise self.error(Failure(_CUT))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        return await content.readany()
        except (aiohttp.ClientError, OSError) as exc:
            raise self.error(Failure(_words(exc))) from exc
        return chunk

    async def read_all(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body.

        Raises:
            UpstreamError: The connection broke, or the body is too long.
        """
        body = await self.read_some(response)
        if response.content.at_eof() and len(body) <= self._max_body_bytes:
            return body
        parts = bytearray(body)
        while len(parts) <= self._max_body_bytes:
            if not (chunk := await self.read_some(response)):
                return bytes(parts)
            parts += chunk
        raise self.oversized()

    async def drain(self, response: aiohttp.ClientResponse) -> None:
        """Reads what little should be left of a body, so that its connection can be used again."""
        left_bytes = _DRAIN_BYTES
        try:
            async with asyncio.timeout(_DRAIN_S):
                while left_bytes > 0 and (chunk := await self.read_some(response)):
                    left_bytes -= len(chunk)
        except (TimeoutError, UpstreamError):
            pass  # then it is not used again
        finally:
            response.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()

    def error(self, failure: Failure) -> UpstreamError:
        """The error for an exchange that failed."""
        kind = UpstreamAuthError if failure.status == 401 else UpstreamError
        return kind(
            f"Server '{self._server}' {failure.reason}.",
            hint="Check the headers configured for it, or sign in."
            if failure.status in (401, 403)
            else "Check its url and that it is running.",
            delivery="not_sent" if failure.was_refused else "unknown",
            data={"http_status": failure.status} if failure.status else None,
            retry_after_s=failure.retry_after_s,
        )

    def status_error(self, response: aiohttp.ClientResponse) -> UpstreamError:
        """The error for an answer of status 400 or above."""
        retry_after = response.headers.get("Retry-After", "")
        failure = Failure(
            f"answered with HTTP {response.status} {response.reason or ''}".rstrip(),
            response.status,
            # 401 and 404 are decided before a request reaches its handler; of others that cannot be known.
            was_refused=response.status in (401, 404),
            retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
        )
        return self.error(failure)

    def oversized(self) -> UpstreamError:
        """The error for an answer that is too long."""
        return self.error(Failure(f"sent an answer of more than {self._max_body_bytes:,} bytes"))


def media_type(response: aiohttp.ClientResponse) -> str:
    """What kind of body an answer has, without parameters, in lower case; empty if it does not say."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_connected(response: aiohttp.ClientResponse) -> bool:
    connection = response.connection
    return connection is not None and connection.protocol is not None and connection.protocol.connected


def _target(response: aiohttp.ClientResponse) -> URL | None:
    try:
        return response.url.join(URL(response.headers["Location"]))
    except (KeyError, ValueError):
        return None


def _may_follow(verb: str, response: aiohttp.ClientResponse, target: URL) -> bool:
    """Whether a redirect leaves the request as it was, and on the origin it was meant for or its https twin."""
    url = response.url
    if response.status not in (307, 308) and not (verb == "GET" and response.status in (301, 302, 303)):
        return False
    if target.user is not None or target.password is not None or target.host != url.host:
        return False
    if (target.scheme, target.port) == (url.scheme, url.port):
        return True
    return (url.scheme, url.port, target.scheme, target.port) == ("http", 80, "https", 443)


def _redirected(response: aiohttp.ClientResponse, target: URL | None) -> Failure:
    place = (target.host if target is not None else None) or "another address"
    reason = f"redirects to {place} (HTTP {response.status}), which is not followed"
    return Failure(reason, response.status, was_refused=True)


def _words_for_unreachable(exc: aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError) -> str:
    if isinstance(exc, aiohttp.ConnectionTimeoutError):
        return f"did not accept a connection within {_CONNECT_S:g} s"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return f"has no valid certificate: {_first_line(exc.certificate_error)}"
    cause = exc.os_error
    if isinstance(exc, aiohttp.ClientSSLError) or cause.errno is None or cause.errno < 0:
        return f"cannot be reached: {_first_line(cause) or type(cause).__name__}"
    return f"cannot be reached: {os.strerror(cause.errno)}"


def _words(exc: Exception) -> str:
    if isinstance(exc, aiohttp.ClientPayloadError):
        return _CUT
    if isinstance(exc, aiohttp.ClientResponseError):
        return f"sent an answer that is no valid HTTP: {_first_line(exc.message)}"
    return f"broke the connection: {_first_line(exc) or type(exc).__name__}"


def _first_line(text: object) -> str:
    return next(iter(str(text).splitlines()), "").rstrip(":. ")
