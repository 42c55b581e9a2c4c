"""Limits on size and rate of sign-in requests, which anybody who reaches the gateway may send."""

import math
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, RateLimitedError
from smart_mcp_proxy.policy.limits import TokenBucket
from smart_mcp_proxy.web.common.messages import TooLargeError, json_response, read_body

PAGE_LIMIT_BYTES: Final = 64 * 1024
"""Of a body, as of a head. A form or a token is a few kilobytes long."""
REGISTRATION_LIMIT_BYTES: Final = 16 * 1024
"""A name and some addresses; what it says is kept."""
REGISTRATIONS_PER_S: Final = 1 / 60
REGISTRATIONS_AT_ONCE: Final = 100
"""Clients register once in their life, and each is kept for a day at least: mostly in one or two kilobytes, in 90 at
most."""
SIGN_IN_PAGES_PER_S: Final = 1.0
SIGN_IN_PAGES_AT_ONCE: Final = 150
"""A sign-in takes three, and each may leave a file that is worth something for 15 minutes: so about a thousand are."""
ADDRESS_SHARE: Final = 5
"""One address takes at most one of so many parts: a single stranger leaves room for everybody else."""
ADDRESSES_REMEMBERED: Final = 1_024
"""Beyond it those are dropped that have their whole part again, which nobody notices."""
_PREFIX_BITS: Final = 64
"""Of an IPv6 address: whoever has one has all that begin like it. Source: RFC 4291, section 2.5.1."""
_ERRORS: Final = {TooLargeError: "invalid_request", RateLimitedError: "temporarily_unavailable"}
"""What OAuth calls them. Source: RFC 6749, section 4.1.2.1."""


class _Allowance:
    """Rate limit for one kind of write, in all and for each address."""

    def __init__(self, who: str, per_s: float, at_once: int) -> None:
        self._who = who
        self._all = TokenBucket(per_s, at_once)
        self._by_address: dict[int, TokenBucket] = {}

    def take(self, address: int | None, now_s: float) -> None:
        """Counts one.

        Raises:
            RateLimitedError: There were too many; nothing is counted then.
        """
        own = None if address is None else self._by_address.get(address) or self._part()
        own_wait_s = 0.0 if own is None else own.wait_s(now_s)
        if wait_s := max(own_wait_s, self._all.wait_s(now_s)):
            who = f"{self._who} from your address" if own_wait_s else self._who
            raise RateLimitedError(
                f"Too many {who} lately.", hint=f"Try again in {math.ceil(wait_s)} s.", retry_after_s=wait_s
            )
        self._all.take(now_s)
        if address is not None and own is not None:
            own.take(now_s)
            self._by_address[address] = own
            if len(self._by_address) > ADDRESSES_REMEMBERED:
                self._by_address = {key: one for key, one in self._by_address.items() if not one.is_full(now_s)}

    def _part(self) -> TokenBucket:
        return TokenBucket(self._all.rate_per_s / ADDRESS_SHARE, self._all.burst // ADDRESS_SHARE)


class BoundedPages:
    """Refuses requests that are too long or too many; hands the others on, their bodies whole.

    Args:
        app: Serves the pages.
        clock: Monotonic seconds.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        clients = _Allowance("clients have registered", REGISTRATIONS_PER_S, REGISTRATIONS_AT_ONCE)
        people = _Allowance("people have begun to sign in", SIGN_IN_PAGES_PER_S, SIGN_IN_PAGES_AT_ONCE)
        self._counted = {"/register": clients, "/authorize": people, "/consent": people}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        request = Request(scope, receive)
        try:
            limit_bytes = REGISTRATION_LIMIT_BYTES if scope["path"] == "/register" else PAGE_LIMIT_BYTES
            body = await read_body(request, limit_bytes, "Send less.")
            if request.method != "OPTIONS":  # a browser's question whether it may ask
                self._count(scope)
        except ClientDisconnect:
            return
        except (TooLargeError, RateLimitedError) as exc:
            await _refuse(exc, scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    def _count(self, scope: Scope) -> None:
        """Counts a request for a page that has something written.

        Raises:
            RateLimitedError: There were too many.
        """
        if (allowance := self._counted.get(scope["path"])) is not None:
            allowance.take(_parse_client_address(scope.get("client")), self._clock())


def _parse_client_address(client: Any) -> int | None:
    """Address of a request's client; None for this machine, which proxied clients share."""
    try:
        address = ip_address(client[0])
    except (TypeError, ValueError):
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return None
    return int(address) >> (_PREFIX_BITS if isinstance(address, IPv6Address) else 0)


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
