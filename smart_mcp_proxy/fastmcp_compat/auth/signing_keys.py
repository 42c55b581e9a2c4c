"""FastMCP's token verifier, which refetches the issuer's keys where a signature fails.

Relied on: `_refresh_jwks_key`, which replaces the kept keys only once new ones have come; `_jwks_cache_time`, when it
did; `_shared_jwks_refresh_lock`, `_jwks_last_refresh_attempt` and `_jwks_refresh_interval`, which keep it rare;
`_get_verification_key` and `_import_key_for_algorithm`, by which a token is checked.
"""

import time
from contextlib import suppress
from typing import Final

from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.providers import jwt
from fastmcp.server.auth.providers.jwt import JWTVerifier, _import_key_for_algorithm
from joserfc import jws
from joserfc.errors import BadSignatureError, JoseError

TIMED: Final = (jwt,)
"""Modules that judge by the clock whether a token is good."""


class RotatingKeyVerifier(JWTVerifier):
    """Verifies signed tokens; notices a replaced key of the same id at the first new token.

    FastMCP looks for new keys where a token names an id that it does not know, at most every 30 s, and otherwise every
    hour. A token whose signature does not fit counts towards that allowance: bad tokens cause no flood of requests.
    """

    async def load_access_token(self, token: str) -> AccessToken | None:
        """The claims of a good token; None for any other."""
        kept_since_s = self._jwks_cache_time
        found = await self._try_load_token(token)
        if found is None and self.jwks_uri and await self._is_signed_otherwise(token):
            await self._refresh(kept_since_s)
            if self._jwks_cache_time != kept_since_s:
                found = await self._try_load_token(token)
        return found

    async def lacks_key(self, token: str) -> bool:
        """Whether a token names a key that is not known, and the last look for new ones brought none."""
        asked_s = self._jwks_last_refresh_attempt
        if asked_s is None or self._jwks_cache_time >= asked_s:
            return False
        try:
            await self._get_verification_key(token)
        except ValueError:
            return True
        return False

    async def _try_load_token(self, token: str) -> AccessToken | None:
        try:
            return await super().load_access_token(token)
        except OverflowError:  # it says that it ends at infinity
            return None

    async def _is_signed_otherwise(self, token: str) -> bool:
        """Whether the token names a key that is known and does not fit its signature."""
        try:
            key = _import_key_for_algorithm(await self._get_verification_key(token), self.algorithm)
            registry = jws.JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
            jws.deserialize_compact(token, key, registry=registry)
        except BadSignatureError:
            return True
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):  # as `load_access_token`
            return False
        return False

    async def _refresh(self, kept_since_s: float) -> None:
        """Asks for the keys, unless another token has caused that meanwhile, or not long ago."""
        async with self._shared_jwks_refresh_lock:
            now_s, asked_s = time.monotonic(), self._jwks_last_refresh_attempt
            is_early = asked_s is not None and now_s - asked_s < self._jwks_refresh_interval
            if self._jwks_cache_time != kept_since_s or is_early:
                return
            self._jwks_last_refresh_attempt = now_s
            with suppress(ValueError):  # keys that cannot be had leave those that are kept as they are
                await self._refresh_jwks_key(None)
