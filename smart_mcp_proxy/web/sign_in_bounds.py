"""How long and how frequent requests for the pages of the sign-in may be: whoever reaches the gateway may send them."""

import math
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, RateLimitedError
from smart_mcp_proxy.policy.limits import TokenBucket
from smart_mcp_proxy.web.messages import TooLargeError, json_response, read_body

__all__ = ["BoundedPages"]

PAGE_LIMIT_BYTES: Final = 64 * 1024
"""Of a body, as of a head. A form or a token is a few kilobytes long."""
REGISTRATION_LIMIT_BYTES: Final = 16 * 1024
"""A name and some addresses; what it says is kept."""
REGISTRATIONS_PER_S: Final = 1 / 60
REGISTRATIONS_AT_ONCE: Final = 100
"""Clients register once in their life, and each is kept for good: mostly in one or two kilobytes, in 90 at most."""
SIGN_IN_PAGES_PER_S: Final = 1.0
SIGN_IN_PAGES_AT_ONCE: Final = 150
"""A sign-in takes three, and each may leave a file that is worth something for 15 minutes: so about a thousand are."""
_ERRORS: Final = {TooLargeError: "invalid_request", RateLimitedError: "temporarily_unavailable"}
"""What OAuth calls them. Source: RFC 6749, section 4.1.2.1."""


class BoundedPages:
    """Refuses requests that are too long or too many; hands the others on, their bodies whole.

    Args:
        app: Serves the pages.
        clock: Monotonic seconds.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        clients = TokenBucket(REGISTRATIONS_PER_S, REGISTRATIONS_AT_ONCE), "clients have registered"
        people = TokenBucket(SIGN_IN_PAGES_PER_S, SIGN_IN_PAGES_AT_ONCE), "people have begun to sign in"
        self._counted = {"/register": clients, "/authorize": people, "/consent": people}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        request = Request(scope, receive)
        try:
            limit_bytes = REGISTRATION_LIMIT_BYTES if scope["path"] == "/register" else PAGE_LIMIT_BYTES
            body = await read_body(request, limit_bytes, "Send less.")
            if request.method != "OPTIONS":  # a browser's question whether it may ask
                self._count(scope["path"])
        except ClientDisconnect:
            return
        except (TooLargeError, RateLimitedError) as exc:
            await _refuse(exc, scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    def _count(self, path: str) -> None:
        """Counts a request for a page that has something written.

        Raises:
            RateLimitedError: There were too many.
        """
        if path not in self._counted:
            return
        bucket, who = self._counted[path]
        now_s = self._clock()
        if wait_s := bucket.wait_s(now_s):
            raise RateLimitedError(
                f"Too many {who} lately.", hint=f"Try again in {math.ceil(wait_s)} s.", retry_after_s=wait_s
            )
        bucket.take(now_s)


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands out a body that was read, then whatever comes behind it."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _refuse(error: ProxyError, scope: Scope, receive: Receive, send: Send) -> None:
    told = {"error": _ERRORS[type(error)], "error_description": str(error)}
    response = json_response(told, error)
    # As the pages have it themselves: clients that run in a browser would not see why.
    response.headers["access-control-allow-origin"] = "*"
    await response(scope, receive, send)
