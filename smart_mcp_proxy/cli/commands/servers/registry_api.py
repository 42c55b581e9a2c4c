"""A registry that speaks API v0.1, asked for one server.

It sends GET to /v0.1/servers, /v0.1/servers/{serverName}/versions and /v0.1/servers/{serverName}/versions/{version}.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Final
from urllib.parse import quote, urlsplit

import httpx2

from smart_mcp_proxy.cli.support.failure import add_next_step
from smart_mcp_proxy.errors import ConfigError, ProxyError, RequestError, UpstreamError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.registry import Listing, read_listing, read_page
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import TlsContext
from smart_mcp_proxy.upstream.http_failures import new_transport

REQUEST_S: Final = 20.0
"""For a whole answer: as long as a request for a sign-in's metadata may take."""
ANSWER_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""A page of 100 servers has some 200 kB."""
NEAR: Final = 5
SEARCH_LIMIT: Final = 100
_VERSIONS_SHOWN: Final = 10
_NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
"""ServerDetail.name of the API."""
_NAME_CHARS: Final = 200
_VERSION: Final = re.compile(r"[\x21-\x7e]{1,255}")
"""ServerDetail.version of the API, of which a line of output is made here."""
_LEAST_CHARS: Final = 3
"""Least characters of a text that is searched for: fewer are in every name."""
_PORTS: Final = {"http": 80, "https": 443}
_API: Final = re.compile(r"/v0(?:\.1)?(?:/servers)?/?$")


class RegistryClient:
    """A registry.

    Args:
        client: Sends requests; `base_url` is the registry's.
        address: For messages.
    """

    def __init__(self, client: httpx2.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address

    async def fetch_listing(self, name: str, version: str = "latest") -> Listing:
        """Return one version of a server, even a deleted one.

        Raises:
            RequestError: There is none; names that are close are in `data.did_you_mean`.
            UpstreamError: The registry cannot be asked, or does not answer as its API says.
        """
        if not _is_name(name):
            raise await self._unknown(name)
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
        body = await self._get(path, {}) or await self._get(path, {"include_deleted": "true"})
        if body is None:
            raise await self._without(name, version)
        listing = read_listing(body)
        if listing.server.name != name or version not in ("latest", listing.server.version):
            raise self._build_registry_error(
                f"answered with '{listing.server.name}' {listing.server.version} for '{name}' {version}"
            )
        return listing

    async def _without(self, name: str, version: str) -> ProxyError:
        """Why there is no such version."""
        body = await self._get(f"/v0.1/servers/{quote(name, safe='')}/versions", {})
        listed = [] if body is None else [listing.server.version for listing in read_page(body)]
        known = [each for each in listed if _VERSION.fullmatch(each)]
        if not known:
            return await self._unknown(name)
        return add_next_step(
            RequestError(
                f"'{name}' has no version {version[:40]!r}.",
                hint=f"It has: {', '.join(known[:_VERSIONS_SHOWN])}.",
                code="version_not_found",
                data={"versions": known[:_VERSIONS_SHOWN]},
            ),
            f"mcpproxy server add --registry {shell_word(name)} --version {shell_word(known[0])} --dry-run",
        )

    async def _unknown(self, name: str) -> ProxyError:
        near = await self._near(name)
        hint = f"Close: {', '.join(near)}." if near else "Look its full name up in the registry."
        if "/" not in name:
            hint += " A full name has a slash, such as io.github.somebody/weather."
        return add_next_step(
            RequestError(
                f"The registry {self._address} has no server {name[:_NAME_CHARS]!r}.",
                hint=hint,
                code="registry_server_not_found",
                data={"close": near} if near else None,
            ),
            f"mcpproxy server add --registry {shell_word(near[0]) if near else 'NAMESPACE/NAME'} --dry-run",
        )

    async def _near(self, name: str) -> list[str]:
        """Full names that may have been meant."""
        for words in _derive_search_terms(name):
            query = {"search": words, "version": "latest", "limit": str(SEARCH_LIMIT)}
            body = await self._get("/v0.1/servers", query)
            names = [] if body is None else [each.server.name for each in read_page(body)]
            if found := list(filter(_is_name, names)):
                close = get_close_matches(name, found, n=NEAR, cutoff=0.0)
                return list(dict.fromkeys(close))
        return []

    async def _get(self, path: str, query: Mapping[str, str]) -> bytes | None:
        """The body of an answer; None where there is nothing at the path."""
        try:
            async with asyncio.timeout(REQUEST_S), self._client.stream("GET", path, params=query) as reply:
                body = bytearray()
                async for part in reply.aiter_bytes():
                    body += part
                    if len(body) > ANSWER_LIMIT_BYTES:
                        raise self._build_registry_error(f"answered with more than {ANSWER_LIMIT_BYTES:,} bytes")
                status = reply.status_code
        except (TimeoutError, httpx2.TimeoutException) as exc:
            raise self._unreachable(f"did not answer within {REQUEST_S:g} s") from exc
        except httpx2.HTTPError as exc:
            raise self._unreachable(f"cannot be reached: {exc or type(exc).__name__}") from exc
        if status == 200:
            return bytes(body)
        if status in (400, 404, 422):  # a name or a version that it does not take is one that it does not have
            return None
        if status in (401, 403):
            raise UpstreamError(
                f"The registry {self._address} asks for a token (HTTP {status}).",
                hint="Set MCPPROXY_REGISTRY_TOKEN to one that it accepts.",
                code="registry_unauthorized",
            )
        raise self._build_registry_error(f"answered with HTTP {status}")

    def _unreachable(self, words: str) -> UpstreamError:
        return UpstreamError(
            f"The registry {self._address} {words}.",
            hint="Check MCPPROXY_REGISTRY_URL and the network, or add the server by hand: mcpproxy server add NAME ...",
            code="registry_unreachable",
        )

    def _build_registry_error(self, words: str) -> UpstreamError:
        return UpstreamError(
            f"The registry {self._address} {words}.",
            hint="Check that MCPPROXY_REGISTRY_URL is the address of an MCP registry with API v0.1.",
            code="registry_failed",
        )


@asynccontextmanager
async def open_registry(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[RegistryClient]:
    """The registry of the settings while open.

    No redirect is followed; of the environment proxies and certificates count.

    Raises:
        ConfigError: None is set, or its token would go over a line that others can read.
    """
    if settings.registry_url is None:
        raise ConfigError(
            "MCPPROXY_REGISTRY_URL is not set, so there is no registry to ask.",
            hint="Set it to the address of an MCP registry (API v0.1), such as the official one's, without /v0.1.",
        )
    address = _API.sub("", settings.registry_url).rstrip("/")
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    headers = {"accept": "application/json"}
    if settings.registry_token is not None:
        if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
            raise ConfigError(
                "MCPPROXY_REGISTRY_TOKEN would be sent over http, which others can read.",
                hint="Use an https address in MCPPROXY_REGISTRY_URL.",
            )
        headers["authorization"] = f"Bearer {settings.registry_token.get_secret_value()}"
    tls = TlsContext(environ)
    transport = new_transport(await tls.get(), tls.find_proxy(parts.scheme, host, port))
    async with httpx2.AsyncClient(
        transport=transport, base_url=address, headers=headers, timeout=REQUEST_S, trust_env=False
    ) as client:
        yield RegistryClient(client, address)


def _is_name(name: str) -> bool:
    """Whether a text can be a server's full name; a registry may answer with anything."""
    return len(name) <= _NAME_CHARS and _NAME.fullmatch(name) is not None


def _derive_search_terms(name: str) -> Iterable[str]:
    """Parts of a name to search for: its end, the words of that, then the ends of the longest word."""
    last = name.rpartition("/")[2][:_NAME_CHARS]
    words = sorted(re.findall(rf"[A-Za-z0-9]{{{_LEAST_CHARS},}}", last), key=len, reverse=True)
    ends = [end for word in words[:1] for end in (word[:_LEAST_CHARS], word[-_LEAST_CHARS:])]
    return list(dict.fromkeys(part for part in (last, *words[:2], *ends) if len(part) >= _LEAST_CHARS))
