"""The SDK's OAuth clients for programs.

Relied on: that leaving out `issuer` is deprecated and still works; `_exchange_token_client_credentials`, which builds
the request for tokens.
"""

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE
from mcp.shared.exceptions import MCPDeprecationWarning

ProviderT = TypeVar("ProviderT")
_UNNAMED: Final = "unregistered"
"""In the SDK's records, which know no client without an id; it is sent to nobody."""


def without_warning(provider: Callable[..., ProviderT], *args: Any, **options: Any) -> ProviderT:
    """Create a provider whose issuer may be left out; the MCP server names it then.

    The SDK's warning about that is for programmers: here the user decides, in the server's entry.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        return provider(*args, **options)


class JwtBearerProvider(ClientCredentialsOAuthProvider):
    """Client that trades an assertion for tokens, with or without credentials of its own.

    Args:
        server_url: Address of the MCP server.
        storage: Holds the tokens.
        client_id: Ours; empty if the assertion alone says who asks.
        client_secret: Its secret; empty for none.
        assertion: Given the authorization server's issuer and the resource, brings the assertion.
        scope: To ask for.
        issuer: The only authorization server that may be used.

    Source: RFC 7523, section 2.1.
    """

    def __init__(
        self,
        server_url: str,
        storage: Any,
        client_id: str,
        client_secret: str,
        *,
        assertion: Callable[[str, str], Awaitable[str]],
        scope: str | None = None,
        issuer: str | None = None,
    ) -> None:
        super().__init__(server_url, storage, client_id or _UNNAMED, client_secret, scope=scope, issuer=issuer)
        self._client_id = client_id
        self._assertion = assertion

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        asked = await super()._exchange_token_client_credentials()
        if (metadata := self.context.oauth_metadata) is None:  # nothing is sent then
            return asked
        form = dict(parse_qsl(asked.content.decode())) | {"grant_type": JWT_BEARER_GRANT_TYPE}
        form["assertion"] = await self._assertion(str(metadata.issuer), self.context.get_resource_url())
        if self._client_id and "authorization" not in asked.headers:
            form["client_id"] = self._client_id
        kept = {name: asked.headers[name] for name in ("authorization", "content-type") if name in asked.headers}
        return httpx2.Request("POST", asked.url, data=form, headers=kept)
