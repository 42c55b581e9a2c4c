"""Shares of limits that several gateways keep together, each its part. No clock, no waiting."""

from dataclasses import replace
from typing import Final

from smart_mcp_proxy.servers import ServerLimits

LEAST_RATE_PER_S: Final = 1 / 60
"""Least share of a rate, unless the rate itself is lower: whatever shares it, nobody waits longer than a minute."""


def share_of_count(limit: int, gateways: int) -> int:
    """Divide a limit on calls by the number of gateways, rounding down to at least 1.

    A share of none would be no service. 0 stands for no limit and stays.
    """
    return limit and max(1, limit // gateways)


def share_of_rate(rate_per_s: float, gateways: int) -> float:
    """Divide a rate by the number of gateways, to at least a call a minute; 0, no limit, stays."""
    return max(rate_per_s / gateways, min(rate_per_s, LEAST_RATE_PER_S))


def share_of_limits(limits: ServerLimits, gateways: int) -> ServerLimits:
    """Divide limits by the number of gateways; queue and times stay: they limit no server."""
    if gateways == 1:
        return limits
    return replace(
        limits,
        calls_per_s=None if limits.calls_per_s is None else share_of_rate(limits.calls_per_s, gateways),
        burst=None if limits.burst is None else share_of_count(limits.burst, gateways),
        in_flight=None if limits.in_flight is None else share_of_count(limits.in_flight, gateways),
    )
