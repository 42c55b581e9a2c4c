"""Sessions of clients: the list of tools that each one sees, and what it was told of it."""

import time
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Literal
from weakref import ref

import msgspec

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway.shared.agent_tools import ToolList
from smart_mcp_proxy.gateway.shared.client_behavior import Watch
from smart_mcp_proxy.policy import short_digest
from smart_mcp_proxy.telemetry import Activity, spawn

NAME_CHARS = 100
"""Characters of the name that a client gives itself."""
_NOTHING = object()
Tell = Callable[[], Coroutine[Any, Any, None]]


class Audience:
    """Clients that see the same list of tools, and what they were told of it.

    Args:
        tool_list: Theirs.
        tell: Tells them that the list is another one.
        on_told: Called when they are told.
    """

    def __init__(self, tool_list: ToolList, tell: Tell, *, on_told: Callable[[], None]) -> None:
        self.tool_list = tool_list
        self._tell = tell
        self._on_told = on_told
        self._told: Hashable = _NOTHING
        self._is_telling = False

    @property
    def is_behind(self) -> bool:
        """Whether the list differs from the one that clients know."""
        return self._told is not _NOTHING and self.tool_list.state() != self._told

    def note_shown(self) -> None:
        """Mark the list as known to clients; each change from here on is notified."""
        if self._told is _NOTHING:
            self._told = self.tool_list.state()

    async def refresh(self) -> None:
        """Notify clients once if the list changed; changes meanwhile once after that."""
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self.is_behind:
                self._told = self.tool_list.state()
                self._on_told()
                await self._tell()
        finally:
            self._is_telling = False


class Route(msgspec.Struct, frozen=True):
    """Way in which one client gets at tools, and the reason for it.

    Attributes:
        kind: By call tools, registered in its list, as one toolset's, as one server's.
        reason: Why, for people.
    """

    kind: Literal["CALL_TOOL", "DYNAMIC", "TOOLSET", "PASSTHROUGH"]
    reason: str


class Session(Audience):
    """A connected client of the handshake era.

    Args:
        client: Who it is.
        route: How it gets at tools, and why.
        open_list: Makes its list of tools; is given what to call when the client has changed it.
        watch: Notes whether it asks for its list again when it changes.
        on_told: Called when it is told that its list has changed.
        on_close: Told when it is gone.
    """

    def __init__(
        self,
        client: HandshakeClient,
        route: Route,
        open_list: Callable[[Callable[[], None]], ToolList],
        watch: Watch,
        *,
        on_told: Callable[[], None],
        on_close: "Callable[[Session], None]",
    ) -> None:
        # Nothing below refers back to the session: it is freed when its client is gone, not at the next collection.
        tool_list = open_list(partial(_refresh_soon, ref(self)))
        super().__init__(tool_list, partial(_tell, client, watch), on_told=on_told)
        self.client = client
        self.route = route
        self._watch = watch
        self._listed: Hashable = _NOTHING
        self.on_close = [on_close]
        """Each is told when the client is gone."""

    def __repr__(self) -> str:
        return f"<Session of {self.client.name or 'a client without a name'}, {self.route.kind}>"

    def note_listed(self) -> None:
        """The client has asked for its list."""
        self._watch.note_list_request()
        self._listed = self.tool_list.state()
        self.note_shown()

    def listens(self) -> None:
        """Start notifications outside requests; the client first gets what it may have missed."""
        if self._listed not in (_NOTHING, self._told) and not self.is_behind:  # else it is told soon
            self._listed = self._told
            spawn(self._tell(), "list changed")

    def close(self) -> None:
        """The client is gone."""
        self._watch.give_up()
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
    client, route = session.client, session.route
    profile = client.path.removeprefix("p/") if client.path.startswith("p/") else ""
    facts = {"version": client.version[:NAME_CHARS], "profile": profile}
    return Activity(
        kind="session",
        principal=client.principal.id,
        subject=client.name[:NAME_CHARS],
        outcome="ok",
        duration_ms=0.0,
        at_s=time.time(),
        detail={"route": route.kind, "reason": route.reason} | {key: text for key, text in facts.items() if text},
        session=short_digest(client.session_id) if client.session_id else "",
    )
