"""What is remembered of signed tokens, and for how long."""

import asyncio
import hashlib
import time

import anyio
import pytest
from fastmcp.server.auth import AccessToken, AuthProvider

from smart_mcp_proxy.errors import CatalogError, UnverifiedError
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
        assert tokens.find_principal(digest) is None
        await tokens.verify(TOKEN)
        assert tokens.find_principal(digest) is not None


class Lookup(AuthProvider):
    """Finds a token good, bad, or cannot tell, as it is told; and the time, turned by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bool | None] = []
        self.asked = 0
        self.now_s = 0.0
        self.ends_s = 3_600

    async def verify_token(self, token: str) -> AccessToken | None:
        self.asked += 1
        is_good = self.answers.pop(0)
        if is_good is None:
            raise CatalogError("The database does not answer.")
        claims = {"iss": "https://id.example", "sub": "ann"}
        found = AccessToken(token=token, client_id="c", scopes=[], claims=claims, expires_at=self.ends_s)
        return found if is_good else None

    def tokens(self) -> SignedTokens:
        """One that asks here."""
        return SignedTokens(self, lambda _token: Reach(None, "read"), clock=lambda: self.now_s, wall=lambda: self.now_s)


DIGEST = hashlib.sha256(TOKEN).digest()


async def settled() -> None:
    """Returns when no token is being verified any more."""
    tasks = {task for task in asyncio.all_tasks() if task.get_name() == "verification of a token"}
    with anyio.fail_after(20):
        await asyncio.gather(*tasks)


async def test_a_token_in_use_is_verified_anew_beside_its_calls() -> None:
    """Once at a time, and no call waits for it; one that was given back is good no longer."""
    lookup = Lookup()
    tokens = lookup.tokens()
    lookup.answers = [True, True, False]
    assert await tokens.verify(TOKEN)
    lookup.now_s = 30.0
    assert tokens.find_principal(DIGEST, TOKEN)
    await settled()
    assert lookup.asked == 1, "not yet"
    for passed_s in (31.0, 62.0):
        lookup.now_s = passed_s
        assert tokens.find_principal(DIGEST, TOKEN)
        assert tokens.find_principal(DIGEST, TOKEN)
        await settled()
    assert lookup.asked == 3
    assert tokens.find_principal(DIGEST, TOKEN) is None


async def test_a_known_token_is_good_to_its_own_end_while_the_store_is_lost() -> None:
    """The store is asked now and then; once it is back, it is heeded."""
    lookup = Lookup()
    tokens = lookup.tokens()
    lookup.answers = [True, None, None, None, False]
    assert await tokens.verify(TOKEN)
    lookup.now_s = 600.0
    assert tokens.find_principal(DIGEST, TOKEN) is None, "it was not in use: this call looks"
    who = await tokens.verify(TOKEN)
    assert who is not None
    assert who.id == "https://id.example#ann"
    for passed_s in (604.0, 606.0, 610.0, 612.0):  # asked at every second of them
        lookup.now_s = passed_s
        assert tokens.find_principal(DIGEST, TOKEN) == who
        await settled()
    assert lookup.asked == 4
    lookup.now_s = 618.0
    assert tokens.find_principal(DIGEST, TOKEN) == who
    await settled()
    assert tokens.find_principal(DIGEST, TOKEN) is None, "it is back, and the token was given back"


async def test_what_is_not_known_waits_for_the_store() -> None:
    """That it cannot be looked up says nothing against a token: no client is to sign in anew."""
    lookup = Lookup()
    tokens = lookup.tokens()
    lookup.answers = [None, True, None, True, None]
    with pytest.raises(UnverifiedError) as caught:
        await tokens.verify(TOKEN)
    assert (caught.value.http_status, caught.value.retry_after_s) == (503, 5.0)
    assert await tokens.verify(TOKEN)
    tokens.forget()
    with pytest.raises(UnverifiedError):
        await tokens.verify(TOKEN)
    assert await tokens.verify(TOKEN)
    lookup.now_s = float(lookup.ends_s)
    with pytest.raises(UnverifiedError):
        await tokens.verify(TOKEN)
