"""Notifications of changed prompts and resources: each client once, for what it may see."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import anyio

from smart_mcp_proxy.fastmcp_compat.list_changed import ContentGroup, ListChangedHub
from smart_mcp_proxy.gateway.shared.changes import wait_change_settled
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.models import ContentKind, Principal

_GROUPS: Mapping[ContentGroup, tuple[ContentKind, ...]] = {
    "prompts": ("prompts",),
    "resources": ("resources", "templates", "skills"),  # whose files are resources
}

_States = dict[ContentGroup, Hashable]


@dataclass(eq=False, repr=False)
class ContentsChanges:
    """Knows what each client was shown.

    Attributes:
        contents_at: What is seen at a path on behalf of a principal; None where the place has tools alone.
        hub: The clients of the modern era that listen.
    """

    contents_at: Callable[[str, Principal], Contents | None]
    hub: ListChangedHub

    def __post_init__(self) -> None:
        self._sessions: WeakKeyDictionary[Session, _States] = WeakKeyDictionary()
        self._places: dict[tuple[str, Principal], _States] = {}
        self.hub.listened.subscribe(self._listens)

    def begin(self, session: Session) -> None:
        """Start notifying this client of the handshake era."""
        self._sessions[session] = self._states(session.client.path, session.client.principal)

    def _listens(self, path: str, who: Principal) -> None:
        self._places[path, who] = self._states(path, who)

    async def announce(self, changes: Callable[[], asyncio.Event]) -> None:
        """Tells every client once whenever what it sees is something else; never returns.

        Args:
            changes: An event that is set when the catalog or a server changes next.
        """
        while True:
            next_change = changes()
            await self.refresh()
            await wait_change_settled(next_change)

    async def refresh(self) -> None:
        """Tells whoever sees something else now."""
        for place in self._places.keys() - set(self.hub.places):
            del self._places[place]
        async with anyio.create_task_group() as group:
            for session, told in list(self._sessions.items()):
                for changed in self._take_changed_groups(told, session.client.path, session.client.principal):
                    group.start_soon(session.client.tell_contents_changed, changed)
            for place, told in list(self._places.items()):
                for changed in self._take_changed_groups(told, *place):
                    group.start_soon(self.hub.announce, *place, changed)

    def _take_changed_groups(self, told: _States, path: str, who: Principal) -> list[ContentGroup]:
        states = self._states(path, who)
        changed = [group for group in _GROUPS if states[group] != told[group]]
        told.update(states)
        return changed

    def _states(self, path: str, who: Principal) -> _States:
        contents = self.contents_at(path, who)
        return {group: contents.state(*kinds) if contents is not None else () for group, kinds in _GROUPS.items()}
