"""HTTP client under a session: a failed exchange ends no other, and its cause is kept."""

import asyncio
import http
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx2
import msgspec

from smart_mcp_proxy.errors import Delivery, UpstreamAuthError, UpstreamBusyError, UpstreamError
from smart_mcp_proxy.names import login_hint, shell_word
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.proxies import Proxy, proxy_for

__all__ = [
    "Failure",
    "GuardedTransport",
    "MissingScopeError",
    "TlsContext",
    "failure_error",
    "missing_scope",
    "new_http_client",
    "new_transport",
    "retry_after_s",
    "status_words",
    "too_long",
    "words_of",
]

_log = get_logger("upstream")

_CONNECT_S = 10.0
_WRITE_S = 60.0
_READ_S = 900.0
"""Longest silence inside one answer; each call has a deadline of its own below this."""
_WORDS = ("message", "error_description", "detail", "title", "error")
"""Where bodies of errors say what happened. Source: RFC 6749, section 5.2; RFC 9457; JSON-RPC; what large APIs do."""
_WORDS_CHARS = 300
_members = msgspec.json.Decoder(dict[str, Any])
_FAILURES_KEPT = 256
_LONGEST_RETRY_S = 86_400.0
_MOST_SCOPES = 50
_CA_FILES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name files with certificates of authorities, which are trusted beside the system's."""
_CHALLENGE = re.compile(r'\b(error|scope)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[!#-\[\]-~]{1,200}")
"""Source: RFC 6749, section 3.3; a longer one is none that a person could judge."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an HTTP exchange gave no answer.

    Attributes:
        reason: What happened, to stand after the server's name.
        status: HTTP status, 0 if there was none.
        was_refused: The server cannot have carried the request out.
        retry_after_s: What it asked for, if it did.
        hint: What to do about it, where that is not told by the status.
        missing_scope: What the sign-in has not been granted and the request needs, with spaces between; else empty.
        said: What the server's answer says about it, in its own words.
    """

    reason: str
    status: int = 0
    was_refused: bool = False
    retry_after_s: float | None = None
    hint: str = ""
    missing_scope: str = ""
    said: str = ""


_KINDS: Mapping[int, type[UpstreamError]] = {401: UpstreamAuthError, 429: UpstreamBusyError}


class MissingScopeError(UpstreamAuthError):
    """A request that needs more than the sign-in was granted; others may do with what there is."""


def missing_scope(status: int, challenge: str) -> str:
    """Scopes that a refused request needed, separated by spaces; empty if that was not the cause.

    Args:
        status: Of the answer.
        challenge: Its `WWW-Authenticate`.

    Source: RFC 6750, section 3.1; MCP, basic/authorization, Scope Challenge Handling.
    """
    if status != 403:
        return ""
    named = {name: quoted or bare for name, quoted, bare in _CHALLENGE.findall(challenge)}
    if named.get("error") != "insufficient_scope":
        return ""
    return " ".join([scope for scope in named.get("scope", "").split() if _SCOPE.fullmatch(scope)][:_MOST_SCOPES])


def too_long(limit_bytes: int) -> Failure:
    """Why an answer of more bytes than this is none."""
    hint = "Ask it for less, or raise MCPPROXY_MAX_MESSAGE_BYTES."
    return Failure(f"sent an answer of more than {limit_bytes:,} bytes", hint=hint)


def failure_error(server: str, failure: Failure, *, was_refused: bool, is_signed_in: bool) -> UpstreamError:
    """The error for an exchange that failed.

    Args:
        server: Its configured name.
        failure: What happened.
        was_refused: The server cannot have carried the request out.
        is_signed_in: It was sent the token of a sign-in.
    """
    kind = _KINDS.get(failure.status, UpstreamError)
    reason, hint = failure.reason, failure.hint or _hint(server, failure.status, is_signed_in=is_signed_in)
    if failure.missing_scope:
        reason = f"needs the scope '{failure.missing_scope}', which has not been granted (HTTP {failure.status})"
    if failure.missing_scope and is_signed_in:
        kind, hint = MissingScopeError, f"{login_hint(server)} (it asks for that scope as well)"
    delivery: Delivery = "not_sent" if was_refused else "unknown"
    return kind(
        f"Server '{server}' {reason}" + (":" if failure.said else "."),
        hint=hint,
        delivery=delivery,
        data={"http_status": failure.status} if failure.status else None,
        retry_after_s=failure.retry_after_s,
        said=failure.said,
    )


def _hint(server: str, status: int, *, is_signed_in: bool) -> str:
    """Hint for a server that failed with this HTTP status, 0 for none."""
    if status == 401 and is_signed_in:
        return login_hint(server)
    if status == 403 and is_signed_in:
        login = f"mcpproxy server login {shell_word(server)}"
        return f"What was granted may not be enough: check 'oauth.scopes', then: {login}"
    if status == 401:
        return (
            'Check the headers configured for it. If it wants an OAuth sign-in, add "oauth": true to its entry, '
            f"then: mcpproxy server login {shell_word(server)}"
        )
    if status == 429:
        return "Wait before the next call, and make fewer; the user can set 'calls_per_s' under 'limits' in its entry."
    if status >= 500:
        return f"The server failed. Its user can look at: mcpproxy server logs {shell_word(server)}"
    return "Check the headers configured for it." if status == 403 else "Check its url and that it is running."


class TlsContext:
    """One TLS context for all servers, made when first needed: reading certificates takes long.

    Args:
        environ: Names proxies, and files with further certificates; SSL_CERT_FILE and SSL_CERT_DIR, which OpenSSL reads
            by itself, stand in for the system's own.
    """

    def __init__(self, environ: Mapping[str, str] = MappingProxyType({})) -> None:
        self._environ = environ
        self._lock = asyncio.Lock()
        self._context: ssl.SSLContext | None = None

    async def get(self) -> ssl.SSLContext:
        """The context; made in a thread the first time."""
        async with self._lock:
            if self._context is None:
                self._context = await asyncio.to_thread(self._made)
            return self._context

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for requests to this origin; None where they go there directly.

        Raises:
            UpstreamError: The variable that should name one names none.
        """
        return proxy_for(self._environ, scheme, host, port)

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        for name in _CA_FILES:
            if path := self._environ.get(name):
                try:
                    context.load_verify_locations(path)
                except OSError as exc:
                    _log.warning("%s names %s, which holds no certificates that can be read: %s", name, path, exc)
        return context


class _RequestId(msgspec.Struct):
    id: int | str | None = None


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests; a network failure becomes an error response, which costs one call.

    Args:
        inner: What really sends.
        max_body_bytes: A longer plain answer is cut off; event streams have their limit per event.
        on_unreachable: Told when the session is of no more use: the server is not there, or has forgotten it.
        is_fragile: One failed POST ends the session, as the SDK's SSE client has it.
    """

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        max_body_bytes: int,
        on_unreachable: Callable[[str], None],
        *,
        is_fragile: bool = False,
    ) -> None:
        self._is_fragile = is_fragile
        self._inner = inner
        self._max_body_bytes = max_body_bytes
        self._on_unreachable = on_unreachable
        self._failures: dict[int | str, Failure] = {}
        self.last_failure: Failure | None = None

    def take_failure(self, request_id: int | str) -> Failure | None:
        """Return the failure of this JSON-RPC request's exchange, if any; only once."""
        return self._failures.pop(request_id, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request; see the class."""
        request_id = _id_of(request)
        if request.method == "GET":  # a stream of announcements: silence is its normal state
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": None}
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as exc:
            is_unsent = isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            failure = Failure(_words(exc), was_refused=is_unsent)
            self._remember(request_id, failure)
            if is_unsent or self._is_fragile:
                self._on_unreachable(failure.reason)
            return httpx2.Response(502, request=request)
        if response.status_code >= 300 and (request.method == "POST" or self._is_fragile):
            failure = _status_failure(response, has_session="mcp-session-id" in request.headers)
            self._remember(request_id, failure)
            if self._is_fragile or (response.status_code == 404 and "mcp-session-id" in request.headers):
                self._on_unreachable(failure.reason)
        elif response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            self._remember(request_id, Failure("sent a compressed answer although none was accepted"))
            return httpx2.Response(502, request=request)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        limit = None if is_stream else self._max_body_bytes
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _GuardedStream(response.stream, limit, lambda failure: self._remember(request_id, failure))
        return response

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._inner.aclose()

    def _remember(self, request_id: int | str | None, failure: Failure) -> None:
        self.last_failure = failure
        if request_id is not None:
            self._failures[request_id] = failure
            if len(self._failures) > _FAILURES_KEPT:  # of calls that were given up meanwhile
                del self._failures[next(iter(self._failures))]


class _GuardedStream(httpx2.AsyncByteStream):
    """A body that ends early instead of raising, and says why elsewhere."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, limit_bytes: int | None, on_failure: Callable[[Failure], None]
    ) -> None:
        self._inner = inner
        self._limit_bytes = limit_bytes
        self._on_failure = on_failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit_bytes is not None and size > self._limit_bytes:
                    self._on_failure(too_long(self._limit_bytes))
                    return
                yield chunk
        except httpx2.TransportError as exc:
            self._on_failure(Failure(_words(exc)))

    async def aclose(self) -> None:
        await self._inner.aclose()


def new_transport(tls: ssl.SSLContext, proxy: Proxy | None) -> httpx2.AsyncHTTPTransport:
    """Create a transport, direct or through a proxy."""
    if proxy is None:
        return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)
    headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else {}
    host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    way = httpx2.Proxy(f"http://{host}:{proxy.port}", headers=headers)
    return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, proxy=way)


def new_http_client(transport: httpx2.AsyncBaseTransport, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """Create an HTTP client for one server: own headers, no redirects, no environment, no netrc.

    Compression is declined: a small answer that unpacks to gigabytes would pass every limit on size.
    """
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": "smart-mcp-proxy", **headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S, write=_WRITE_S),
        follow_redirects=False,
        trust_env=False,
    )


def _id_of(request: httpx2.Request) -> int | str | None:
    if request.method != "POST":
        return None
    try:
        return msgspec.json.decode(request.content, type=_RequestId).id
    except (msgspec.DecodeError, httpx2.RequestNotRead):
        return None


def is_refusal(status: int, *, has_session: bool = False) -> bool:
    """Whether a server that answers with this status cannot have carried the request out.

    Source: RFC 9110 for 401 (it "has not been applied") and for 307 and 308 (it is to be sent again, elsewhere); the
    transport's specification for 404 in a session, which is over then. Of all others it cannot be known.

    Args:
        status: Of HTTP.
        has_session: The request named a session.
    """
    return status in (401, 307, 308) or (status == 404 and has_session)


def _status_failure(response: httpx2.Response, *, has_session: bool) -> Failure:
    status = response.status_code
    if status < 400:
        place = httpx2.URL(response.headers.get("location", "")).host or "another address"
        return Failure(
            f"redirects to {place} (HTTP {status}), which is not followed", status, was_refused=is_refusal(status)
        )
    return Failure(
        status_words(status),
        status,
        was_refused=is_refusal(status, has_session=has_session),
        retry_after_s=retry_after_s(response.headers.get("retry-after", "")),
        missing_scope=missing_scope(status, response.headers.get("www-authenticate", "")),
    )


def status_words(status: int) -> str:
    """Standard phrase for a status of 400 or above; never the server's own words."""
    try:
        return f"answered with HTTP {status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"answered with HTTP {status}"


def words_of(body: bytes) -> str:
    """Message for people in a JSON error body, as one short line; empty if there is none."""
    try:
        members = _members.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    inner = members.get("error")
    if isinstance(inner, dict):
        members = {**members, **inner}
    words = (members.get(name) for name in _WORDS)
    return next((" ".join(text.split())[:_WORDS_CHARS] for text in words if isinstance(text, str) and text.strip()), "")


def retry_after_s(header: str) -> float | None:
    """Seconds that a `Retry-After` header asks to wait, at most a day; None where it names no seconds."""
    return min(float(header), _LONGEST_RETRY_S) if header.isascii() and header.isdecimal() else None


def _words(exc: httpx2.TransportError) -> str:
    if isinstance(exc, httpx2.ConnectTimeout):
        return f"did not accept a connection within {_CONNECT_S:g} s"
    if isinstance(exc, httpx2.ConnectError):
        return f"cannot be reached: {str(exc) or type(exc).__name__}"
    return f"broke the connection: {str(exc) or type(exc).__name__}"
