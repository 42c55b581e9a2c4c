"""Causes of failed HTTP exchanges, in words; certificates and proxies for all of them."""

import asyncio
import http
import re
import ssl
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import httpx2
import msgspec

from smart_mcp_proxy.errors import Delivery, UpstreamAuthError, UpstreamBusyError, UpstreamError
from smart_mcp_proxy.names import login_hint, shell_word
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.proxies import HttpProxy, find_environ_proxy

_log = get_logger("upstream")

_WORDS = ("message", "error_description", "detail", "title", "error")
"""Members in which bodies of errors say what happened, and those of large APIs.

Source: RFC 6749, section 5.2; RFC 9457; https://www.jsonrpc.org/specification"""
_WORDS_CHARS = 300
_members = msgspec.json.Decoder(dict[str, Any])
_LONGEST_RETRY_S = 86_400.0
_MOST_SCOPES = 50
_CA_FILES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name files with certificates of authorities, which are trusted beside the system's."""
_SAID_CHARS = 1_000
_GONE = frozenset({400, 404, 410})
"""Statuses with which servers answer a request of a session that they no longer know, if only 404 is the protocol's."""
_SESSION = r"(?i)session|initiali[sz]"
_UNKNOWN_SESSION = (
    r"(?is)(?:\b(?:unknown|expired|(?:in)?valid|missing|stale|unrecogni[sz]ed|find)\b.{0,40}?|\bno (?:such |active )?)"
    r"session"
    r"|session.{0,80}?\b(?:unknown|expired|timed out|invalid|missing|required|provided|no longer exists|inactive"
    r"|(?:not|n't) (?:found|exist|valid|active|known|recogni[sz]ed))"
    r"|\bno transport\b.{0,20}session|\bnot (?:been |yet )?initiali[sz]ed|\bbefore initiali[sz]|\binitiali[sz]e first"
    r"|\bexpect\w* initiali[sz]e|\bnot an initiali[sz]e"
)
"""Words by which servers refuse a request for its session, before they do anything with it: those of the
official SDKs of TypeScript, Python, Java, Go, C# and Rust, and of their example servers."""
_LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list", "ping"})
"""Requests that only read, and can be sent again whatever became of them."""
REFUSALS_S = 1.0
"""Seconds that requests of a forgotten session may wait to be refused, too, before they are given up."""
_RENEWED_HINT = (
    "It may have been restarted, or have ended the session. A new session is opened; send the request again."
)
IN_SESSION_HINT = "It refused this one request, and may have carried it out: check before repeating it."
_UNSURE_HINT = "A new session is opened. The request may have been carried out: check before repeating it."
_METADATA = r"(?i)\b(?:Bearer|DPoP)\b.*\bresource_metadata\s*=\s*[\"\w]"
"""Source: RFC 9728, section 5.1."""
_CHALLENGE = r'\b(error|scope)\s*=\s*(?:"([^"]*)"|([^\s,"]+))'
_SCOPE = r"[!#-\[\]-~]{1,200}"
"""A longer one is none that a person could judge. Source: RFC 6749, section 3.3"""


class HttpFailure(msgspec.Struct, frozen=True):
    """Why an HTTP exchange gave no answer.

    Attributes:
        reason: What happened, to stand after the server's name.
        status: HTTP status, 0 if there was none.
        was_refused: The server cannot have carried the request out.
        retry_after_s: What it asked for, if it did.
        hint: What to do about it, where that is not told by the status.
        missing_scope: What the sign-in has not been granted and the request needs, with spaces between; else empty.
        names_sign_in: A refusal that says where to sign in (`resource_metadata`).
        said: What the server's answer says about it, in its own words.
        is_lost: The connection broke, or could not be made.
    """

    reason: str
    status: int = 0
    was_refused: bool = False
    retry_after_s: float | None = None
    hint: str = ""
    missing_scope: str = ""
    names_sign_in: bool = False
    said: str = ""
    is_lost: bool = False


_KINDS: Mapping[int, type[UpstreamError]] = {401: UpstreamAuthError, 429: UpstreamBusyError}


class MissingScopeError(UpstreamAuthError):
    """A request that needs more than the sign-in was granted; others may do with what there is."""


class LostSessionError(UpstreamError):
    """A server no longer knows our session; a request that it refused for that is `not_sent`."""


def refuses_session(body: bytes) -> bool:
    """Whether a 404 with this body, in a session, leaves no doubt that the session is what was not found.

    It says nothing, or what the SDKs say; JSON of another form may come from a tool that found nothing.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    """
    if not body.strip():
        return True
    try:
        members = _members.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return extract_error_message(body) != ""
    return "jsonrpc" in members and re.search(_SESSION, extract_error_message(body)) is not None


def is_about_session(error: UpstreamError, *, has_id: bool, status: int = 0) -> bool:
    """Whether an error may mean that the server no longer knows our session.

    Args:
        error: A request's.
        has_id: The request named a session.
        status: Of the HTTP response that a JSON-RPC error came with.
    """
    if has_id and (status == 404 or (error.answer is None and (error.data or {}).get("http_status") in _GONE)):
        return True
    return re.search(_SESSION, _collect_error_text(error)) is not None


def build_lost_session_error(
    server: str, cause: UpstreamError, *, method: str = "", was_refused: bool | None = None
) -> LostSessionError:
    """The error of a request that a lost session leaves without a result.

    Args:
        server: Its configured name.
        cause: What it answered, to this request or to another one of the session.
        method: Of the request.
        was_refused: The request cannot have been carried out; None to tell by `cause`, its own error.
    """
    status = (cause.data or {}).get("http_status")
    if was_refused is None:
        was_refused = cause.delivery == "not_sent" or method in _LISTS or _is_refused_in_words(cause, method)
    how = f"HTTP {status}" if status else f"error {cause.answer.code}" if cause.answer is not None else "no answer"
    return LostSessionError(
        f"Server '{server}' has forgotten the session ({how})" + (":" if cause.said else "."),
        hint=_RENEWED_HINT if was_refused else _UNSURE_HINT,
        delivery="not_sent" if was_refused else "unknown",
        said=cause.said,
    )


def _is_refused_in_words(cause: UpstreamError, method: str) -> bool:
    """Whether the server says that it did not take the request, for its session.

    What carries the id of a call is the answer of what dealt with it: a tool may itself have ended the session.
    """
    if method == "tools/call" and cause.answer is not None and cause.answer.has_id:
        return False
    return re.search(_UNKNOWN_SESSION, _collect_error_text(cause)) is not None


def _collect_error_text(error: UpstreamError) -> str:
    """All that the server said in an error; some servers put the cause into the data of a general one."""
    data = error.answer.data if error.answer is not None else None
    return error.said[:_SAID_CHARS] + (f" {data[:_SAID_CHARS]}" if isinstance(data, str) else "")


def parse_missing_scope(status: int, challenge: str) -> str:
    """Scopes that a refused request needed, separated by spaces; empty if that was not the cause.

    Args:
        status: Of the answer.
        challenge: Its `WWW-Authenticate`.

    Source: RFC 6750, section 3.1; https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
    """
    if status != 403:
        return ""
    named = {name: quoted or bare for name, quoted, bare in re.findall(_CHALLENGE, challenge)}
    if named.get("error") != "insufficient_scope":
        return ""
    return " ".join([scope for scope in named.get("scope", "").split() if re.fullmatch(_SCOPE, scope)][:_MOST_SCOPES])


def has_sign_in_metadata(status: int, challenge: str) -> bool:
    """Whether a refusal says where to sign in.

    Args:
        status: Of the answer.
        challenge: Its `WWW-Authenticate`.
    """
    return status == 401 and re.search(_METADATA, challenge) is not None


def build_too_long_failure(limit_bytes: int) -> HttpFailure:
    """Failure for an answer above the size limit."""
    hint = "Ask it for less, or raise MCPPROXY_MAX_MESSAGE_BYTES."
    return HttpFailure(f"sent an answer of more than {limit_bytes:,} bytes", hint=hint)


def build_failure_error(
    server: str, failure: HttpFailure, *, is_signed_in: bool, sent: Sequence[str] = ()
) -> UpstreamError:
    """The error for an exchange that failed.

    Args:
        server: Its configured name.
        failure: What happened.
        is_signed_in: It was sent the token of a sign-in.
        sent: Names of the configured headers with credentials that it was sent.
    """
    kind = _KINDS.get(failure.status, UpstreamError)
    reason, hint = failure.reason, failure.hint
    if not hint and failure.status == 401 and not is_signed_in:
        hint = _build_credentials_hint(server, sent, names_sign_in=failure.names_sign_in)
    hint = hint or _hint(server, failure.status, is_signed_in=is_signed_in)
    if failure.missing_scope:
        reason = f"needs the scope '{failure.missing_scope}', which has not been granted (HTTP {failure.status})"
    if failure.missing_scope and is_signed_in:
        kind, hint = MissingScopeError, f"{login_hint(server)} (it asks for that scope as well)"
    delivery: Delivery = "not_sent" if failure.was_refused else "unknown"
    error = kind(
        f"Server '{server}' {reason}" + (":" if failure.said else "."),
        hint=hint,
        delivery=delivery,
        data={"http_status": failure.status} if failure.status else None,
        retry_after_s=failure.retry_after_s,
        said=failure.said,
    )
    error.is_lost = failure.is_lost
    return error


def _hint(server: str, status: int, *, is_signed_in: bool) -> str:
    """Hint for a server that failed with this HTTP status, 0 for none."""
    if status == 401:
        return login_hint(server)
    if status == 403 and is_signed_in:
        login = f"mcpproxy server login {shell_word(server)}"
        return f"What was granted may not be enough: check 'oauth.scopes', then: {login}"
    if status == 429:
        return "Wait before the next call, and make fewer; the user can set 'calls_per_s' under 'limits' in its entry."
    if status >= 500:
        return f"The server failed. Its user can look at: mcpproxy server logs {shell_word(server)}"
    if status in (404, 405):
        return "Nothing there speaks MCP over HTTP: check the path of its url, which often ends in /mcp or /sse."
    return "Check the headers configured for it." if status == 403 else "Check its url and that it is running."


def _build_credentials_hint(server: str, sent: Sequence[str], *, names_sign_in: bool) -> str:
    """Hint for a server that refused (401) a request without a sign-in.

    Args:
        server: Its configured name.
        sent: Names of the headers with credentials that the request carried.
        names_sign_in: It says where to sign in.
    """
    if names_sign_in and not sent:
        return login_hint(server)
    name = shell_word(server)
    if not sent:
        return (
            "It wants credentials, and does not say which: put its token into 'headers' of its entry, "
            f"or try to sign in: mcpproxy server login {name}"
        )
    header = sent[0]
    patch = f"mcpproxy server patch {name} headers.{header}="
    value = "'Bearer ${env:TOKEN}'" if header.lower() == "authorization" else "'${env:TOKEN}'"
    instead = (
        f" To sign in instead, remove it ({patch}null), then: mcpproxy server login {name}." if names_sign_in else ""
    )
    return (
        f"It does not take what '{header}' under 'headers' of its entry holds, which may be expired, revoked or meant "
        f"for another server.{instead} Give it a new one: {patch}{value}"
    )


class TlsContext:
    """TLS context shared by all servers, made when first needed: reading certificates is slow.

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
                self._context = await asyncio.to_thread(self._load_context)
            return self._context

    def find_proxy(self, scheme: str, host: str, port: int) -> HttpProxy | None:
        """The proxy for requests to this origin; None where they go there directly.

        Raises:
            UpstreamError: The variable that should name one names none.
        """
        return find_environ_proxy(self._environ, scheme, host, port)

    def _load_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        for name in _CA_FILES:
            if path := self._environ.get(name):
                try:
                    context.load_verify_locations(path)
                except OSError as exc:
                    _log.warning("%s names %s, which holds no certificates that can be read: %s", name, path, exc)
        return context


def new_transport(tls: ssl.SSLContext, proxy: HttpProxy | None) -> "httpx2.AsyncHTTPTransport":
    """Create a transport, direct or through a proxy."""
    if proxy is None:
        return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)
    headers = {"proxy-authorization": proxy.authorization} if proxy.authorization else {}
    host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    way = httpx2.Proxy(f"http://{host}:{proxy.port}", headers=headers)
    return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, proxy=way)


def is_refusal(status: int, *, is_session_over: bool = False) -> bool:
    """Whether a server that answers with this status cannot have carried the request out.

    A 401 was not applied, 307 and 308 are to be sent again elsewhere, and a 404 may say that a session is over. Of all
    others it cannot be known.

    Source: RFC 9110, sections 15.4.8, 15.4.9 and 15.5.2;
    https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management

    Args:
        status: Of HTTP.
        is_session_over: A 404 means the session that the request named.
    """
    return status in (401, 307, 308) or (status == 404 and is_session_over)


def status_words(status: int) -> str:
    """Standard phrase for a status of 400 or above; never the server's own words."""
    try:
        return f"answered with HTTP {status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"answered with HTTP {status}"


def extract_error_message(body: bytes) -> str:
    """Message for people in an error body, as one short line; empty if there is none.

    Other text than JSON may be anything, pages among it: of it only a short line about the session is one.
    """
    try:
        members = _members.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        line = " ".join(body[: _WORDS_CHARS + 1].decode(errors="replace").split())
        return line if len(line) <= _WORDS_CHARS and "<" not in line and re.search(_UNKNOWN_SESSION, line) else ""
    inner = members.get("error")
    if isinstance(inner, dict):
        members = {**members, **inner}
    words = (members.get(name) for name in _WORDS)
    return next((" ".join(text.split())[:_WORDS_CHARS] for text in words if isinstance(text, str) and text.strip()), "")


def extract_rpc_error_message(body: bytes) -> str:
    """Message of the error in a JSON body that comes with a good status; empty where it is none."""
    return extract_error_message(body) if b'"error"' in body else ""


def retry_after_s(header: str) -> float | None:
    """Seconds that a `Retry-After` header asks to wait, at most a day; None where it names no seconds."""
    return min(float(header), _LONGEST_RETRY_S) if header.isascii() and header.isdecimal() else None
