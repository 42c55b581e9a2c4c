"""The MCP SDK's OAuth clients for programs: by secret, by signature, or by a token of their platform."""

import asyncio
import base64
import re
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2
from joserfc import jwt
from joserfc.errors import InvalidKeyTypeError
from joserfc.jwk import ECKey, RSAKey
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.auth.oauth import JwtBearerProvider, without_warning
from smart_mcp_proxy.servers import OAuthOptions
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, error_code, parse_json_members

_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
"""By curve. Source: RFC 7518, section 3.4."""
_LIFE_S: Final = 300
"""Of an assertion that we sign; it is sent at once."""
_FILE_BYTES: Final = 64 * 1024
_JWT: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
"""Of a file that holds anything else, a key say, nothing is sent. Source: RFC 7519, section 3."""
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


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
    given = {"scope": " ".join(options.scopes) or None, "issuer": options.issuer or None}
    client = (url, storage, options.client_id)
    if options.grant == "jwt_bearer":

        async def assertion(audience: str, resource: str) -> str:
            token = await _read_assertion(server, options.assertion_file)
            if not options.idp_token_endpoint:
                return token
            return await _exchange(server, options, http.beside(options.idp_token_endpoint), token, audience, resource)

        return without_warning(JwtBearerProvider, *client, options.client_secret, assertion=assertion, **given)
    if options.private_key:
        sign = partial(_sign_assertion, server, options, now)
        return without_warning(PrivateKeyJWTOAuthProvider, *client, sign, **given)
    return without_warning(ClientCredentialsOAuthProvider, *client, options.client_secret, **given)


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


def _load_private_key(server: str, pem: str) -> tuple[str, RSAKey | ECKey]:
    """The algorithm for a private key, and the key."""
    try:
        rsa = RSAKey.import_key(pem)
        if rsa.is_private:
            return "RS256", rsa
    except (ValueError, InvalidKeyTypeError):
        pass  # one of the other kind, perhaps
    try:
        curve = ECKey.import_key(pem)
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
        if _JWT.fullmatch(token := await asyncio.to_thread(read)):
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
