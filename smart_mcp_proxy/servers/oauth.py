"""The `oauth` of an entry: how to sign in to a server."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.fields import EntryReader

Grant = Literal["authorization_code", "client_credentials", "jwt_bearer"]
_LAST_PORT: Final = 65_535
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
"""Source: RFC 8693, section 3"""


class ExchangeOptions(msgspec.Struct, frozen=True):
    """Trade of the token that a person came with for one of theirs at a server.

    Attributes:
        token_url: Token endpoint that trades.
        audience: Whom the new token has to be for.
        issuer: The server's authorization server, where `token_url` gives no token for the server but an assertion of
            who the person is (ID-JAG), which is for that one; empty where it gives the token itself.
        issuer_token_url: Its token endpoint, which takes the assertion.
        issuer_client_id: Our client there.
        issuer_client_secret: Its secret; empty for a public client.
        scope: To ask for; empty for what the endpoint gives by itself.
        client_id: Our client there.
        client_secret: Its secret; empty for a public client.
        subject_token_type: Kind of the token that a person came with.

    Source: RFC 8693, section 2.1; https://datatracker.ietf.org/doc/draft-ietf-oauth-identity-assertion-authz-grant/
    """

    token_url: str
    audience: str
    issuer: str = ""
    issuer_token_url: str = ""
    issuer_client_id: str = ""
    issuer_client_secret: str = ""
    scope: str = ""
    client_id: str = ""
    client_secret: str = ""
    subject_token_type: str = ACCESS_TOKEN

    def __repr__(self) -> str:  # without secrets
        return f"<ExchangeOptions {self.token_url} {self.audience}>"


EXCHANGE_KEYS: Final = frozenset(ExchangeOptions.__struct_fields__)
_NEEDED_WITH: Final = {
    "client_secret": "client_id",
    "issuer": "issuer_token_url",
    "issuer_token_url": "issuer",
    "issuer_client_id": "issuer",
    "issuer_client_secret": "issuer_client_id",
}
"""Keys of `exchange`, each with the key that it needs beside it."""


class OAuthOptions(msgspec.Struct, frozen=True):
    """Sign-in options of one server; what is left out is asked of the server.

    Attributes:
        grant: `authorization_code` asks a person in a browser, the others nobody.
        client_id: Of a client that was registered beforehand; empty to register one when it is needed.
        client_secret: Its secret, empty for a public client.
        private_key: Key that signs for the client instead of a secret, as PEM.
        kid: Id under which the authorization server knows that key; empty if it needs none.
        assertion_file: Where the platform keeps the token (JWT) that is traded for access tokens.
        idp_token_endpoint: Of the company's identity provider, which gives the token to trade for the id token in that
            file; empty to trade the file's own.
        idp_client_id: Our client there.
        idp_client_secret: Its secret; empty for a public client.
        scopes: To ask for; empty for those that the server names.
        redirect_port: Where on 127.0.0.1 the browser comes back to; None for any free port.
        client_metadata_url: Address of a client metadata document, which serves as client id where that is accepted.
        resource: The resource indicator, where it is not the server's address.
        issuer: The only authorization server that may be used; empty for the one that the server names.
        per_user: Whether each person signs in for themselves.
        exchange: How the token that a person came with is traded for one of theirs at the server; None where it is not.

    Source: docs/sign-in.md#signing-in-to-servers; RFC 8707, section 2;
    https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
    """

    grant: Grant = "authorization_code"
    client_id: str = ""
    client_secret: str = ""
    private_key: str = ""
    kid: str = ""
    assertion_file: str = ""
    idp_token_endpoint: str = ""
    idp_client_id: str = ""
    idp_client_secret: str = ""
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    client_metadata_url: str = ""
    resource: str = ""
    issuer: str = ""
    per_user: bool = False
    exchange: ExchangeOptions | None = None

    def __repr__(self) -> str:  # without secrets
        return f"<OAuthOptions {self.grant} {self.client_id}>"


OAUTH_KEYS: Final = frozenset(OAuthOptions.__struct_fields__)
_TEXTS: Final = tuple(
    key
    for key in OAuthOptions.__struct_fields__
    if key not in ("grant", "scopes", "redirect_port", "per_user", "exchange")
)
_GRANTS: Final = {
    "private_key": "client_credentials",
    "assertion_file": "jwt_bearer",
    "idp_token_endpoint": "jwt_bearer",
}
"""Keys that are for one grant alone."""
OAUTH_SECRETS: Final = ("client_secret", "private_key", "idp_client_secret")
EXCHANGE_SECRETS: Final = ("client_secret", "issuer_client_secret")


def read_oauth(server: str, values: Mapping[str, Any]) -> OAuthOptions:
    """The options in an `oauth` object, before or after its placeholders are filled in.

    Raises:
        ConfigError: One of them cannot be used. The message names server and field, and no value.
    """
    given = EntryReader(server, values, "oauth.")
    options = OAuthOptions(
        grant=_grant(given),
        scopes=_scopes(given),
        redirect_port=given.integer("redirect_port", at_least=1),
        per_user=given.flag("per_user", default=False),
        exchange=_read_exchange(server, given.read_object("exchange")) if given.values.get("exchange") else None,
        **{key: given.text(key) for key in _TEXTS},
    )
    if (options.redirect_port or 1) > _LAST_PORT:
        raise given.wrong("redirect_port", options.redirect_port, f"an integer from 1 to {_LAST_PORT}")
    _check_client(server, options)
    for key in ("client_metadata_url", "resource", "issuer", "idp_token_endpoint"):
        _check_address(server, key, getattr(options, key))
    return options


def _read_exchange(server: str, values: Mapping[str, Any]) -> ExchangeOptions:
    given = EntryReader(server, values, "oauth.exchange.")
    texts = {key: text for key in EXCHANGE_KEYS if (text := given.text(key))}
    if unknown := sorted(values.keys() - EXCHANGE_KEYS):
        raise ConfigError(
            f"Server {server!r} has keys under 'oauth.exchange' that are not known: {', '.join(unknown)}.",
            hint=f"Known: {', '.join(sorted(EXCHANGE_KEYS))}.",
        )
    for key in ("token_url", "audience"):
        if key not in texts:
            raise ConfigError(f"Server {server!r} has 'oauth.exchange' without {key!r}.", hint="Add it.")
    for key, needed in _NEEDED_WITH.items():
        if key in texts and needed not in texts:
            raise ConfigError(f"Server {server!r} has 'oauth.exchange.{key}' without {needed!r}.", hint="Add it there.")
    for key in ("token_url", "issuer", "issuer_token_url"):
        _check_address(server, f"exchange.{key}", texts.get(key, ""))
    return ExchangeOptions(**texts)


def _check_client(server: str, options: OAuthOptions) -> None:
    """Accept a client that the grant can do with.

    Raises:
        ConfigError: It lacks something, or has what another grant is for.
    """
    for key in OAUTH_SECRETS:
        if getattr(options, key) and not options.client_id:
            raise ConfigError(f"Server {server!r} has 'oauth.{key}' without 'oauth.client_id'.", hint="Add it.")
    if (options.per_user or options.exchange is not None) and options.grant != "authorization_code":
        raise ConfigError(
            f"Server {server!r} has the grant '{options.grant}', which is nobody's own, with 'per_user' or 'exchange'.",
            hint="Take one of them out of 'oauth'.",
        )
    if options.per_user and options.exchange is not None:
        raise ConfigError(
            f"Server {server!r} has both 'oauth.per_user' and 'oauth.exchange'.", hint="Keep one of them."
        )
    if options.grant == "client_credentials" and bool(options.client_secret) == bool(options.private_key):
        raise ConfigError(
            f"Server {server!r} has the grant 'client_credentials' without a client, or with two proofs of one.",
            hint="Add 'client_id' and either 'client_secret' or 'private_key' under 'oauth'.",
        )
    for key, grant in _GRANTS.items():
        if getattr(options, key) and options.grant != grant:
            raise ConfigError(
                f"Server {server!r} has 'oauth.{key}' with the grant '{options.grant}'.", hint=f"It is for '{grant}'."
            )
    if options.grant == "jwt_bearer" and not options.assertion_file:
        raise ConfigError(
            f"Server {server!r} has the grant 'jwt_bearer' without a token to trade.",
            hint="Add 'assertion_file' under 'oauth': the file in which the platform keeps it.",
        )
    of_provider = options.idp_token_endpoint, options.idp_client_id
    if (any(of_provider) or options.idp_client_secret) and not (all(of_provider) and options.client_id):
        raise ConfigError(
            f"Server {server!r} has an identity provider under 'oauth' that lacks its address or a client.",
            hint="Add 'idp_token_endpoint', 'idp_client_id' (the client there), and 'client_id' (that at the issuer).",
        )


def _grant(given: EntryReader) -> Grant:
    grant = given.text("grant") or "authorization_code"
    for known in get_args(Grant):
        if grant == known:
            return known  # type: ignore[no-any-return]  # get_args() knows no types
    raise given.wrong("grant", grant, f"one of {', '.join(get_args(Grant))}")


def _scopes(given: EntryReader) -> tuple[str, ...]:
    """A list, or one text with spaces as OAuth itself writes it."""
    if isinstance(given.values.get("scopes"), str):
        return tuple(given.text("scopes").split())
    return given.texts("scopes")


def _check_address(server: str, key: str, address: str) -> None:
    if not address or "${" in address:
        return
    parts = urlsplit(address)
    needs_https = key == "client_metadata_url"
    is_usable = bool(parts.hostname) and not parts.fragment and parts.scheme in ("https", "http")
    if not is_usable or (needs_https and (parts.scheme != "https" or parts.path in ("", "/"))):
        expected = "an https address with a path" if needs_https else "an https address without a fragment"
        raise ConfigError(f"Server {server!r}: 'oauth.{key}' cannot be used.", hint=f"Expected {expected}.")
