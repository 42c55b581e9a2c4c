"""FastMCP's proxy to an OpenID Connect provider, with what it leaves open.

Clients register at the gateway and sign in at the provider; what they get is a token of the gateway's that stands for
the provider's. Relied on: `_jti_mapping_store` and `_upstream_token_store`, which lead from the one to the other;
`_client_store`, which keeps a registration for good; `_try_transparent_refresh`, which renews what is at its end;
`_code_store`, which keeps what the provider gave until a code is exchanged, and `_token_validator`, which judges it;
`_redirect_path`, to which the provider sends browsers back; `revocation_options`, by which a revocation is announced;
`_upstream_oauth_client`, which asks the provider to renew what it gave.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

from fastmcp.server.auth import AccessToken, TokenVerifier, cimd, jwt_issuer
from fastmcp.server.auth.oauth_proxy import consent, proxy, upstream
from fastmcp.server.auth.oauth_proxy.models import JTIMapping, ProxyDCRClient, UpstreamTokenSet
from fastmcp.server.auth.oidc_proxy import OIDCProxy
from joserfc.errors import JoseError
from key_value.aio.protocols import AsyncKeyValue
from mcp.server.auth.handlers import token as token_endpoint
from mcp.server.auth.provider import AccessToken as GrantedToken
from mcp.server.auth.provider import AuthorizationCode, AuthorizationParams, RefreshToken, RegistrationError, TokenError
from mcp.server.auth.routes import AUTHORIZATION_PATH, REVOCATION_PATH, cors_middleware
from mcp.server.auth.settings import RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.fastmcp_compat.auth import renewals, signing_keys
from smart_mcp_proxy.fastmcp_compat.auth.renewals import AGAIN_S, RenewedClient, renewed
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import RotatingKeyVerifier
from smart_mcp_proxy.fastmcp_compat.auth.store_failures import (
    NotedStore,
    collect_store_failures,
    record_store_failure,
    reraise_store_failures,
)
from smart_mcp_proxy.fastmcp_compat.paths import BoundVariables
from smart_mcp_proxy.telemetry import get_logger

TIMED: Final = (*signing_keys.TIMED, renewals, cimd, jwt_issuer, proxy, consent, upstream, token_endpoint)
"""Modules that go by the clock in a sign-in, or in what came of it."""
UNUSED_CLIENT_S: Final = 24 * 3600
"""For so long a client is kept with which nobody has signed in yet: one that comes later registers again."""
_GIVEN_BACK: Final = "given-back-sign-ins"
_GIVEN_BACK_S: Final = 3600
"""For so long it is remembered that a sign-in was given back: no renewal under way then takes longer."""
_REDEEMED: Final = "redeemed-codes"
_REDEEMED_S: Final = 3600
"""For so long it is remembered what a code was exchanged for; its own time is five minutes."""
_log = get_logger("auth")


class SignInProxy(OIDCProxy):
    """Sign-in at a provider: refuses unknown people, forgets what is returned or never used.

    Making one asks the provider for its configuration: in a thread.

    Args:
        config_url: The provider's discovery address.
        client_id: Ours there.
        client_secret: Its secret; None for a client without one.
        scopes: To ask for.
        algorithm: That the provider signs with.
        base_url: The gateway's public address.
        own_clients: Addresses to which browsers come back, by the ids of clients that need not register.
        store: Keeps clients and tokens. Where it raises, so does what is asked here.
        signing_key: Of the gateway's own tokens, 32 bytes.
        is_let_in: Whether the holder of a provider's token may use the gateway.
        alone: Lets one at a time use up a code or renew a sign-in, named by it, among all processes on the store.

    Attributes:
        on_forgotten: Told that a sign-in was given back.
        on_granted: Told of the provider's token of a person whose client has got tokens; not of our own clients.

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
        own_clients: Mapping[str, str],
        store: AsyncKeyValue,
        signing_key: bytes,
        is_let_in: Callable[[AccessToken], bool],
        alone: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._store = NotedStore(store)
        super().__init__(
            config_url=config_url,
            client_id=client_id,
            client_secret=client_secret,
            algorithm=algorithm,
            # None is required: providers grant fewer, or name them otherwise, and the id token says who it is.
            valid_scopes=list(scopes),
            # Every provider signs this one, and only this one says for certain that it was made for us.
            verify_id_token=True,
            base_url=base_url,
            client_storage=self._store,
            jwt_signing_key=signing_key,
            token_endpoint_auth_method=None if client_secret else "none",
            # Our address as `resource` is nothing to the provider, and some refuse what they do not know.
            forward_resource=False,
            require_authorization_consent=True,
        )
        self._scopes = list(scopes)
        self._own_clients = own_clients
        self._is_let_in = is_let_in
        self._alone = alone
        self._in_exchange: dict[str, bool] = {}
        """Codes that are being exchanged, and whether they have come a second time meanwhile."""
        # Sign-ins are given back to us; whether the provider takes them back as well is another question.
        self.revocation_options = RevocationOptions(enabled=True)
        self.on_forgotten: Callable[[], Awaitable[None]] = _nobody_told
        self.on_granted: Callable[[AccessToken], None] = lambda token: None

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Begin a sign-in, with all of our scopes for a client that names none; the address of its first page."""
        return await super().authorize(client, params.model_copy(update={"scopes": params.scopes or self._scopes}))

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The tokens for a client whose user has signed in and is let in.

        Raises:
            TokenError: That user is not, or the code is not good.
        """
        code = authorization_code.code
        if code in self._in_exchange:
            self._in_exchange[code] = True
            raise _build_reuse_error()
        self._in_exchange[code] = False
        try:
            async with self._alone(f"code {code}"):
                tokens = await self._redeem_code(client, authorization_code)
                redeemed = {"client_id": client.client_id, "access_token": tokens.access_token}
                note = self._store.put(code, redeemed, collection=_REDEEMED, ttl=_REDEEMED_S)
                await _after_the_grant(note, "that its code is spent")
        finally:
            has_come_again = self._in_exchange.pop(code)
        if has_come_again:
            await self._give_back(self._claims(tokens.access_token))
            raise _build_reuse_error()
        return tokens

    async def _redeem_code(self, client: OAuthClientInformationFull, code: AuthorizationCode) -> OAuthToken:
        # Before the code is spent: where it cannot be told now, the client may ask again.
        found = await self._require_permitted_user(client, code.code)
        tokens = await super().exchange_authorization_code(client, code)
        if found is not None and client.client_id not in self._own_clients:
            self.on_granted(found)
        await self._keep_used_client(client)
        return tokens

    async def _require_permitted_user(self, client: OAuthClientInformationFull, code: str) -> AccessToken | None:
        """Return whose code it is, if that person may use the gateway; spend the code of any other."""
        kept = await self._code_store.get(key=code)
        if kept is None:
            if await self._end_redeemed(client, code):  # at another process, while this one waited for its turn
                raise _build_reuse_error()
            return None  # FastMCP says so
        id_token = kept.idp_tokens.get("id_token")
        found = await self._token_validator.verify_token(id_token) if isinstance(id_token, str) else None
        if found is None:
            raise TokenError(
                "invalid_grant",
                "Signed in, but who that is cannot be told: the provider's id token is missing or is not good here, or "
                "its keys cannot be fetched. Try again in a while.",
            )
        if not self._is_let_in(found):
            await self._code_store.delete(key=code)
            raise TokenError(
                "invalid_grant",
                "Signed in, but not as somebody who may use this gateway. Whoever runs it can add them to "
                "MCPPROXY_OIDC_USERS.",
            )
        return found

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """A code that can be exchanged; None for any other.

        The sign-in of one that was exchanged already ends: of the two who had it, one has stolen it.

        Source: RFC 6749, section 4.1.2.
        """
        found = await super().load_authorization_code(client, authorization_code)
        if found is None and authorization_code in self._in_exchange:
            self._in_exchange[authorization_code] = True
        elif found is None and not await self._end_redeemed(client, authorization_code):
            async with self._alone(f"code {authorization_code}"):  # another process may be about to note it
                await self._end_redeemed(client, authorization_code)
        return found

    async def _end_redeemed(self, client: OAuthClientInformationFull, code: str) -> bool:
        """End the sign-in that a client has exchanged a code for; whether it had."""
        redeemed = await self._store.get(code, collection=_REDEEMED)
        if redeemed is None or redeemed["client_id"] != client.client_id:
            return False
        await self._give_back(self._claims(redeemed["access_token"]))
        return True

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Look up a token; None unless it is good.

        Raises:
            Exception: The store fails, as it says so: FastMCP takes such a token for a bad one.
        """
        with collect_store_failures() as failures:
            found: AccessToken | None = await super().load_access_token(token)  # type: ignore[assignment]
        if found is None and failures:
            raise failures[0]
        return found

    def get_token_verifier(self, *, timeout_seconds: int | None = None, **given: Any) -> TokenVerifier:
        """Checks the provider's tokens, by its keys of the moment."""
        config = self.oidc_config
        return RotatingKeyVerifier(jwks_uri=str(config.jwks_uri), issuer=str(config.issuer), **given)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Look up a client: the gateway's own, or one that has registered."""
        if (address := self._own_clients.get(client_id)) is None:
            return await super().get_client(client_id)
        known = {"client_id": client_id, "client_name": client_id, "redirect_uris": [address]}
        known |= {"scope": " ".join(self._scopes), "token_endpoint_auth_method": "none"}
        return ProxyDCRClient.model_validate(known)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Keeps a client, at first for a day: anybody who reaches the gateway may register any number of them.

        Raises:
            RegistrationError: Codes would go to an address with a fragment. Source: RFC 6749, section 3.1.2.
        """
        if any("#" in str(address) for address in client_info.redirect_uris or ()):
            raise RegistrationError("invalid_redirect_uri", "An address in redirect_uris has a fragment (#).")
        await super().register_client(client_info)
        await self._keep_client(client_info.client_id, UNUSED_CLIENT_S)

    async def _keep_client(self, client_id: str | None, seconds: float | None) -> None:
        """Keep a registered client for a time, or for good; one with its own document not at all."""
        if client_id is not None and (client := await self._client_store.get(key=client_id)) is not None:
            await self._client_store.put(key=client_id, value=client, ttl=seconds)

    async def _keep_used_client(self, client: OAuthClientInformationFull) -> None:
        """Keep a client for good that somebody has signed in with.

        Done at renewals, too: it may have failed at the sign-in.
        """
        await _after_the_grant(self._keep_client(client.client_id, None), "that its client is used")

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """New tokens of the same sign-in.

        Raises:
            TokenError: The sign-in was given back, be it while the provider was asked.
        """
        jti = str(self._claims(refresh_token.token).get("jti", ""))
        mapping = await self._jti_mapping_store.get(key=jti)
        if mapping is None:  # FastMCP says so
            return await super().exchange_refresh_token(client, refresh_token, scopes)
        async with self._alone(mapping.upstream_token_id):
            with BoundVariables((renewed, await self._find_concurrent_renewal(jti, mapping))):
                tokens = await super().exchange_refresh_token(client, refresh_token, scopes)
        await self._require_not_given_back(mapping.upstream_token_id)
        await self._keep_used_client(client)
        return tokens

    async def _find_concurrent_renewal(self, jti: str, mapping: JTIMapping) -> UpstreamTokenSet | None:
        """Tokens that another request got by the same refresh token while this one waited; else None.

        Programs that share a sign-in renew it in the same moment, each at another process. A provider whose refresh
        tokens work once ends the sign-in if one comes again, and a client that is refused throws its own away: so both
        get tokens, and the provider is asked once. One that comes later is refused.
        """
        if await self._jti_mapping_store.get(key=jti) is not None:
            return None
        await self._jti_mapping_store.put(key=jti, value=mapping, ttl=AGAIN_S)  # FastMCP removes it once more
        return await self._upstream_token_store.get(key=mapping.upstream_token_id)

    @asynccontextmanager
    async def _upstream_oauth_client(self) -> AsyncIterator[Any]:
        if (kept := renewed.get()) is not None:
            yield RenewedClient(kept)
            return
        async with super()._upstream_oauth_client() as client:
            yield client

    async def _try_transparent_refresh(self, upstream_token_set: UpstreamTokenSet) -> UpstreamTokenSet:
        sign_in = upstream_token_set.upstream_token_id
        async with AsyncExitStack() as stack:
            with record_store_failure():
                await stack.enter_async_context(self._alone(sign_in))
            if (kept := await self._upstream_token_store.get(key=sign_in)) is None:  # given back, or run out
                raise TokenError("invalid_grant", "This sign-in has ended. Sign in again.")
            if kept.access_token != upstream_token_set.access_token:  # renewed at another process meanwhile
                return kept
            fresh = await super()._try_transparent_refresh(kept)
        await self._require_not_given_back(sign_in)
        return fresh

    async def _require_not_given_back(self, sign_in: str) -> None:
        """Passes if a sign-in that was just written anew was not given back meanwhile; else forgets it again.

        It is noted first that a sign-in is given back, then it is deleted: whoever writes and then looks for the note
        either finds it or was before the deletion. So it holds between processes too.
        """
        if await self._store.get(sign_in, collection=_GIVEN_BACK) is None:
            return
        given = await self._upstream_token_store.get(key=sign_in)
        await self._upstream_token_store.delete(key=sign_in)
        await self._end(given)
        raise TokenError("invalid_grant", "This sign-in was given back. Sign in again.")

    def get_routes(self, mcp_path: str | None = None) -> list[Route]:
        """The pages of the sign-in, with a revocation of our own."""
        return [self._own_route(route) for route in super().get_routes(mcp_path)]

    def _own_route(self, route: Route) -> Route:
        if route.path == REVOCATION_PATH:
            answer = cors_middleware(self._answer_revocation, ["POST", "OPTIONS"])
            return Route(REVOCATION_PATH, answer, methods=["POST", "OPTIONS"])
        if route.path in (AUTHORIZATION_PATH, self._redirect_path):
            return Route(route.path, reraise_store_failures(route.endpoint), methods=list(route.methods or ()))
        return route

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
        if (claims := self._claims(token)).get("client_id") == client_id:
            await self._give_back(claims)
        return Response(headers={"cache-control": "no-store"})

    async def _give_back(self, claims: dict[str, Any]) -> None:
        """End the sign-in of one of our tokens, here first and then at the provider."""
        await self._end(await self._forget(claims))

    async def _end(self, given: UpstreamTokenSet | None) -> None:
        """Has every token looked at anew, and takes what is forgotten here back to the provider."""
        await self.on_forgotten()
        if given is not None:
            token = given.refresh_token or given.access_token
            # A refresh token would be looked up as one of ours; this is sent as it is.
            await super().revoke_token(GrantedToken(token=token, client_id=given.client_id, scopes=[]))

    async def _forget(self, claims: dict[str, Any]) -> UpstreamTokenSet | None:
        """Return and forget the provider's tokens behind one of ours, ending that sign-in."""
        jti = str(claims.get("jti", ""))
        mapping = await self._jti_mapping_store.get(key=jti)
        if mapping is None:
            return None
        sign_in = mapping.upstream_token_id
        await self._store.put(sign_in, {}, collection=_GIVEN_BACK, ttl=_GIVEN_BACK_S)
        given = await self._upstream_token_store.get(key=sign_in)
        await self._upstream_token_store.delete(key=sign_in)
        await self._jti_mapping_store.delete(key=jti)
        return given

    def _claims(self, token: str) -> dict[str, Any]:
        """Claims of one of our tokens; empty if it is not ours or no longer good."""
        for use in ("access", "refresh"):
            try:
                return self.jwt_issuer.verify_token(token, expected_token_use=use)
            except (JoseError, ValueError):
                continue
        return {}


async def _after_the_grant(work: Awaitable[None], noted: str) -> None:
    """Do what is to follow a grant, which stands if that fails: its code is spent."""
    try:
        await work
    except (CatalogError, OSError) as exc:  # not its words: they may have a code in them
        _log.warning("A sign-in was granted, but the store did not take %s (%s).", noted, type(exc).__name__)


async def _nobody_told() -> None:
    """Does nothing: no process keeps what a token was worth."""


def _build_reuse_error() -> TokenError:
    return TokenError("invalid_grant", "This code was used twice, so its sign-in has ended. Sign in again.")
