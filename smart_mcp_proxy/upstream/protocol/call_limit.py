"""The time that a call may take: counted anew from each report of progress, up to a longest."""

from typing import Final

from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.servers import ServerLimits
from smart_mcp_proxy.upstream.protocol.session import timeout_error

_LONGEST_SETTING: Final = "'limits.call_max_s' (seconds) in its entry."


def ends_at_s(limits: ServerLimits, began_s: float, timeout_s: float, heard_s: float) -> float:
    """When a request without an answer ends.

    Args:
        limits: Of the server.
        began_s: When the request began.
        timeout_s: Its limit without progress.
        heard_s: When its progress was reported last; 0 for never.
    """
    end_s = began_s + timeout_s
    if not heard_s:
        return end_s
    return max(end_s, min(heard_s + limits.call_s, began_s + limits.longest_call_s))


def late_error(
    server: str,
    method: str,
    limits: ServerLimits,
    *,
    began_s: float,
    timeout_s: float,
    heard_s: float = 0.0,
    was_sent: bool = True,
) -> UpstreamTimeoutError:
    """The error for a request that ended so; arguments as of `ends_at_s`."""
    if not heard_s or ends_at_s(limits, began_s, timeout_s, heard_s) <= began_s + timeout_s:
        return timeout_error(server, method, timeout_s, was_sent=was_sent)
    if heard_s + limits.call_s < began_s + limits.longest_call_s:
        return timeout_error(server, method, limits.call_s, was_sent=was_sent, since=" of its last progress report")
    longest_s, since = limits.longest_call_s, ", although it reported progress"
    return timeout_error(server, method, longest_s, was_sent=was_sent, since=since, setting=_LONGEST_SETTING)
