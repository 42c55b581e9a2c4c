"""FastMCP's proxy to an OpenID Connect provider, with the three things it leaves open.

Clients register at the gateway and sign in at the provider; what they get is a token of the gateway's that stands for
the provider's. Relied on: `_jti_mapping_store` and `_upstream_token_store`, which lead from the one to the other.
"""

import math
from collections.abc import Callable, Sequence

from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.oidc_proxy import OIDCProxy
from joserfc.errors import JoseError
from key_value.aio.protocols import AsyncKeyValue
from mcp.server.auth.provider import AccessToken as GrantedToken
from mcp.server.auth.provider import AuthorizationCode, RefreshToken, RegistrationError, TokenError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

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
        registration_wait_s: Counts a client that wants to register; seconds that it has to wait, 0 if it may now.

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
        registration_wait_s: Callable[[], float],
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
        self._registration_wait_s = registration_wait_s
        self.on_forgotten: Callable[[], None] = lambda: None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Remembers a client.

        Raises:
            RegistrationError: Its words are not good, or too many registered lately: anybody may, and each is kept.
        """
        if wait_s := self._registration_wait_s():
            told = f"Too many clients have registered lately. Try again in {math.ceil(wait_s)} s."
            raise RegistrationError("invalid_client_metadata", told)
        await super().register_client(client_info)

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
            await self._forget(tokens.access_token, "access")
            raise TokenError(
                "invalid_grant",
                "Signed in, but not as somebody who may use this gateway. Whoever runs it can add them to "
                "MCPPROXY_OIDC_USERS.",
            )
        return tokens

    async def revoke_token(self, token: GrantedToken | RefreshToken) -> None:
        """Gives a sign-in back, to the provider as well where it takes it; of a refresh token all that came of it."""
        await super().revoke_token(token)
        if isinstance(token, RefreshToken):
            await self._forget(token.token, "refresh")
        self.on_forgotten()

    async def _forget(self, token: str, use: str) -> None:
        """Forgets the provider's tokens that one of ours stands for: then none of ours stands for anything."""
        try:
            jti = self.jwt_issuer.verify_token(token, expected_token_use=use)["jti"]
        except (JoseError, ValueError, KeyError):
            return
        if (mapping := await self._jti_mapping_store.get(key=jti)) is not None:
            await self._upstream_token_store.delete(key=mapping.upstream_token_id)
