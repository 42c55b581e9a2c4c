"""Offers: the tools that a client sees, and the way to call them."""

import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, Protocol
from weakref import ref

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.client_behavior import Watch
from smart_mcp_proxy.gateway.shared.output_schemas import why_uncompilable
from smart_mcp_proxy.models import Era, Principal, Reach
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import Activity, spawn

PATH_CHARS = 100
REACHES = 256
"""Kept at a time; all users of one role have the same."""
NAME_CHARS = 100
"""Of what a client calls itself."""
_NOTHING = object()
Tell = Callable[[], Coroutine[Any, Any, None]]


class ToolProvider(Protocol):
    """A list of tools, and the way to call them."""

    @property
    def instructions(self) -> str:
        """Instructions for a model at connection; a look-up."""

    @property
    def list_ttl_ms(self) -> int:
        """Time for which a client may keep the list, in milliseconds."""

    async def wait_listed(self) -> None:
        """Returns when there is a list to show, if only an empty one."""

    def definitions(self, era: Era) -> Sequence[Mapping[str, Any]]:
        """The tools as one era's `tools/list` shows them."""

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool; a look-up."""

    def has(self, name: str) -> bool:
        """Whether a tool of this name is listed; a look-up."""

    def demands_headers(self, name: str) -> bool:
        """Whether a listed tool wants some arguments in HTTP headers too, for which the SDK has the rules."""

    def may_need_line(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call of a listed tool may lead to a server that knows each client; a look-up."""

    def state(self) -> Hashable:
        """Equal as long as the list is the same one; None while there is none to show; a look-up."""

    def hint(self, name: str) -> str:
        """Hint for a name that is not listed."""

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> RawResult:
        """The result of a listed tool."""


class Audience:
    """Clients that are offered the same, and what they were told of it.

    Args:
        offer: Theirs.
        tell: Tells them that the list is another one.
        on_told: Called when they are told.
    """

    def __init__(self, offer: ToolProvider, tell: Tell, *, on_told: Callable[[], None]) -> None:
        self.offer = offer
        self._tell = tell
        self._on_told = on_told
        self._told: Hashable = _NOTHING
        self._is_telling = False

    @property
    def is_behind(self) -> bool:
        """Whether the list differs from the one that clients know."""
        return self._told is not _NOTHING and self.offer.state() != self._told

    def note_shown(self) -> None:
        """Mark the list as known to clients; each change from here on is notified."""
        if self._told is _NOTHING:
            self._told = self.offer.state()

    async def refresh(self) -> None:
        """Notify clients once if the list changed; changes meanwhile once after that."""
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self.is_behind:
                self._told = self.offer.state()
                self._on_told()
                await self._tell()
        finally:
            self._is_telling = False


Route = Literal["CALL_TOOL", "DYNAMIC", "TOOLSET", "PASSTHROUGH"]
"""How a client gets at tools: by call tools, registered in its list, as one toolset's, as one server's."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Route chosen for one client, and the reason for it.

    Attributes:
        route: What it gets.
        reason: Why, for people.
    """

    route: Route
    reason: str


class Session(Audience):
    """A connected client of the handshake era.

    Args:
        client: Who it is.
        routed: What it is offered, and why.
        offer: Makes what it is offered; is given what to call when the client has changed its list.
        watch: Notes whether it asks for its list again when it changes.
        on_told: Called when it is told that its list has changed.
        on_close: Told when it is gone.
    """

    def __init__(
        self,
        client: HandshakeClient,
        routed: Routed,
        offer: Callable[[Callable[[], None]], ToolProvider],
        watch: Watch,
        *,
        on_told: Callable[[], None],
        on_close: "Callable[[Session], None]",
    ) -> None:
        # Nothing below refers back to the session: it is freed when its client is gone, not at the next collection.
        super().__init__(offer(partial(_refresh_soon, ref(self))), partial(_tell, client, watch), on_told=on_told)
        self.client = client
        self.routed = routed
        self._watch = watch
        self._listed: Hashable = _NOTHING
        self.on_close = [on_close]
        """Each is told when the client is gone."""

    def __repr__(self) -> str:
        return f"<Session of {self.client.name or 'a client without a name'}, {self.routed.route}>"

    def note_listed(self) -> None:
        """The client has asked for its list."""
        self._watch.note_list_request()
        self._listed = self.offer.state()
        self.note_shown()

    def listens(self) -> None:
        """Start notifications outside requests; the client first gets what it may have missed."""
        if self._listed not in (_NOTHING, self._told) and not self.is_behind:  # else it is told soon
            self._listed = self._told
            spawn(self._tell(), "list changed")

    def close(self) -> None:
        """The client is gone."""
        self._watch.end_watch()
        for told in self.on_close:
            told(self)


async def _tell(client: HandshakeClient, watch: Watch) -> None:
    watch.note_announcement()
    await client.tell_list_changed()


def _refresh_soon(session: "ref[Session]") -> None:
    if (connected := session()) is not None:
        spawn(connected.refresh(), "list changed")


def build_session_activity(session: Session) -> Activity:
    """The line of the activity log for a client that has connected."""
    client, routed = session.client, session.routed
    profile = client.path.removeprefix("p/") if client.path.startswith("p/") else ""
    facts = {"version": client.version[:NAME_CHARS], "profile": profile}
    return Activity(
        kind="session",
        principal=client.principal.id,
        subject=client.name[:NAME_CHARS],
        outcome="ok",
        duration_ms=0.0,
        at_s=time.time(),
        detail={"route": routed.route, "reason": routed.reason} | {key: text for key, text in facts.items() if text},
    )


class ToolProviders(Protocol):
    """The offers of all clients."""

    @property
    def is_changing(self) -> bool:
        """Whether a list can change as things are; a look-up."""

    def at(self, path: str, principal: Principal) -> ToolProvider:
        """Return the offer for a modern client at a path.

        Raises:
            RequestError: Nothing is there, or not for this principal.
        """

    def route(self, client: HandshakeClient) -> Routed:
        """Decide how a client of the handshake era is served."""

    def to(self, client: HandshakeClient, routed: Routed, on_change: Callable[[], None]) -> ToolProvider:
        """Return the offer for a client of the handshake era.

        Args:
            client: Who it is.
            routed: What was decided for it.
            on_change: Called when something the client did has changed its list.

        Raises:
            RequestError: Nothing is there.
        """


class OneProvider:
    """The same for every client of a reach at `/mcp`, and nothing elsewhere.

    Args:
        offer_within: What is offered to those who reach so far.
        is_changing: Whether its list can change.
    """

    def __init__(self, offer_within: Callable[[Reach], ToolProvider], *, is_changing: bool) -> None:
        self._offer_within = lru_cache(REACHES)(offer_within)
        self.is_changing = is_changing

    def at(self, path: str, principal: Principal) -> ToolProvider:
        """The one offer."""
        if path:
            raise build_path_error(path)
        return self._offer_within(principal.reach)

    def route(self, client: HandshakeClient) -> Routed:
        """The same for everybody."""
        return Routed("PASSTHROUGH", "one server is passed through as it is")

    def to(self, client: HandshakeClient, routed: Routed, on_change: Callable[[], None]) -> ToolProvider:
        """The one offer."""
        return self.at(client.path, client.principal)


def build_path_error(path: str) -> RequestError:
    """The error for a path that holds no list of tools."""
    return RequestError(f"Nothing is served at /mcp/{path[:PATH_CHARS]}.", hint="Use /mcp.", code="not_found")


def fit_to_handshake(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without an output schema that is no object or cannot be compiled.

    Clients of that era refuse the whole list for it.

    The 2026-07-28 revision allows any schema.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
    """
    schema = definition.get("outputSchema")
    is_object = isinstance(schema, dict) and schema.get("type") == "object"
    if "outputSchema" not in definition or (is_object and not why_uncompilable(schema)):
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}
