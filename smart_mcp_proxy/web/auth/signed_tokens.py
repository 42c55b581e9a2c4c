"""Tokens that an identity provider has signed (JWT): whose they are, and how far their holder reaches."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastmcp.server.auth import AccessToken, AuthProvider

from smart_mcp_proxy.errors import CatalogError, ConfigError, UnverifiedError
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import RotatingKeyVerifier
from smart_mcp_proxy.models import CallVariant, Principal, Reach, Role
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import spawn

SCOPES: Final[dict[str, CallVariant]] = {"mcp:destructive": "destructive", "mcp:write": "write", "mcp:read": "read"}
"""Calls that a token's scope allows; each includes those after it."""
KNOWN_S: Final = 60.0
"""For so long a token is not verified again: a key that its provider withdraws is good for no longer than this."""
RENEW_S: Final = 30.0
"""After so long it is verified anew beside the call that it came with, so that those in use make no call wait."""
AGAIN_S: Final = 5.0
"""Seconds for which nobody asks the store again after it did not answer."""
KNOWN_TOKENS: Final = 1_024
NAME_CHARS: Final = 80
PARTS: Final = 3
"""Parts of a compact JWS: head, claims, signature."""
LATEST_S: Final = 253_402_300_799
"""The last second of the year 9999: what lies beyond is no date. Source: RFC 7519, section 2"""


ReachOf = Callable[[AccessToken], Reach | None]
"""Reach of the holder of a verified token; None for one who is not let in."""
RoleOf = Callable[[AccessToken], Role | None]


class _Known(NamedTuple):
    principal: Principal
    verified_s: float
    expires_s: float


@dataclass(eq=False, repr=False)
class SignedTokens:
    """Verifies signed tokens and keeps each result for a minute.

    While the store is lost, a result is kept until the token expires.

    Attributes:
        verifier: Checks signature, issuer and audience. A `CatalogError` of its means that it could not.
        reach_of: Says how far its holder reaches.
        clock: Monotonic seconds.
        wall: Seconds since the epoch: what tokens say about their own time is in them.
        role_of: Says what its holder may do beside calling tools.
        on_verified: Told of each good token: whose it is, the provider's own token behind it, and when it ends.
        on_forgotten: Called when one of them was given back.
        on_signed_in: Told who has signed in a client here.
        on_claims: Told whose a good token is, and what its provider says of them.
    """

    verifier: AuthProvider
    reach_of: ReachOf
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    role_of: RoleOf = lambda token: None

    def __post_init__(self) -> None:
        self.on_verified: Callable[[str, str, float], None] = lambda person, token, expires_s: None
        self.on_forgotten: Callable[[], None] = lambda: None
        self.on_signed_in: Callable[[str], None] = lambda person: None
        self.on_claims: Callable[[str, Mapping[str, Any]], None] = lambda person, claims: None
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._forgotten = 0
        self._renewed: set[bytes] = set()
        """Digests of tokens that are being verified anew."""

    def find_principal(self, digest: bytes, token: bytes | None = None) -> Principal | None:
        """Whose token has this SHA-256; None if it was not verified within the last minute. A look-up.

        Args:
            digest: Of the token.
            token: Itself; where it is given, and is due, it is verified anew meanwhile.
        """
        known = self._known.get(digest)
        if known is None or self.wall() >= known.expires_s:
            return None
        age_s = self.clock() - known.verified_s
        if age_s > KNOWN_S:
            return None
        if age_s > RENEW_S and token is not None and digest not in self._renewed:
            self._renewed.add(digest)
            spawn(self._renew(token, digest), "verification of a token")
        return known.principal

    async def _renew(self, token: bytes, digest: bytes) -> None:
        try:
            await self.verify(token)
        except UnverifiedError:  # its time is over: the next request hears so
            pass
        finally:
            self._renewed.discard(digest)

    async def verify(self, token: bytes) -> Principal | None:
        """Whose token this is; None if it is not good, now and here.

        Raises:
            UnverifiedError: It was not verified lately, and cannot be now.
        """
        if token.count(b".") != PARTS - 1 or not token.isascii():
            return None
        forgotten, digest = self._forgotten, hashlib.sha256(token).digest()
        text = token.decode("ascii")
        try:
            found = await self.verifier.verify_token(text)
        except CatalogError as exc:
            return self._still_known(digest, "be looked up: the database does not answer", exc)
        if found is None and isinstance(self.verifier, RotatingKeyVerifier) and await self.verifier.lacks_key(text):
            return self._still_known(digest, "be checked: the keys of its issuer cannot be fetched")
        if found is None or (principal := self.judge(found)) is None:
            self._known.pop(digest, None)
            return None
        assert found.expires_at is not None
        if forgotten != self._forgotten:  # it may be the one that was given back meanwhile
            return principal
        self.on_verified(principal.id, found.token, found.expires_at)
        self._known[digest] = _Known(principal, self.clock(), found.expires_at)
        if len(self._known) > KNOWN_TOKENS:
            self._known.popitem(last=False)
        return principal

    def _still_known(self, digest: bytes, why: str, cause: CatalogError | None = None) -> Principal:
        """Whose token this was found to be, while nobody can look at it again.

        Where the store is lost, nobody can note either that one was given back: all that may be missed is what was in
        the second before, and that is noticed once it is back.
        """
        known = self._known.get(digest)
        if known is None or self.wall() >= known.expires_s:
            raise UnverifiedError(
                f"Whether this token is good cannot {why}.",
                hint="Try again in a while, with the same token: a new sign-in would not be kept.",
                retry_after_s=AGAIN_S,
            ) from cause
        self._known[digest] = known._replace(verified_s=self.clock() - RENEW_S + AGAIN_S)
        return known.principal

    def note_granted(self, token: AccessToken) -> None:
        """Somebody has signed in at the provider, which gave them this token."""
        if (who := self.judge(token)) is not None:
            self.on_signed_in(who.id)

    def judge(self, token: AccessToken) -> Principal | None:
        """Whose a token is whose signature, issuer and audience are right; None if it is not good for a call.

        `iss`, `sub` and `exp` are required. Source: RFC 9068, section 2.2
        """
        issuer, subject = token.claims.get("iss"), token.claims.get("sub")
        if not isinstance(issuer, str) or not isinstance(subject, str) or not subject or token.expires_at is None:
            return None
        if not self.wall() < token.expires_at <= LATEST_S:
            return None
        reach = self.reach_of(token)
        if reach is None:
            return None
        role = self.role_of(token)
        self.on_claims(f"{issuer}#{subject}", token.claims)
        return Principal(f"{issuer}#{subject}", reach, role, "" if role is None else find_name(token.claims))

    def forget(self) -> None:
        """Looks at every token anew: one of them has been given back."""
        self._known.clear()
        self.on_forgotten()
        self._forgotten += 1


def find_name(claims: Mapping[str, Any]) -> str:
    """The name of a token's holder for people: a verified address, else the subject."""
    email = claims.get("email")
    is_known = isinstance(email, str) and claims.get("email_verified") is True
    return str(email if is_known else claims.get("sub") or "")[:NAME_CHARS]


MISTAKEN: Final = frozenset({""})
"""A claim that is there and says nothing that could be understood."""


def parse_names_claim(claim: Any) -> frozenset[str] | None:
    """Names in a claim: a list, or one text with spaces between them; None where there is no such claim."""
    if claim is None:
        return None
    names = claim.split() if isinstance(claim, str) else claim
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return MISTAKEN
    return frozenset(names)


def _reach_by_scopes(servers_claim: str) -> ReachOf:
    """Return a function from a token's claims to its reach, by scopes and the servers claim."""

    def read_scope_reach(token: AccessToken) -> Reach | None:
        access = next((access for scope, access in SCOPES.items() if scope in token.scopes), None)
        servers = parse_names_claim(token.claims.get(servers_claim))
        return None if access is None or servers is MISTAKEN else Reach(servers, access)

    return read_scope_reach


def create_jwt_verifier(settings: Settings, wall: Callable[[], float] = time.time) -> SignedTokens | None:
    """Create the verifier of signed tokens by these settings; None where they ask for none.

    Args:
        settings: Of the gateway.
        wall: As for `SignedTokens`.

    Raises:
        ConfigError: Something that belongs to it is missing or cannot be used.
    """
    key = settings.jwt_public_key
    if key is None and settings.jwt_jwks_url is None:
        if settings.jwt_issuer or settings.jwt_audience:
            raise ConfigError(
                "MCPPROXY_JWT_ISSUER or MCPPROXY_JWT_AUDIENCE is set, and no key to check signatures with.",
                hint="Set MCPPROXY_JWT_JWKS_URL, MCPPROXY_JWT_PUBLIC_KEY or MCPPROXY_JWT_PUBLIC_KEY_FILE as well.",
            )
        return None
    audience = settings.jwt_audience or resource_url(settings)
    if settings.jwt_issuer is None or audience is None:
        # Without them a token that was issued by or for somebody else would be good here.
        missing = "MCPPROXY_JWT_ISSUER" if settings.jwt_issuer is None else "MCPPROXY_JWT_AUDIENCE"
        raise ConfigError(
            f"{missing} is not set, and signed tokens are to be accepted.",
            hint="Set MCPPROXY_JWT_ISSUER, and MCPPROXY_JWT_AUDIENCE or MCPPROXY_PUBLIC_URL.",
        )
    verifier = RotatingKeyVerifier(
        public_key=key,
        jwks_uri=settings.jwt_jwks_url,
        issuer=settings.jwt_issuer,
        audience=audience,
        algorithm=settings.jwt_algorithm,
    )
    return SignedTokens(verifier, _reach_by_scopes(settings.jwt_servers_claim), wall=wall)


def resource_url(settings: Settings) -> str | None:
    """The address by which identity providers know this gateway; None where no public address is set.

    Source: RFC 8707; RFC 9728, section 1.2.
    """
    return None if settings.public_url is None else settings.public_url.rstrip("/") + "/mcp"
