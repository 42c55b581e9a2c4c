"""Views of the catalog: the whole of it, one for each configured profile, and parts of these."""

from collections.abc import Callable, Collection, Mapping
from weakref import WeakValueDictionary

import msgspec

from smart_mcp_proxy.gateway.visibility.visibility import CatalogView, NarrowedView
from smart_mcp_proxy.gateway.visibility.visibility_rules import ListedTo
from smart_mcp_proxy.models import WHOLE, Principal, Reach
from smart_mcp_proxy.servers import Profile, ServerConfig

NARROWED = 256
"""Views kept for those who do not see everything; all tokens with the same scope share one."""


class Views:
    """Keeps one view per profile, equal to the configuration.

    Args:
        look: Makes the view of one profile, or with None of the whole catalog.
        profiles: By name.
        listed_to: What servers at which each person signs in listed to one; the same object until that changes.
    """

    def __init__(
        self,
        look: Callable[[Profile | None], CatalogView],
        profiles: Mapping[str, Profile],
        listed_to: Callable[[str], ListedTo] = lambda person: {},
    ) -> None:
        self.whole = look(None)
        self._listed_to = listed_to
        self._is_personal = _is_any_personal(self.whole.servers)
        self._look = look
        self._profiles = dict(profiles)
        self._views = {name: look(profile) for name, profile in profiles.items()}
        self._gone: WeakValueDictionary[str, CatalogView] = WeakValueDictionary()
        self._narrowed: dict[tuple[str, Reach], CatalogView] = {}

    @property
    def profiles(self) -> Collection[Profile]:
        """Profiles that the configuration names."""
        return self._profiles.values()

    @property
    def is_pinning(self) -> bool:
        """Whether the configuration always lists some tool."""
        return any(view.is_pinning for view in (self.whole, *self._views.values()))

    def reach(self, who: Principal) -> Reach:
        """Return how far a principal reaches, with its own part of servers at which each person signs in."""
        return msgspec.structs.replace(who.reach, person=who.id) if self._is_personal else who.reach

    def of(self, profile: str, reach: Reach = WHOLE) -> CatalogView | None:
        """Return the view of a profile as far as a reach goes; a look-up.

        An empty name is that of the whole catalog. None if the configuration does not name the profile (any more).
        """
        view = self._views.get(profile) if profile else self.whole
        if view is None or reach is WHOLE or reach == WHOLE:
            return view
        narrowed = self._narrowed.get((profile, reach))
        if narrowed is None:
            if len(self._narrowed) >= NARROWED:
                del self._narrowed[next(iter(self._narrowed))]  # its sessions keep it, and it keeps up by itself
            narrowed = self._narrowed[profile, reach] = self.narrow_view(view, reach)
        return narrowed

    def at(self, path: str, reach: Reach) -> CatalogView | None:
        """Return the view at the path of the whole catalog or a profile; None at any other, also of a toolset."""
        kind, _, name = path.partition("/")
        return self.of(name, reach) if kind in ("", "p") and bool(kind) == bool(name) else None

    def narrow_view(self, view: CatalogView, reach: Reach) -> CatalogView:
        """Narrow a view to a reach, whatever becomes of the configuration."""
        return view if reach == WHOLE else NarrowedView(view, reach, self._find_profile, self._listed_to)

    def _find_profile(self, name: str) -> Profile | None:
        return self._profiles.get(name)

    def reconfigure(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
        """Goes by another configuration from now on; a profile that stays keeps its clients."""
        former, self._profiles = self._profiles, dict(profiles)  # first: views look them up when they see the change
        self._narrowed.clear()
        self._is_personal = _is_any_personal(servers)
        self.whole.reconfigure(servers)
        for name in self._views.keys() - profiles.keys():
            # Sessions that were opened on it hold on to it: they see nothing any more, unless it comes back.
            gone = self._gone[name] = self._views.pop(name)
            gone.reconfigure({}, former[name])
        for name, profile in profiles.items():
            view = self._views.get(name) or self._gone.pop(name, None)
            if view is None:
                view = self._look(profile)
            else:
                view.reconfigure(servers, profile)
            self._views[name] = view


def _is_any_personal(servers: Mapping[str, ServerConfig]) -> bool:
    return any(config.is_personal for config in servers.values())
