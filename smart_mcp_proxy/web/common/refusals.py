"""Refusals of clients that are not let in, as JSON: the reason, and the next step."""

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, RefusedError
from smart_mcp_proxy.settings import Settings

Address = IPv4Address | IPv6Address

_HOST = re.compile(rb"(?:[^\[\]@/\s]*|\[[0-9A-Fa-f:.]+\](?::\d+)?)")
"""A name or an IPv4 address, or an IPv6 address and nothing behind it but a port. Source: RFC 3986, section 3.2.2."""


def list_allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """Host names accepted besides loopback: the settings' own and the public address's."""
    public = urlsplit(settings.public_url).hostname if settings.public_url is not None else None
    return (*settings.allowed_hosts, public) if public else settings.allowed_hosts


def parse_address(text: str) -> Address | None:
    """An IP address, that of IPv4 where IPv6 only wraps one; None for any other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine only."""
    address = parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class PlainAddress:
    """Refuses a request whose Host or Origin is ambiguous; passes others on untouched.

    Args:
        app: Checks what is left.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        headers = scope["headers"] if scope["type"] == "http" else ()
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1 or not all(map(_HOST.fullmatch, hosts)):
            await Response("Misdirected Request", status_code=421)(scope, receive, send)
        elif sum(name == b"origin" for name, _ in headers) > 1:
            await Response("Forbidden Origin", status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


INVALID_REQUEST = -32600
"""A refusal has no request id, like that of a forbidden Origin.

Source: https://www.jsonrpc.org/specification;
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports"""
SHOWN_CHARS = 100
"""Characters shown of a header's value."""


class Refusals:
    """An ASGI app whose 401, 403 and 421 say what is wrong; the library's own answers are a word or two.

    Args:
        app: Answers, and refuses with an empty or a bare body.
        metadata_url: Where clients learn who signs tokens for this gateway; None where nobody does.
        scopes: That such a token can have.
        answer: Words a refusal; None for JSON-RPC. Where it is given the app's own worded answers are left alone.
    """

    def __init__(
        self,
        app: ASGIApp,
        metadata_url: str | None = None,
        scopes: Sequence[str] = (),
        answer: Callable[[ProxyError, int], Response] | None = None,
    ) -> None:
        self._app = app
        self._metadata_url = metadata_url
        self._scopes = " ".join(scopes)
        self._is_rest = answer is not None
        self._answer = answer or _answer_rpc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        is_refused = False

        async def word(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and (error := self._refusal(scope, message)) is not None:
                is_refused = True
                response = self._answer(error, message["status"])
                response.headers.update(self._challenge(scope, message["status"]))
                await response(scope, receive, send)
            elif not is_refused:
                await send(message)

        await self._app(scope, receive, word)

    def _challenge(self, scope: Scope, status: int) -> dict[str, str]:
        """The header that belongs to a 401.

        Not with the library's own words: they send clients to look for a sign-in also where there is none.
        Source: RFC 6750, section 3; RFC 9728, section 5.1;
        https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
        """
        if status != 401:
            return {}
        words = ['error="invalid_token"'] if "authorization" in Headers(scope=scope) else []
        if self._metadata_url is not None:
            words += [f'resource_metadata="{self._metadata_url}"', f'scope="{self._scopes}"']
        return {"www-authenticate": " ".join(["Bearer", ", ".join(words)]).rstrip()}

    def _refusal(self, scope: Scope, start: Message) -> ProxyError | None:
        # What the library refuses in a bare word has no type.
        is_worded = self._is_rest and any(name == b"content-type" for name, _ in start["headers"])
        return None if is_worded else build_refusal_error(scope, start["status"])


def guard_app(
    app: ASGIApp,
    settings: Settings,
    metadata_url: str | None = None,
    scopes: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    answer: Callable[[ProxyError, int], Response] | None = None,
) -> ASGIApp:
    """The app behind checks of Host and Origin, and with its refusals worded.

    Args:
        app: Answers who passes.
        settings: They name the hosts.
        metadata_url: See `Refusals`, as the others.
        scopes: Likewise.
        allowed_origins: Of pages that may ask; none for those of the gateway's own address alone.
        answer: Words a refusal; None for an error as REST has it.
    """
    # Here and not above: what serves the command line needs no FastMCP.
    from fastmcp.server.http import HostOriginGuardMiddleware

    hosts = list_allowed_hosts(settings) or None
    guarded = HostOriginGuardMiddleware(app, hosts, allowed_origins or None, mode="strict")
    return Refusals(PlainAddress(guarded), metadata_url, scopes, answer or _answer_rest)


def build_refusal_error(scope: Scope, status: int) -> ProxyError | None:
    """Why a request is answered with this status; None if the status is no refusal of the endpoint."""
    if status not in (401, 403, 421):
        return None
    headers = Headers(scope=scope)
    if status == 421:
        return RefusedError(
            f"This gateway does not answer to the Host {headers.get('host', '')[:SHOWN_CHARS]!r}.",
            hint="Use 127.0.0.1 or localhost, or have the name added to MCPPROXY_ALLOWED_HOSTS.",
            code="host_not_allowed",
        )
    if status == 403:
        return RefusedError(
            f"Requests from pages of the Origin {headers.get('origin', '')[:SHOWN_CHARS]!r} are not let in.",
            hint="A page may come from 127.0.0.1, localhost, or the name in its request's Host header that "
            "MCPPROXY_ALLOWED_HOSTS has.",
            code="origin_not_allowed",
        )
    has_sent = "authorization" in headers
    return RefusedError(
        "The token sent is not one of this gateway's, or no longer."
        if has_sent
        else "This gateway asks for a token, and none was sent.",
        hint="Send the header 'Authorization: Bearer TOKEN' with the value of the gateway's MCPPROXY_AUTH_TOKEN, or "
        "with a token from its operator (mcpproxy token create NAME).",
        code="unauthorized",
    )


def refusal(error: ProxyError) -> Response:
    """The answer to a request that an error keeps from being let in, as JSON-RPC."""
    headers = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:.0f}"}
    return JSONResponse(_rpc(error, error.jsonrpc_code), status_code=error.http_status, headers=headers)


def _rpc(error: ProxyError, code: int = INVALID_REQUEST) -> dict[str, Any]:
    failure = {"code": code, "message": str(error), "data": error.to_dict()}
    return {"jsonrpc": "2.0", "id": None, "error": failure}


def _answer_rpc(error: ProxyError, status: int) -> Response:
    return JSONResponse(_rpc(error), status)


def _answer_rest(error: ProxyError, status: int) -> Response:
    return JSONResponse({"error": error.to_dict()}, status)
