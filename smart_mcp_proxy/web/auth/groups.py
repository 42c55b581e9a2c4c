"""Groups of an identity provider: the role, the profile and the access that they give."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastmcp.server.auth import AccessToken

from smart_mcp_proxy.gateway.admin.roles import find_access
from smart_mcp_proxy.models import ROLES, CallVariant, Reach, Role
from smart_mcp_proxy.servers import Profile
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.signed_tokens import MISTAKEN, ReachOf, parse_names_claim

_ACCESS: Final[tuple[CallVariant, ...]] = ("read", "write", "destructive")


def parse_groups_claim(claim: Any) -> frozenset[str]:
    """Names in a claim: a list, or one name; nothing where it cannot be understood.

    A text is one name, whatever blanks it holds: its words could be other groups' names.
    """
    names = [claim] if isinstance(claim, str) else claim
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return frozenset()
    return frozenset(names)


class Groups:
    """Roles and profiles of groups.

    Args:
        settings: Roles by group, and the claims.
        profiles: The configured profiles by name, in the order of the file.
        reach_of: Reach without groups.
        is_bounded: Whether that is the most: the scopes of a token bound what its holder has handed on.
    """

    def __init__(
        self, settings: Settings, profiles: Callable[[], Mapping[str, Profile]], reach_of: ReachOf, *, is_bounded: bool
    ) -> None:
        self._roles: dict[str, Role] = {}
        for text in settings.group_roles:
            group, _, word = text.rpartition("=")
            self._roles[group] = next(role for role in ROLES if role == word)
        self._groups_claim, self._servers_claim = settings.groups_claim, settings.jwt_servers_claim
        self._profiles = profiles
        self._reach_of = reach_of
        self._is_bounded = is_bounded

    def find_role(self, token: AccessToken) -> Role | None:
        """Return the highest role of the groups that a verified token names; None without a known one."""
        names = parse_groups_claim(token.claims.get(self._groups_claim))
        found = [role for group, role in self._roles.items() if group in names]
        return max(found, key=ROLES.index, default=None)

    def find_reach(self, token: AccessToken) -> Reach | None:
        """Return the reach of a token's holder; None for one who is not let in.

        Where a profile names one of their groups, the first that does holds them.
        """
        names = parse_groups_claim(token.claims.get(self._groups_claim))
        held = (profile for profile in self._profiles().values() if not names.isdisjoint(profile.groups))
        profile, role, own = next(held, None), self.find_role(token), self._reach_of(token)
        servers = parse_names_claim(token.claims.get(self._servers_claim))
        if (profile is None and role is None) or servers is MISTAKEN or (self._is_bounded and own is None):
            return own
        bounds = [] if role is None else [find_access(role)]
        if profile is not None:
            bounds.append(profile.access or "read")
        if self._is_bounded and own is not None:
            bounds.append(own.access)
        return Reach(servers, min(bounds, key=_ACCESS.index), None if profile is None else profile.name)
