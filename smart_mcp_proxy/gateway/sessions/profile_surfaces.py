"""The fronts of a gateway: the whole catalog's, and one for each profile that the configuration names."""

from collections.abc import Callable, Collection, Mapping
from weakref import WeakValueDictionary

from smart_mcp_proxy.gateway.sessions.tool_surface import Front
from smart_mcp_proxy.gateway.visibility.visibility import Narrowed, Visible
from smart_mcp_proxy.models import WHOLE, Reach
from smart_mcp_proxy.servers import Profile, ServerConfig

__all__ = ["Fronts"]

NARROWED = 256
"""Fronts kept for those who do not see everything; all tokens with the same scope share one."""


class Fronts:
    """Keeps one front per profile, equal to the configuration.

    Args:
        whole: The whole catalog's tools.
        look: The tools of one profile.
        open_front: Makes a front of visible tools, and of the profile's name; empty for the whole catalog.
        profiles: By name.
    """

    def __init__(
        self,
        whole: Visible,
        look: Callable[[Profile], Visible],
        open_front: Callable[[Visible, str], Front],
        profiles: Mapping[str, Profile],
    ) -> None:
        self.whole = open_front(whole, "")
        self._look = look
        self._open_front = open_front
        self._profiles = dict(profiles)
        self._fronts = {name: open_front(look(profile), name) for name, profile in profiles.items()}
        self._gone: WeakValueDictionary[str, Visible] = WeakValueDictionary()
        self._narrowed: dict[tuple[str | None, Reach], Front] = {}

    @property
    def profiles(self) -> Collection[Profile]:
        """Those that the configuration names."""
        return self._profiles.values()

    @property
    def is_pinning(self) -> bool:
        """Whether the configuration always lists some tool."""
        return any(front.visible.is_pinning for front in (self.whole, *self._fronts.values()))

    def contents_at(self, path: str, reach: Reach) -> Visible | None:
        """The view of prompts and resources at a path: those of its tools' servers; none for toolsets."""
        kind, _, name = path.partition("/")
        front = self.of(name or None, reach) if kind in ("", "p") else None
        return None if front is None else front.visible

    def of(self, profile: str | None, reach: Reach = WHOLE) -> Front | None:
        """A profile's front, or with None the whole catalog's, as far as a reach goes; a look-up.

        None if the configuration does not name the profile (any more).
        """
        front = self.whole if profile is None else self._fronts.get(profile)
        if front is None or reach is WHOLE or reach == WHOLE:
            return front
        narrowed = self._narrowed.get((profile, reach))
        if narrowed is None:
            if len(self._narrowed) >= NARROWED:
                del self._narrowed[next(iter(self._narrowed))]  # its sessions keep it, and it keeps up by itself
            visible = self.narrowed(front.visible, reach)
            narrowed = self._narrowed[profile, reach] = self._open_front(visible, profile or "")
        return narrowed

    def narrowed(self, visible: Visible, reach: Reach) -> Visible:
        """Of visible tools those within a reach, whatever becomes of the configuration."""
        return visible if reach == WHOLE else Narrowed(visible, reach, self._profile)

    def _profile(self, name: str) -> Profile | None:
        return self._profiles.get(name)

    def visible(self, profile: str) -> Visible | None:
        """The tools of a profile, of the whole catalog for an empty name; None where there is no such profile."""
        front = self.of(profile) if profile else self.whole
        return front.visible if front is not None else None

    def reconfigure(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
        """Goes by another configuration from now on; a profile that stays keeps its clients."""
        former, self._profiles = self._profiles, dict(profiles)  # first: fronts look them up when they see the change
        self._narrowed.clear()
        self.whole.visible.reconfigure(servers)
        for name in self._fronts.keys() - profiles.keys():
            # Sessions that were opened on it hold on to it: they see nothing any more, unless it comes back.
            gone = self._gone[name] = self._fronts.pop(name).visible
            gone.reconfigure({}, former[name])
        for name, profile in profiles.items():
            front = self._fronts.get(name)
            visible = front.visible if front is not None else self._gone.pop(name, None)
            if visible is None:
                visible = self._look(profile)
            else:
                visible.reconfigure(servers, profile)
            self._fronts[name] = front or self._open_front(visible, name)
