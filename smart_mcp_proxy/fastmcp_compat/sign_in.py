"""FastMCP's proxy to an OpenID Connect provider, with the two things it leaves open.

Clients register at the gateway and sign in at the provider; what they get is a token of the gateway's that stands for
the provider's. Relied on: `_jti_mapping_store` and `_upstream_token_store`, which lead from the one to the other.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.oauth_proxy.models import UpstreamTokenSet
from fastmcp.server.auth.oidc_proxy import OIDCProxy
from joserfc.errors import JoseError
from key_value.aio.protocols import AsyncKeyValue
from mcp.server.auth.provider import AccessToken as GrantedToken
from mcp.server.auth.provider import AuthorizationCode, TokenError
from mcp.server.auth.routes import REVOCATION_PATH, cors_middleware
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["SignInProxy"]


class SignInProxy(OIDCProxy):
    """Lets people sign in at a provider: refuses whoever is not let in, and forgets a sign-in that is given back.

    Making one asks the provider for its configuration: in a thread.

    Args:
        config_url: The provider's discovery address.
        client_id: Ours there.
        client_secret: Its secret; None for a client without one.
        scopes: To ask for.
        algorithm: That the provider signs with.
        base_url: The gateway's public address.
        store: Keeps clients and tokens.
        signing_key: Of the gateway's own tokens, 32 bytes.
        is_let_in: Whether the holder of a provider's token may use the gateway.

    Attributes:
        on_forgotten: Told that a sign-in was given back.

    Raises:
        ValueError: The addresses or the provider's configuration cannot be used.
        httpx2.HTTPError: The provider cannot be asked.
    """

    def __init__(  # noqa: PLR0913  (each is a setting of its own)
        self,
        *,
        config_url: str,
        client_id: str,
        client_secret: str | None,
        scopes: Sequence[str],
        algorithm: str,
        base_url: str,
        store: AsyncKeyValue,
        signing_key: bytes,
        is_let_in: Callable[[AccessToken], bool],
    ) -> None:
        super().__init__(
            config_url=config_url,
            client_id=client_id,
            client_secret=client_secret,
            algorithm=algorithm,
            required_scopes=list(scopes),
            # Every provider signs this one, and only this one says for certain that it was made for us.
            verify_id_token=True,
            base_url=base_url,
            client_storage=store,
            jwt_signing_key=signing_key,
            token_endpoint_auth_method=None if client_secret else "none",
            # Our address as `resource` is nothing to the provider, and some refuse what they do not know.
            forward_resource=False,
            require_authorization_consent=True,
        )
        self._is_let_in = is_let_in
        self.on_forgotten: Callable[[], None] = lambda: None

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The tokens for a client whose user has signed in and is let in.

        Raises:
            TokenError: That user is not, or the code is not good.
        """
        tokens = await super().exchange_authorization_code(client, authorization_code)
        found = await self.verify_token(tokens.access_token)
        if found is None or not self._is_let_in(found):
            await self._forget(self._claims(tokens.access_token))
            raise TokenError(
                "invalid_grant",
                "Signed in, but not as somebody who may use this gateway. Whoever runs it can add them to "
                "MCPPROXY_OIDC_USERS.",
            )
        return tokens

    def get_routes(self, mcp_path: str | None = None) -> list[Route]:
        """The pages of the sign-in, with a revocation of our own."""
        answer = cors_middleware(self._answer_revocation, ["POST", "OPTIONS"])
        revocation = Route(REVOCATION_PATH, answer, methods=["POST", "OPTIONS"])
        routes = super().get_routes(mcp_path)
        return [revocation if route.path == REVOCATION_PATH else route for route in routes]

    async def _answer_revocation(self, request: Request) -> Response:
        """Gives a token back; one that is not known, or is another client's, is no error.

        The SDK's answer wants a secret, which no client has here, and takes an access token for the provider's: that is
        nobody's here. Our own tells by itself whose it is, and who holds it may give it back.

        Source: RFC 7009, sections 2.1 and 2.2.
        """
        form = await request.form()
        token, client_id = form.get("token"), form.get("client_id")
        if not isinstance(token, str) or not isinstance(client_id, str):
            told = {"error": "invalid_request", "error_description": "Send a form with token and client_id."}
            return JSONResponse(told, 400)
        claims = self._claims(token)
        if claims.get("client_id") == client_id:
            await self._give_back(claims)
        return Response(headers={"cache-control": "no-store"})

    async def _give_back(self, claims: dict[str, Any]) -> None:
        """Ends the sign-in that one of our tokens belongs to, here first and then at the provider if it takes it."""
        given = await self._forget(claims)
        self.on_forgotten()
        if given is not None:
            token = given.refresh_token or given.access_token
            # A refresh token would be looked up as one of ours; this is sent as it is.
            await super().revoke_token(GrantedToken(token=token, client_id=given.client_id, scopes=[]))

    async def _forget(self, claims: dict[str, Any]) -> UpstreamTokenSet | None:
        """What the provider gave for one of our tokens, forgotten: no token of that sign-in stands for anything now."""
        jti = str(claims.get("jti", ""))
        mapping = await self._jti_mapping_store.get(key=jti)
        if mapping is None:
            return None
        given = await self._upstream_token_store.get(key=mapping.upstream_token_id)
        await self._upstream_token_store.delete(key=mapping.upstream_token_id)
        await self._jti_mapping_store.delete(key=jti)
        return given

    def _claims(self, token: str) -> dict[str, Any]:
        """What one of our tokens says of itself; nothing if it is not ours or no longer good."""
        for use in ("access", "refresh"):
            try:
                return self.jwt_issuer.verify_token(token, expected_token_use=use)
            except (JoseError, ValueError):
                continue
        return {}
