"""Which client is offered what: found tools by call tools, or registered in the client's own list."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from smart_mcp_proxy.fastmcp_compat.server import Client
from smart_mcp_proxy.gateway.conduct import Conduct
from smart_mcp_proxy.gateway.front import Front
from smart_mcp_proxy.gateway.offer import Offer, nothing_at
from smart_mcp_proxy.telemetry import get_logger

__all__ = ["ClientRoute", "Route", "Routing"]

Route = Literal["CALL_TOOL", "DYNAMIC"]

_HONOURS_CHANGES: Final = {
    "claude-code": True,
    "gemini-cli": True,
    "opencode": True,
    "visual studio code": True,
    "vscode": True,
    "inspector": True,
    "cursor": False,
    "codex": False,
    "claude-ai": False,
    "claude desktop": False,
    "pydantic-ai": False,
    "langchain": False,
    "llama-index": False,
}
"""Clients by a part of the name they give, and whether they ask for the list again in the middle of a session when
they are told that it changed. Sources: their own change logs and issue trackers, as of November 2026."""

_NAME_CHARS: Final = 100
_UNHEEDED: Final = 2
"""After so many unheeded announcements its next session gets CALL_TOOL, whatever the table says."""


log = get_logger("routing")


@dataclass(frozen=True, slots=True)
class ClientRoute:
    """What one client was given, and why.

    Attributes:
        client: As it calls itself.
        route: What it got.
        reason: Why, for people.
    """

    client: str
    route: Route
    reason: str


def decide(name: str, conduct: tuple[int, int]) -> tuple[Route, str]:
    """What AUTO gives a client of this name, and why.

    Args:
        name: As the client calls itself.
        conduct: Announcements that clients of this name heeded, and did not.
    """
    heeded, unheeded = conduct
    if heeded:
        return "DYNAMIC", f"it asked for its list again after {heeded} of {heeded + unheeded} announcements"
    if unheeded >= _UNHEEDED:
        return "CALL_TOOL", f"it did not ask for its list again after {unheeded} announcements"
    folded = name.casefold()
    known = next((does for part, does in _HONOURS_CHANGES.items() if part in folded), None)
    if known is None:
        return "CALL_TOOL", "it is not known to ask for its list again when the list changes"
    if known:
        return "DYNAMIC", "it is known to ask for its list again when the list changes"
    return "CALL_TOOL", "it is known not to ask for its list again in the middle of a session"


class Routing:
    """Offers every client its list: by its path, its era and what it is known for.

    Args:
        setting: What the settings ask for.
        front: The whole catalog.
        profiles: The profiles' parts of it, by name; a look-up.
        conduct: How clients took announcements.
        limit: Most tools in one session's pool.
        clock: Monotonic seconds.
        is_changing: Whether any list can change while the gateway runs.
    """

    def __init__(
        self,
        setting: Literal["CALL_TOOL", "DYNAMIC", "AUTO"],
        front: Front,
        profiles: Callable[[str], Front | None],
        conduct: Conduct,
        *,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        is_changing: bool,
    ) -> None:
        self.instructions = front.fixed.instructions
        self.is_changing = is_changing
        self._conduct = conduct
        self._setting = setting
        self._front = front
        self._profiles = profiles
        self._limit = limit
        self._clock = clock

    def at(self, path: str, principal: str) -> Offer:
        """The fixed list of a path.

        Raises:
            RequestError: Nothing is there.
        """
        return self._front_at(path).fixed

    def to(self, client: Client, on_change: Callable[[], None]) -> Offer:
        """The list of one client of the handshake era: one of its own where it is routed dynamically.

        Raises:
            RequestError: Nothing is at its path.
        """
        front = self._front_at(client.path)
        chosen = self.route_of(client.name)
        log.info("client '%s' gets %s: %s", client.name[:_NAME_CHARS], chosen.route, chosen.reason)
        if chosen.route == "CALL_TOOL":
            return front.fixed
        return front.pooled(self._limit, self._clock, on_change)

    def route_of(self, client: str) -> ClientRoute:
        """What a client of this name gets in its next session, and why."""
        if self._setting == "AUTO":
            return ClientRoute(client, *decide(client, self._conduct.of(client)))
        return ClientRoute(client, self._setting, "MCPPROXY_ROUTING_TYPE says so")

    def _front_at(self, path: str) -> Front:
        if not path:
            return self._front
        kind, _, name = path.partition("/")
        front = self._profiles(name) if kind == "p" else None
        if front is None:
            raise nothing_at(path)
        return front
