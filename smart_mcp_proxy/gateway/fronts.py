"""The fronts of a gateway: the whole catalog's, and one for each profile that the configuration names."""

from collections.abc import Callable, Mapping

from smart_mcp_proxy.gateway.front import Front
from smart_mcp_proxy.gateway.visible import Visible
from smart_mcp_proxy.servers import Profile, ServerConfig

__all__ = ["Fronts"]


class Fronts:
    """Keeps one front per profile, equal to the configuration.

    Args:
        whole: The whole catalog's tools.
        look: The tools of one profile.
        open_front: Makes a front of visible tools.
        profiles: By name.
    """

    def __init__(
        self,
        whole: Visible,
        look: Callable[[Profile], Visible],
        open_front: Callable[[Visible], Front],
        profiles: Mapping[str, Profile],
    ) -> None:
        self.whole = open_front(whole)
        self._look = look
        self._open_front = open_front
        self._profiles = dict(profiles)
        self._fronts = {name: open_front(look(profile)) for name, profile in profiles.items()}

    def of(self, profile: str) -> Front | None:
        """A profile's front; None if the configuration does not name it (any more)."""
        return self._fronts.get(profile)

    def reconfigure(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
        """Goes by another configuration from now on; a profile that stays keeps its clients."""
        self.whole.visible.reconfigure(servers)
        for name in self._fronts.keys() - profiles.keys():
            # Sessions that were opened on it hold on to it: they see nothing any more.
            self._fronts.pop(name).visible.reconfigure({}, self._profiles.pop(name))
        for name, profile in profiles.items():
            if name in self._fronts:
                self._fronts[name].visible.reconfigure(servers, profile)
            else:
                self._fronts[name] = self._open_front(self._look(profile))
            self._profiles[name] = profile
