"""The SDK's OAuth client for programs.

Relied on: that leaving out `issuer` is deprecated and still works.
"""

import warnings

from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.exceptions import MCPDeprecationWarning

__all__ = ["client_credentials_provider"]


def client_credentials_provider(
    server_url: str,
    storage: TokenStorage,
    client_id: str,
    client_secret: str,
    scope: str | None,
    issuer: str | None,
) -> ClientCredentialsOAuthProvider:
    """Create a provider for the client credentials grant.

    Without an issuer the MCP server names it.

    The SDK's warning about that is for programmers: here the user decides, in the server's entry.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        return ClientCredentialsOAuthProvider(server_url, storage, client_id, client_secret, scope=scope, issuer=issuer)
