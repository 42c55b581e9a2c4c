"""Readiness of a server: waited for before the last check, so that nothing waits after it."""

from collections.abc import Callable

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.indexing.list_state import FIRST_LIST_S, ListState
from smart_mcp_proxy.upstream import Upstream


async def wait_connected(
    upstream: Upstream | None,
    server: str,
    left_s: float | None,
    clock: Callable[[], float],
    lists: ListState | None = None,
) -> tuple[Upstream, float]:
    """A server that is ready, and the seconds that a request to it has left, after waiting.

    A new connection may lead to another program than the last one: its first list is waited for, too.

    Args:
        upstream: Its connection; None where it is not configured.
        server: Configured name.
        left_s: Seconds that the request has; None for the server's own limit.
        clock: Monotonic seconds.
        lists: What the server lists; None where that does not matter.

    Raises:
        UpstreamError: It is not ready, after waiting for a connection that is being made, or no longer configured.
    """
    if upstream is None:  # removed from the configuration since it was looked up
        raise UpstreamError(
            f"Server '{server}' is no longer configured.",
            hint="Its user can add it again; retrieve_tools has the rest.",
        )
    limits, began_s = upstream.config.limits, clock()
    limit_s = limits.call_s if left_s is None else left_s
    if not await upstream.ready(min(limit_s, limits.patience_s)):
        raise upstream.not_ready()
    if lists is not None:
        await lists.wait_listed(server, min(max(0.0, limit_s - (clock() - began_s)), FIRST_LIST_S))
    return upstream, max(0.0, limit_s - (clock() - began_s))


def require_connected(upstream: Upstream) -> None:
    """Passes if a request is sent at once, and not on a connection whose lists nobody has looked at.

    Raises:
        UpstreamError: The connection was lost again.
    """
    if not upstream.is_ready:
        raise upstream.not_ready()
