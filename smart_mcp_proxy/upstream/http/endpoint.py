"""HTTP requests of a raw session to one address, with a truthful cause for every failure."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.io.open_files import OPEN_FILES_HINT, why_none_left
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import redact, spawn
from smart_mcp_proxy.upstream.http.exchange import BadAnswerError, RequestBody, Response, UnpackedResponse, can_unpack
from smart_mcp_proxy.upstream.http.http_client import HttpClient
from smart_mcp_proxy.upstream.http_failures import (
    HttpFailure,
    build_failure_error,
    build_lost_session_error,
    build_too_long_failure,
    has_sign_in_metadata,
    is_refusal,
    parse_missing_scope,
    retry_after_s,
    status_words,
)
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.oauth.auth_exchange import ExchangedBearer
from smart_mcp_proxy.upstream.oauth.auth_proofs import Proofs
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.session import STOPPED, STOPPED_HINT

_PORTS: Final = {"http": 80, "https": 443}
_CUT: Final = "broke the connection in the middle of its answer"
_PLAIN: Final = "does not speak https at that port"
_PLAIN_HINT: Final = "Write http:// instead of https:// in its url, or give the port at which it speaks https."
_TLS_HINT: Final = "Check its url: if it speaks https at that port, write https://."
_PACKED_HINT: Final = "Switch compression off at the server, or at what stands in front of it."
_SHOWN_CHARS: Final = 40
_WANTS_TLS: Final = re.compile(
    rb"plain HTTP request|HTTP request to an HTTPS|speaking plain HTTP to an? SSL|requires TLS", re.I
)
"""Pages of nginx, Go, Apache and others for a request without TLS at a port that has it."""
_PAGE_BYTES: Final = 4_096
_PATH_CHARS: Final = 200
_SIGN_IN: Final = r"(?i)log[-_]?in|sign[-_]?in|\bauth|\bsso\b|oauth|saml"
"""Words in the path of a page where people sign in."""
_MAX_REDIRECTS: Final = 5
_REFUSAL_S: Final = 2.0
"""Seconds that the body of an error may take: its status is known without it."""
_CLOSE_S: Final = 2.0
_DRAIN_S: Final = 1.0
_DRAIN_BYTES: Final = 1 << 16
_MEDIA_TYPES: Final = 64
"""Remembered, of all servers together: each writes one or two."""


class ServerEndpoint:
    """URL of a server, with its own connections, cookies, headers and sign-in.

    Compression is declined; an answer that comes compressed all the same is unpacked within the limits on size.

    Args:
        opening: What the session is opened from; its sign-in is closed with this.
        on_unreachable: Told why, when there is nobody at the address.
        on_sign_in_lost: Told why the sign-in is over, if that happens while it is in use.
    """

    def __init__(
        self,
        opening: SessionOptions,
        on_unreachable: Callable[[str], None],
        on_sign_in_lost: Callable[[UpstreamAuthError], None],
    ) -> None:
        config = opening.config
        self._server = config.name
        self._url = config.url
        self._max_body_bytes = opening.max_message_bytes
        self._on_unreachable = on_unreachable
        self._bearer = opening.bearer
        self._has_answered = False
        self._chores: set[asyncio.Task[None]] = set()
        self._sent = config.credential_headers
        if self._bearer is not None:
            self._bearer.on_lost = on_sign_in_lost
        self._client = HttpClient(
            {
                "user-agent": "smart-mcp-proxy",
                **{name.lower(): value for name, value in config.headers.items()},  # so that none is sent twice
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",
            },
            opening.tls,
        )

    def move(self, url: str) -> None:
        """Send further requests to `url`, on the same host: headers and sign-in are meant for it alone."""
        self._url = url

    def send(
        self, verb: str, headers: Mapping[str, str], body: RequestBody | None = None
    ) -> Coroutine[Any, Any, Response]:
        """The beginning of an answer of whatever status but a redirect. Who gets it has to close it.

        A redirect is followed on the same host only, and not for a POST that would become a GET: everything in a
        request was meant for that host. A token that is refused is renewed, once: 401 is decided before a request
        reaches its handler, so it may be sent again.

        Raises:
            UpstreamAuthError: The server's sign-in is over.
            UpstreamError: There is no answer, or none that is accepted.
        """
        if self._bearer is None:
            return self._follow_redirects(verb, headers, body)
        return self._send_renewing_token(self._bearer, verb, headers, body)

    async def _send_renewing_token(
        self, bearer: Bearer | ExchangedBearer, verb: str, headers: Mapping[str, str], body: RequestBody | None
    ) -> Response:
        token = await bearer.token()
        response = await self._send_with_token(bearer.proofs, token, verb, headers, body)
        if scope := _extract_missing_scope(response):
            await bearer.want(scope)
        if response.status != 401:
            return response
        try:
            if not await bearer.renew_refused_token(token):
                return response
        except BaseException:
            response.close()
            raise
        response.close()
        token = await bearer.token()
        return await self._send_with_token(bearer.proofs, token, verb, headers, body)

    async def _send_with_token(
        self, proofs: Proofs | None, token: str, verb: str, headers: Mapping[str, str], body: RequestBody | None
    ) -> Response:
        """Send with the token and the proof it needs; again where the server asks for a nonce."""
        if proofs is None:
            return await self._follow_redirects(verb, {**headers, "authorization": f"Bearer {token}"}, body)
        prove = partial(proofs.headers, verb, token=token)
        response = await self._follow_redirects(verb, headers, body, prove)
        if not proofs.asks_again(response.url, response.headers) or response.status != 401:
            return response
        response.close()
        return await self._follow_redirects(verb, headers, body, prove)

    async def _follow_redirects(
        self,
        verb: str,
        headers: Mapping[str, str],
        body: RequestBody | None,
        prove: Callable[[str], Mapping[str, str]] | None = None,
    ) -> Response:
        url, followed = self._url, 0
        while True:
            sent = headers if prove is None else {**headers, **prove(url)}
            try:
                response = await self._client.request(verb, url, sent, body)
            except (BadAnswerError, OSError, ValueError) as exc:
                raise self._build_exchange_error(exc, body) from exc
            self._has_answered = True
            if not 300 <= response.status < 400:
                break
            response.close()
            target = _target(response)
            if followed == _MAX_REDIRECTS or target is None or not _may_follow(verb, response, target):
                raise self.error(
                    _build_redirect_failure(self._server, response, target, is_circle=followed == _MAX_REDIRECTS)
                )
            url = target
            if response.status == 308:
                self._url = url
            followed += 1
        encoding = response.headers.get("content-encoding", "identity")
        if encoding == "identity":
            return response
        if can_unpack(encoding):
            return UnpackedResponse(response)
        response.close()
        reason = f"sent an answer compressed with '{encoding[:_SHOWN_CHARS]}', which was not asked for"
        raise self.error(HttpFailure(reason, hint=_PACKED_HINT))

    def _build_exchange_error(
        self, exc: BadAnswerError | OSError | ValueError, body: RequestBody | None
    ) -> UpstreamError:
        if isinstance(exc, BadAnswerError) or (isinstance(exc, OSError) and body is not None and body.is_sent):
            # One that has answered before speaks http, and had another reason to break the connection.
            is_doubtful = isinstance(exc, BadAnswerError) or not self._has_answered
            hint = _TLS_HINT if is_doubtful and self._url.startswith("http://") else ""
            return self.error(HttpFailure(_describe_broken_exchange(exc), hint=hint, is_lost=True))
        if not isinstance(exc, OSError):  # a certificate that cannot be verified is a ValueError, too
            reason = "cannot be asked: its url or one of its headers is not valid in HTTP"
            return self.error(HttpFailure(reason, was_refused=True))
        none_left = why_none_left(exc)
        reason = f"cannot be reached: {none_left}" if none_left else _words_for_unreachable(exc)
        self._on_unreachable(reason)
        hint = OPEN_FILES_HINT if none_left else ""
        return self.error(HttpFailure(reason, was_refused=True, hint=hint, is_lost=not none_left))

    async def read_some(self, response: Response) -> bytes:
        """Return body bytes that have arrived, at least one; empty at the end.

        Raises:
            UpstreamError: The connection broke.
        """
        try:
            return await response.read_some()
        except (BadAnswerError, OSError) as exc:
            raise self._cut(exc) from exc

    async def read_all(self, response: Response) -> Sequence[bytes]:
        """The whole body, in at least one piece.

        Raises:
            UpstreamError: The connection broke, or the body is too long.
        """
        try:
            body = await response.read_whole(self._max_body_bytes)
        except (BadAnswerError, OSError) as exc:
            raise self._cut(exc) from exc
        if body is None:
            raise self.build_oversize_error()
        return body

    def _cut(self, exc: BadAnswerError | OSError) -> UpstreamError:
        return self.error(
            HttpFailure(_describe_broken_exchange(exc) if isinstance(exc, BadAnswerError) else _CUT, is_lost=True)
        )

    async def read_refusal(self, response: Response) -> bytes | None:
        """The body of an error; None if it does not come whole and soon."""
        try:
            async with asyncio.timeout(_REFUSAL_S):
                return b"".join(await self.read_all(response))
        except (TimeoutError, UpstreamError):
            return None

    @property
    def chores(self) -> int:
        """Number of background tasks."""
        return len(self._chores)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that nobody waits for, which `stop` ends."""
        task = spawn(work, f"upstream-http-{self._server}")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def stop(self) -> None:
        """End what goes on in the background."""
        if chores := tuple(self._chores):
            for task in chores:
                task.cancel()
            await asyncio.wait(chores, timeout=_CLOSE_S)

    def drain_soon(self, response: Response) -> None:
        """Read what little should be left of a body, so that its connection can be used again."""
        self.spawn(self._drain(response))

    async def _drain(self, response: Response) -> None:
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
        await self._client.close()
        if self._bearer is not None:
            await self._bearer.close()

    def error(self, failure: HttpFailure) -> UpstreamError:
        """The error for an exchange that failed."""
        is_signed_in = self._bearer is not None
        if failure.reason == _PLAIN:
            failure = msgspec.structs.replace(failure, hint=_PLAIN_HINT)
        return build_failure_error(self._server, failure, is_signed_in=is_signed_in, sent=self._sent)

    def status_error(self, response: Response, said: str = "", *, is_session_over: bool = False) -> UpstreamError:
        """The error for an answer of status 400 or above, whose body says `said`.

        Args:
            response: The answer.
            said: What its body says.
            is_session_over: A 404 means the session that the request named; see `refuses_session`.
        """
        failure = HttpFailure(
            status_words(response.status),
            response.status,
            was_refused=is_refusal(response.status, is_session_over=is_session_over),
            retry_after_s=retry_after_s(response.headers.get("retry-after", "")),
            missing_scope=_extract_missing_scope(response),
            names_sign_in=has_sign_in_metadata(response.status, response.headers.get("www-authenticate", "")),
            said=redact(said),
        )
        return self.error(failure)

    def build_lost_error(
        self, reason: str, cause: UpstreamError | None, *, was_sent: bool, hint: str = ""
    ) -> UpstreamError:
        """The error of a request that the end of the session leaves without an answer.

        Args:
            reason: Why it ended.
            cause: By which the server says that it no longer knows the session; None where it is not that.
            was_sent: Whether the server may have carried the request out.
            hint: What to do about the reason.
        """
        if cause is not None:
            return build_lost_session_error(self._server, cause, was_refused=not was_sent)
        hint = STOPPED_HINT if reason == STOPPED else hint
        return self.error(HttpFailure(reason, was_refused=not was_sent, hint=hint, is_lost=True))

    def raise_where_tls_is_missing(self, response: Response, page: bytes) -> None:
        """Raise where the page of a refusal says that the port has TLS.

        Raises:
            UpstreamError: It does.
        """
        if response.status == 400 and self._url.startswith("http://") and _WANTS_TLS.search(page, 0, _PAGE_BYTES):
            hint = "Write https:// instead of http:// in its url, or give the port at which it speaks http."
            raise self.error(
                HttpFailure("speaks https alone at that port (HTTP 400)", 400, was_refused=True, hint=hint)
            )

    def build_oversize_error(self) -> UpstreamError:
        """The error for an answer that is too long."""
        return self.error(build_too_long_failure(self._max_body_bytes))


def media_type(response: Response) -> str:
    """Media type of a response without parameters, in lower case; empty if it has none."""
    return _media_type(response.headers.get("content-type", ""))


def is_event_stream(response: Response) -> bool:
    """Whether a response is a stream of events, under whichever good status."""
    return response.status < 300 and media_type(response) == "text/event-stream"


def is_json(response: Response) -> bool:
    """Whether a response holds JSON."""
    kind = media_type(response)
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


@lru_cache(_MEDIA_TYPES)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _extract_missing_scope(response: Response) -> str:
    return parse_missing_scope(response.status, response.headers.get("www-authenticate", ""))


def _target(response: Response) -> str | None:
    location = response.headers.get("location")
    try:
        target = urljoin(response.url, location) if location else None
        return target if urlsplit(target or "").port != 0 else None
    except ValueError:  # the port may be none, too
        return None


def _may_follow(verb: str, response: Response, target: str) -> bool:
    """Return whether a redirect keeps the request unchanged on its origin or the https twin."""
    if response.status not in (307, 308) and not (verb == "GET" and response.status in (301, 302, 303)):
        return False
    here, there = urlsplit(response.url), urlsplit(target)
    if there.username is not None or there.password is not None or there.hostname != here.hostname:
        return False
    ways = [(part.scheme, part.port or _PORTS.get(part.scheme)) for part in (here, there)]
    return ways[0] == ways[1] or ways == [("http", 80), ("https", 443)]


def _build_redirect_failure(server: str, response: Response, target: str | None, *, is_circle: bool) -> HttpFailure:
    there = urlsplit(target) if target is not None else None
    if there is None or not there.hostname:
        reason, hint = f"redirects to no address (HTTP {response.status})", ""
        return HttpFailure(reason, response.status, was_refused=is_refusal(response.status), hint=hint)
    # Neither a password nor what a query may hold belongs into a message.
    host = f"[{there.hostname}]" if ":" in there.hostname else there.hostname
    place = f"{there.scheme}://{host}" + (f":{there.port}" if there.port else "") + there.path[:_PATH_CHARS]
    name = shell_word(server)
    if is_circle:
        reason, hint = (
            f"redirects in circles, at last to {place} (HTTP {response.status})",
            "Check the path of its url.",
        )
    elif re.search(_SIGN_IN, there.path):
        reason = f"redirects to {place} (HTTP {response.status}), which looks like a page to sign in at"
        hint = f"Put its token into 'headers' of its entry, or try: mcpproxy server login {name}"
    else:
        reason = f"redirects to {place} (HTTP {response.status}), which is not followed"
        trust = "" if there.hostname == urlsplit(response.url).hostname else " and may get what its entry sends"
        hint = f"If that is where it is now{trust}: mcpproxy server patch {name} {shell_word(f'url={place}')}"
    return HttpFailure(reason, response.status, was_refused=is_refusal(response.status), hint=hint)


def _words_for_unreachable(exc: OSError) -> str:
    if isinstance(exc, TimeoutError) and exc.errno is None:
        return str(exc)
    if isinstance(exc, ssl.SSLError) and exc.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return _PLAIN  # the handshake was answered in plain text
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"has no valid certificate: {_first_line(exc.verify_message)}"
    if isinstance(exc, (ssl.SSLError, socket.gaierror)) or exc.errno is None or exc.errno < 0:
        return f"cannot be reached: {_first_line(exc.strerror or exc) or type(exc).__name__}"
    return f"cannot be reached: {os.strerror(exc.errno)}"


def _describe_broken_exchange(exc: Exception) -> str:
    if isinstance(exc, BadAnswerError):
        return f"sent an answer that is no valid HTTP: {_first_line(exc)}"
    return f"broke the connection: {_first_line(exc) or type(exc).__name__}"


def _first_line(text: object) -> str:
    return next(iter(str(text).splitlines()), "").rstrip(":. ")
