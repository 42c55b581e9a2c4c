"""The connection that a request goes to: waited for before the gates' last look, so that nothing waits after it."""

from collections.abc import Callable

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.upstream import Fleet, Upstream

__all__ = ["connected", "require_connected"]


async def connected(
    fleet: Fleet, server: str, left_s: float | None, clock: Callable[[], float]
) -> tuple[Upstream, float | None]:
    """A server that is ready, and the seconds that a request to it has left.

    Args:
        fleet: The servers' sessions.
        server: Configured name.
        left_s: Seconds that the request has; None for the server's own limit, and in return where nothing waited.
        clock: Monotonic seconds.

    Raises:
        UpstreamError: It is not ready, after waiting for a connection that is being made, or no longer configured.
    """
    upstream = fleet.get(server)
    if upstream is None:  # removed from the configuration since it was looked up
        raise UpstreamError(f"Server '{server}' is no longer configured.")
    if upstream.status.state is ServerState.READY:
        return upstream, left_s
    limits, began_s = upstream.config.limits, clock()
    limit_s = limits.call_s if left_s is None else left_s
    if not await upstream.ready(min(limit_s, limits.init_s)):
        raise upstream.not_ready()
    return upstream, max(0.0, limit_s - (clock() - began_s))


def require_connected(upstream: Upstream) -> None:
    """Passes if a request is sent at once, and not on a connection whose lists nobody has looked at.

    Raises:
        UpstreamError: The connection was lost again.
    """
    if upstream.status.state is not ServerState.READY:
        raise upstream.not_ready()
