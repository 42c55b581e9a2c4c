"""Simultaneous renewals of one sign-in: the provider is asked once, and each of them gets tokens."""

import time
from contextvars import ContextVar
from typing import Any, Final

from fastmcp.server.auth.oauth_proxy.models import UpstreamTokenSet

AGAIN_S: Final = 60
"""For so long at most a refresh token that was used is known again, while its second user is answered."""
renewed: ContextVar[UpstreamTokenSet | None] = ContextVar("renewed_sign_in", default=None)
"""Tokens that another request has just brought, for the present renewal; None where the provider is to be asked."""


class RenewedClient:
    """Answers as the provider did a moment ago.

    Args:
        kept: What it gave.
    """

    def __init__(self, kept: UpstreamTokenSet) -> None:
        self._kept = kept

    async def refresh_token(self, **_: Any) -> dict[str, Any]:
        """The kept tokens, as the answer to a renewal."""
        kept = self._kept
        answer = {"access_token": kept.access_token, "refresh_token": kept.refresh_token, "scope": kept.scope}
        return {**answer, "expires_in": max(1, int(kept.expires_at - time.time()))}
