"""HTTP for discovery, registration and tokens: addresses are resolved, judged, then used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.telemetry import printable
from smart_mcp_proxy.upstream.addresses import AddressReach, classify_address, resolve_host
from smart_mcp_proxy.upstream.http_failures import TlsContext, new_transport
from smart_mcp_proxy.upstream.proxies import HttpProxy

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses behind host and port."""

_REQUEST_S: Final = 20.0
_MAX_BODY_BYTES: Final = 1 << 20
"""Metadata and token answers are a few kilobytes."""
_PORTS: Final = {"http": 80, "https": 443}
_CODE_CHARS: Final = 200


class AuthHttp:
    """Asks the places that a server names for its sign-in, where it may name them.

    https only, except on this machine; nothing closer to us than the server itself, and never a link-local address.
    No redirect is followed; of the environment only proxies and certificates count.

    Args:
        server: Configured name, for messages.
        url: The server's address.
        tls: For https.
        resolve: Finds addresses.
    """

    def __init__(self, server: str, url: str, tls: TlsContext, resolve: Resolve = resolve_host) -> None:
        self._server = server
        self._url = url
        self._tls = tls
        self._resolve = resolve
        self._server_reach: AddressReach | None = None

    def beside(self, url: str) -> AuthHttp:
        """Create one for an address that the user configured, wherever that is."""
        return AuthHttp(self._server, url, self._tls, self._resolve)

    async def check(self, url: str) -> list[str]:
        """Resolve and judge `url`: the IP addresses to use; none where only the proxy knows its host.

        Raises:
            UpstreamAuthError: It must not be used.
            UpstreamError: Its host is not known.
        """
        try:
            return await self._resolve_allowed_addresses(url)
        except UpstreamAuthError:
            raise
        except UpstreamError:
            # Behind a proxy names of the outer world may not be known; an address in figures is judged in any case.
            if urlsplit(url).scheme != "https" or self._proxy(url) is None:
                raise
            return []

    def _proxy(self, url: str) -> HttpProxy | None:
        parts = urlsplit(url)
        return self._tls.find_proxy(parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0))

    async def _resolve_allowed_addresses(self, url: str) -> list[str]:
        if self._server_reach is None:
            reaches = [classify_address(address) for address in await self._addresses(self._url)]
            self._server_reach = min(reaches)
        addresses = await self._addresses(url)
        closest = max(map(classify_address, addresses))
        if closest is AddressReach.FORBIDDEN:
            raise self._build_refusal_error(url, "its address is link-local, reserved or a cloud's metadata service")
        if closest > self._server_reach:
            raise self._build_refusal_error(url, "it is closer to this machine than the server itself")
        if urlsplit(url).scheme == "http" and closest is not AddressReach.LOOPBACK:
            raise self._build_refusal_error(url, "it is not https")
        return addresses

    async def send(self, request: httpx2.Request, *, reads_body: bool = True) -> httpx2.Response:
        """The answer to `request`, whatever its status, with its body unless that is of no interest.

        Raises:
            UpstreamAuthError: The address must not be used.
            UpstreamError: There is no answer.
        """
        addresses = await self.check(str(request.url))
        # Plain http was judged to stay on this machine, under whichever name; a proxy would carry it away.
        proxy = self._proxy(str(request.url)) if request.url.scheme == "https" else None
        if proxy is not None:
            addresses = [request.url.host]
        transport = new_transport(await self._tls.get(), proxy)
        try:
            async with asyncio.timeout(_REQUEST_S):
                return await self._first_answer(transport, request, addresses, reads_body=reads_body)
        except TimeoutError:
            raise self._unreachable(request, f"did not answer within {_REQUEST_S:g} s") from None
        except httpx2.TransportError as exc:
            raise self._unreachable(request, f"cannot be asked: {printable(str(exc)) or type(exc).__name__}") from exc
        finally:
            await transport.aclose()

    async def _first_answer(
        self, transport: httpx2.AsyncBaseTransport, request: httpx2.Request, addresses: list[str], *, reads_body: bool
    ) -> httpx2.Response:
        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError):
                return await _exchange(transport, request, address, reads_body=reads_body)
        return await _exchange(transport, request, addresses[-1], reads_body=reads_body)

    async def _addresses(self, url: str) -> list[str]:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
            raise self._build_refusal_error(url, "it is no plain https address")
        try:
            return await self._resolve(parts.hostname, parts.port or _PORTS[parts.scheme])
        except (OSError, ValueError) as exc:
            raise UpstreamError(
                f"Server '{self._server}': {printable(parts.hostname)}, needed for its sign-in, is not known.",
                hint="Check the server's url and the network.",
            ) from exc

    def _build_refusal_error(self, url: str, reason: str) -> UpstreamAuthError:
        parts = urlsplit(url)
        place = printable(f"{parts.scheme}://{parts.hostname or ''}")[:200]
        return UpstreamAuthError(
            f"Server '{self._server}' leads its sign-in to {place}, which is refused: {reason}.",
            hint="Only whoever runs the server can correct this; nothing was sent there.",
        )

    def _unreachable(self, request: httpx2.Request, reason: str) -> UpstreamError:
        return UpstreamError(
            f"Server '{self._server}': {request.url.host}, needed for its sign-in, {reason}.",
            hint="It is tried again; check the network if it lasts.",
        )


def parse_json_members(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object in a response; an empty one if it holds none."""
    try:
        body: Any = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def error_code(response: httpx2.Response) -> str:
    """Error code of an authorization server's response; empty if absent.

    Source: RFC 6749, section 5.2.
    """
    code = parse_json_members(response).get("error")
    return printable(code)[:_CODE_CHARS] if isinstance(code, str) else ""


async def _exchange(
    transport: httpx2.AsyncBaseTransport, request: httpx2.Request, address: str, *, reads_body: bool
) -> httpx2.Response:
    """Sends to this address and no other; the name stays in `Host`, and in TLS for the certificate."""
    pinned = httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers={**request.headers, "user-agent": "smart-mcp-proxy", "accept-encoding": "identity"},
        content=request.content,
        extensions={"sni_hostname": request.url.host},
    )
    response = await transport.handle_async_request(pinned)
    try:
        body = bytearray()
        if reads_body:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    raise httpx2.ReadError(f"an answer of more than {_MAX_BODY_BYTES:,} bytes")
    finally:
        await response.aclose()
    kept = {name: value for name, value in response.headers.items() if name not in ("content-encoding", "location")}
    return httpx2.Response(response.status_code, headers=kept, content=bytes(body), request=request)
