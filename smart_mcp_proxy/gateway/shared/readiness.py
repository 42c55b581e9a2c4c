"""Readiness of a server: waited for before the last check, so that nothing waits after it."""

from collections.abc import Callable
from typing import Protocol

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.upstream import Fleet, Upstream

FIRST_LIST_S = 5.0
"""Longest a request waits for the first list of a new connection. A server that has not shown any by then has not shown
another definition than the approved one either."""


class ListReadiness(Protocol):
    """Lists of the servers as this process has them."""

    def is_awaited(self, server: str) -> bool:
        """Whether a first list of the present connection is on its way."""
        ...

    async def wait_listed(self, server: str, limit_s: float = FIRST_LIST_S) -> None:
        """Waits for the first list of the present connection, at most `limit_s`."""
        ...

    def require_approved(self, record: ToolRecord) -> None:
        """Passes if the server lists the item as it was approved, or has not listed anything yet.

        Raises:
            QuarantinedError: The server's own list holds another definition, or none.
        """
        ...


async def wait_connected(
    fleet: Fleet, server: str, left_s: float | None, clock: Callable[[], float], lists: ListReadiness | None = None
) -> tuple[Upstream, float]:
    """A server that is ready, and the seconds that a request to it has left, after waiting.

    A new connection may lead to another program than the last one: its first list is waited for, too.

    Args:
        fleet: The servers' sessions.
        server: Configured name.
        left_s: Seconds that the request has; None for the server's own limit.
        clock: Monotonic seconds.
        lists: What the server lists; None where that does not matter.

    Raises:
        UpstreamError: It is not ready, after waiting for a connection that is being made, or no longer configured.
    """
    upstream = fleet.upstreams.get(server)
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
