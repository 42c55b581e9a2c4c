"""The MCP SDK's OAuth client for one server: for a person, a program, or a stored sign-in."""

import asyncio
import base64
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
from joserfc import jwk, jwt
from joserfc.errors import InvalidKeyTypeError
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.auth.oauth import JwtBearerProvider, without_warning
from smart_mcp_proxy.servers import OAuthOptions
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, error_code, parse_json_members
from smart_mcp_proxy.upstream.oauth.auth_proofs import Proofs
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn

_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
"""By curve. Source: RFC 7518, section 3.4."""
_LIFE_S: Final = 300
"""Lifetime of an assertion that we sign; it is sent at once."""
_FILE_BYTES: Final = 64 * 1024
_JWT: Final = r"(?a)[\w-]+\.[\w-]+\.[\w-]*"
"""Form of a token; of a file that holds anything else, a key say, nothing is sent. Source: RFC 7519, section 3."""
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"

_CLIENT_NAME: Final = "smart-mcp-proxy"
_LONG_AGO_S: Final = 1.0
"""An expiry that the SDK takes for passed; it takes 0 for none."""


class Browser(Protocol):
    """Shows a person the page to sign in on, and hears how it ended.

    Attributes:
        redirect_uri: Where it comes back to.
    """

    redirect_uri: str

    async def ask(self, url: str, state: str) -> AuthorizationCodeResult:
        """Show `url` to the person and return the redirect with this `state`.

        Raises:
            UpstreamAuthError: The person or the authorization server refused, or nobody came.
        """


class Memory:
    """The SDK's storage during one flow, and facts that the SDK does not keep.

    Attributes:
        issuer: Of the authorization server, letter by letter as its metadata has it.
        is_without_metadata: Whether the server has none and is taken for one that has the places of old.
        challenge: `WWW-Authenticate` with which the server refused a request without a token.
        proof_algorithms: That the authorization server takes in proofs; None if it does not say.
        proofs: Proves the key that tokens are asked for with; None for bearer tokens.
        is_proved: The tokens are bound to that key.
    """

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = tokens
        self.client = client
        self.issuer = ""
        self.is_without_metadata = False
        self.challenge = ""
        self.proof_algorithms: list[str] | None = None
        self.proofs: Proofs | None = None
        self.is_proved = False

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, None if there are none."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Takes new tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registered client, None if there is none."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Takes a registered client."""
        self.client = client_info


@dataclass
class _Context(OAuthContext):
    """The SDK's state of a flow, with the resource that is configured instead of the server's address."""

    configured_resource: str = ""

    def get_resource_url(self) -> str:
        return self.configured_resource or super().get_resource_url()


def person_provider(
    url: str, options: OAuthOptions, memory: Memory, browser: Browser, check: Callable[[str], Awaitable[object]]
) -> OAuthClientProvider:
    """Create the SDK's client for a grant that asks a person.

    Args:
        url: The server's address.
        options: How to sign in.
        memory: Holds the client, if it is known already.
        browser: Asks the person.
        check: Judges the address that the person is to be shown; raises what it refuses.
    """
    metadata = OAuthClientMetadata(
        client_name=_CLIENT_NAME,
        redirect_uris=[AnyUrl(browser.redirect_uri)],
        token_endpoint_auth_method="none",
        scope=" ".join(options.scopes) or None,
    )
    provider = OAuthClientProvider(
        url,
        metadata,
        memory,
        client_metadata_url=options.client_metadata_url or None,
        validate_resource_url=_only(options.resource) if options.resource else None,
    )
    _connect(with_resource(provider, options.resource).context, browser, check, options.client_id, memory)
    return provider


def provider_after(url: str, options: OAuthOptions, memory: Memory, held: SignIn) -> OAuthClientProvider:
    """The SDK's client as it was after `held` was had, its access token run out.

    Raises:
        ValueError: What was stored is not what the SDK knows.
    """
    memory.tokens = OAuthToken(
        access_token=held.access_token, refresh_token=held.refresh_token or None, scope=held.scope or None
    )
    memory.client = OAuthClientInformationFull.model_validate(held.client)
    provider = OAuthClientProvider(url, OAuthClientMetadata(redirect_uris=None), memory)
    context = with_resource(provider, options.resource).context
    context.client_info = memory.client
    context.oauth_metadata = OAuthMetadata.model_validate(held.metadata)
    context.auth_server_url = held.issuer
    context.token_expiry_time = _LONG_AGO_S
    if held.resource_metadata is not None:
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(held.resource_metadata)
    return provider


def build_configured_client(options: OAuthOptions) -> OAuthClientInformationFull | None:
    """The configured client; None where one is registered.

    The last registered one is not used again: an authorization server that has forgotten it says so to the person, on a
    page that leads nowhere.
    """
    if not options.client_id:
        return None
    return OAuthClientInformationFull(
        client_id=options.client_id,
        client_secret=options.client_secret or None,
        token_endpoint_auth_method="client_secret_basic" if options.client_secret else "none",
        issuer=options.issuer or None,
    )


def build_sign_in_record(context: OAuthContext, memory: Memory, now_s: float, earlier: SignIn | None) -> SignIn:
    """Build the sign-in to store from a flow that brought the tokens in `memory`, after `earlier`."""
    metadata, client, named = context.oauth_metadata, context.client_info, context.protected_resource_metadata
    tokens = memory.tokens
    assert tokens is not None
    assert metadata is not None
    assert client is not None
    return SignIn(
        issuer=str(metadata.issuer),
        metadata=_dump_model(metadata),
        resource_metadata=None if named is None else _dump_model(named),
        client=_dump_model(client),
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or "",
        # One that is not said is the one that was asked for. Source: RFC 6749, sections 5.1 and 6.
        scope=tokens.scope or context.client_metadata.scope or (earlier.scope if earlier is not None else ""),
        obtained_at_s=now_s,
        expires_at_s=0.0 if tokens.expires_in is None else now_s + max(0, tokens.expires_in),
        wanted_scope=earlier.wanted_scope if earlier is not None else "",
        proof_key="" if memory.proofs is None else memory.proofs.key,
        is_proved=memory.is_proved,
        since_s=now_s,
    )


def with_resource(provider: OAuthClientProvider, resource: str) -> OAuthClientProvider:
    """The provider with a context that knows the configured resource."""
    state = {field.name: getattr(provider.context, field.name) for field in fields(OAuthContext)}
    provider.context = _Context(**state, configured_resource=resource)
    return provider


def _only(resource: str) -> Callable[[str, str | None], Awaitable[None]]:
    """Return a check that refuses a server that claims another resource than the configured one."""

    async def check(_: str, named: str | None) -> None:
        if named != resource:
            raise OAuthFlowError(f"Protected resource {named} does not match the configured one")

    return check


def _connect(
    context: OAuthContext,
    browser: Browser,
    check: Callable[[str], Awaitable[object]],
    configured_client: str,
    memory: Memory,
) -> None:
    """Makes the SDK ask its person in this browser."""
    results: list[AuthorizationCodeResult] = []

    async def show(url: str) -> None:
        await check(url)
        if context.client_info is not None and context.client_info.client_id == configured_client:
            _adapt(context.client_info, context.oauth_metadata)
        results.append(await browser.ask(url, parse_qs(urlsplit(url).query)["state"][0]))

    async def result() -> AuthorizationCodeResult:
        answer, metadata = results.pop(), context.oauth_metadata
        if answer.iss is not None and metadata is not None:
            # Letter by letter, as the metadata has it: the SDK knows it as the resource wrote it, last slash or not.
            # Source: RFC 9207, section 2.4; https://github.com/modelcontextprotocol/modelcontextprotocol/issues/2468
            if answer.iss != memory.issuer:
                raise OAuthFlowError(f"Authorization response iss mismatch: {answer.iss} != {memory.issuer}")
            answer.iss = str(metadata.issuer)
        return answer

    context.redirect_handler = show
    context.callback_handler = result


def _adapt(client: OAuthClientInformationFull, metadata: OAuthMetadata | None) -> None:
    """Shows a configured secret in the way that the authorization server takes it."""
    methods = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
    if client.client_secret and "client_secret_post" in methods and "client_secret_basic" not in methods:
        client.token_endpoint_auth_method = "client_secret_post"


def _dump_model(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return dumped


def program_provider(
    server: str, url: str, options: OAuthOptions, storage: TokenStorage, http: AuthHttp, now: Callable[[], float]
) -> OAuthClientProvider:
    """Create the SDK's client for a grant that asks nobody.

    Args:
        server: Configured name, for messages.
        url: The server's address.
        options: How to sign in.
        storage: Holds the tokens.
        http: Asks the identity provider, where there is one.
        now: Seconds since the epoch.
    """
    given: dict[str, Any] = {"server_url": url, "storage": storage, "client_id": options.client_id}
    given |= {"scope": " ".join(options.scopes) or None, "issuer": options.issuer or None}
    if options.grant == "jwt_bearer":

        async def assertion(audience: str, resource: str) -> str:
            token = await _read_assertion(server, options.assertion_file)
            if not options.idp_token_endpoint:
                return token
            return await _exchange(server, options, http.beside(options.idp_token_endpoint), token, audience, resource)

        return without_warning(JwtBearerProvider, client_secret=options.client_secret, assertion=assertion, **given)
    if options.private_key:
        sign = partial(_sign_assertion, server, options, now)
        return without_warning(PrivateKeyJWTOAuthProvider, assertion_provider=sign, **given)
    return without_warning(ClientCredentialsOAuthProvider, client_secret=options.client_secret, **given)


async def _sign_assertion(server: str, options: OAuthOptions, now: Callable[[], float], audience: str) -> str:
    """A proof of the client for this authorization server.

    Raises:
        UpstreamAuthError: The key cannot be used.

    Source: RFC 7523, sections 2.2 and 3.
    """
    algorithm, key = _load_private_key(server, options.private_key)
    issued_s = int(now())
    claims = {
        **{"iss": options.client_id, "sub": options.client_id, "aud": audience, "jti": secrets.token_urlsafe(16)},
        **{"iat": issued_s, "exp": issued_s + _LIFE_S},
    }
    header = {"alg": algorithm} | ({"kid": options.kid} if options.kid else {})
    return jwt.encode(header, claims, key, algorithms=[algorithm])


def _load_private_key(server: str, pem: str) -> "tuple[str, jwk.RSAKey | jwk.ECKey]":
    """The algorithm for a private key, and the key."""
    try:
        rsa = jwk.RSAKey.import_key(pem)
        if rsa.is_private:
            return "RS256", rsa
    except (ValueError, InvalidKeyTypeError):
        pass  # one of the other kind, perhaps
    try:
        curve = jwk.ECKey.import_key(pem)
        if curve.is_private and curve.curve_name in _ALGORITHMS:
            return _ALGORITHMS[curve.curve_name], curve
    except (ValueError, InvalidKeyTypeError):
        pass  # said below
    raise UpstreamAuthError(
        f"Server '{server}': 'oauth.private_key' cannot be used.",
        hint="Expected a private RSA key, or one of P-256, P-384 or P-521, as PEM without a password.",
    )


async def _read_assertion(server: str, path: str) -> str:
    """The token in a file, as it is at present: platforms replace it before it ends.

    Raises:
        UpstreamError: There is none.
    """

    def read() -> str:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_FILE_BYTES).decode("ascii").strip()

    try:
        if re.fullmatch(_JWT, token := await asyncio.to_thread(read)):
            return token
        reason = "it holds no token" if token else "it is empty"
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
    except UnicodeDecodeError:
        reason = "it holds no token"
    raise UpstreamError(
        f"Server '{server}': the token to sign in with cannot be read from {path}: {reason}.",
        hint="Check 'assertion_file' under 'oauth' in its entry; it is tried again.",
    )


async def _exchange(
    server: str, options: OAuthOptions, http: AuthHttp, token: str, audience: str, resource: str
) -> str:
    """The assertion (ID-JAG) that the company's identity provider gives for an id token.

    Raises:
        UpstreamAuthError: It refused.
        UpstreamError: It cannot be reached, or answers nothing that can be used.

    Source: RFC 8693, section 2;
    https://datatracker.ietf.org/doc/draft-ietf-oauth-identity-assertion-authz-grant/
    """
    form = {
        **{"grant_type": _TOKEN_EXCHANGE, "requested_token_type": _ID_JAG, "audience": audience, "resource": resource},
        **{"subject_token": token, "subject_token_type": _ID_TOKEN},
        **({"scope": " ".join(options.scopes)} if options.scopes else {}),
    }
    headers = {}
    if options.idp_client_secret:
        pair = f"{quote(options.idp_client_id, safe='')}:{quote(options.idp_client_secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = options.idp_client_id
    response = await http.send(httpx2.Request("POST", options.idp_token_endpoint, data=form, headers=headers))
    answer, code = parse_json_members(response), error_code(response)
    assertion = answer.get("access_token")
    if response.status_code == 200 and answer.get("issued_token_type") == _ID_JAG and isinstance(assertion, str):
        return assertion
    kind = UpstreamAuthError if code and response.status_code < 500 else UpstreamError
    raise kind(
        f"Server '{server}': the identity provider gave no assertion to sign in with "
        f"({code or f'HTTP {response.status_code}'}).",
        hint="Check the id token in 'assertion_file' and the 'idp_...' keys under 'oauth' in its entry.",
    )
