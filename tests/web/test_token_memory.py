"""What is remembered of signed tokens, and for how long."""

import asyncio
import hashlib
import time

import anyio
import pytest
from fastmcp.server.auth import AccessToken, AuthProvider

from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.web.auth.signed_tokens import SignedTokens

pytestmark = pytest.mark.anyio

TOKEN = b"a.b.c"


class SlowVerifier(AuthProvider):
    """Finds every token good, once it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def verify_token(self, token: str) -> AccessToken | None:
        self.asked.set()
        await self.goes_on.wait()
        claims = {"iss": "https://id.example", "sub": "ann"}
        return AccessToken(token=token, client_id="c", scopes=[], claims=claims, expires_at=int(time.time()) + 60)


async def test_what_was_found_of_a_token_before_one_was_given_back_is_not_remembered() -> None:
    """It may have been that one: the next request looks anew."""
    verifier = SlowVerifier()
    tokens = SignedTokens(verifier, lambda _token: Reach(None, "read"))
    digest = hashlib.sha256(TOKEN).digest()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(tokens.verify, TOKEN)
            await verifier.asked.wait()
            tokens.forget()
            verifier.goes_on.set()
        assert tokens.principal_of(digest) is None
        await tokens.verify(TOKEN)
        assert tokens.principal_of(digest) is not None
