"""Refusals of calls over a limit or held back: why, when to come again, and who can lift it."""

import math
from typing import Final

from smart_mcp_proxy.errors import RateLimitedError, UpstreamError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.policy.breaker import Breaker
from smart_mcp_proxy.policy.limits import TokenBucket

FULL_RETRY_S: Final = 1.0
"""What a caller is told to wait where nobody can know how long the calls under way take."""
SERVER_LIMITS: Final = "The user can raise 'in_flight' and 'queue' under 'limits' in the server's entry."


def round_up_s(wait_s: float) -> float:
    """Rounded up to milliseconds: whoever waits that long has waited long enough."""
    return math.ceil(wait_s * 1000) / 1000


def share_note(gateways: int) -> str:
    """A further sentence where this gateway lets only its share through."""
    return f" {gateways} gateways share the limit; this is the share of one." if gateways > 1 else ""


def too_fast_a_caller(bucket: TokenBucket, gateways: int, wait_s: float) -> RateLimitedError:
    """The refusal of a call that its caller's rate does not cover."""
    return RateLimitedError(
        f"A caller may make {bucket.rate_per_s:g} calls a second (at once: {bucket.burst}); this one is too many.",
        hint=f"Try again in {round_up_s(wait_s):g} s. "
        f"The operator can raise MCPPROXY_CALLS_PER_S and MCPPROXY_CALLS_BURST.{share_note(gateways)}",
        retry_after_s=round_up_s(wait_s),
    )


def too_fast_for_server(server: str, bucket: TokenBucket, gateways: int, wait_s: float) -> RateLimitedError:
    """The refusal of a call that its server's rate does not cover."""
    return RateLimitedError(
        f"Server '{server}' takes {bucket.rate_per_s:g} calls a second (at once: {bucket.burst}); this is too many.",
        hint=f"Try again in {round_up_s(wait_s):g} s. The user can raise 'calls_per_s' and 'burst' under 'limits' in "
        f"the server's entry.{share_note(gateways)}",
        retry_after_s=round_up_s(wait_s),
    )


def build_breaker_error(server: str, item: str, breaker: Breaker, wait_s: float) -> UpstreamError:
    """The refusal of a call while its server keeps failing, or the item of it that is named."""
    calls = f"Calls of {item!r} at server '{server}'" if item else f"Calls to server '{server}'"
    return UpstreamError(
        f"{calls} are held back, because it {breaker.reason}.",
        hint=f"Try again in {round_up_s(wait_s):g} s: one call is let through then to see. "
        f"Its user can look at: mcpproxy server logs {shell_word(server)}",
        code="breaker_open",
        data={"breaker": breaker.state.value},
        retry_after_s=round_up_s(wait_s),
    )
