"""The rules that say which servers, tools and contents are shown: configuration, profiles, reaches."""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from smart_mcp_proxy import policy
from smart_mcp_proxy.models import WHOLE, CallVariant, Reach, ToolRecord
from smart_mcp_proxy.servers import Profile, ServerConfig

_ACCESS: tuple[CallVariant, ...] = get_args(CallVariant)
"""Each includes those before it."""


class Rules(NamedTuple):
    """The part of the catalog that configuration, profiles and reaches show: pure decisions."""

    servers: Mapping[str, ServerConfig]
    profile: Profile | None
    access: CallVariant = WHOLE.access
    held_to: tuple[Profile, ...] = ()
    is_narrowed: bool = False

    def offers(self, record: ToolRecord) -> bool:
        """Whether a listed tool is shown."""
        config = self.servers.get(record.key.server)
        if config is None or config.is_off:
            return False
        return self._fits(config, *record.key) and policy.is_within(self.access, record.annotations)

    def find_hiding_rule(self, record: ToolRecord) -> str:
        """Name the rule of the server file that hides a listed tool, for people; empty if none does."""
        config = self.servers.get(record.key.server)
        if config is None:
            return "profile" if self.profile is not None else "not_configured"
        rules = {
            "server_quarantined": config.quarantined,
            "server_disabled": config.disabled,
            "server_not_ready": config.refusal is not None,
            "excluded": not config.tools.allows(record.key.tool),
            "profile": not self._in_profiles(*record.key),
        }
        return next((rule for rule, is_hiding in rules.items() if is_hiding), "")

    def narrow_to_reach(self, reach: Reach, held_to: Profile | None) -> "Rules":
        """Narrow these rules to a reach; nothing is left if the profile of the reach is gone.

        Never more than before: whoever is narrowed again stays within all that held already.
        """
        names = set(self.servers) if reach.servers is None else self.servers.keys() & reach.servers
        if reach.profile is not None and held_to is None:
            names = set()
        elif held_to is not None:
            names = {name for name in names if held_to.may_hold(name)}
        servers = {name: config for name, config in self.servers.items() if name in names}
        access = min(self.access, reach.access, key=_ACCESS.index)
        held = self.held_to if held_to is None else (*self.held_to, held_to)
        return Rules(servers, self.profile, access, held, is_narrowed=True)

    def list_reachable_servers(self) -> list[str]:
        """Names of the servers that something may be seen of, whatever state they are in."""
        parts = [part for part in (self.profile, *self.held_to) if part is not None]
        return [
            name
            for name, config in self.servers.items()
            if not config.is_off and all(part.may_hold(name) for part in parts)
        ]

    def offers_content(self, server: str, name: str) -> bool:
        """Return whether a server's prompt or resource is shown to those who reach the server."""
        config = self.servers.get(server)
        return config is not None and not config.is_off and self._in_profiles(server, name)

    def allows(self, server: str, tool: str) -> bool:
        """Whether a tool of this name would be one of those that are offered if its server listed it."""
        config = self.servers.get(server)
        return config is not None and self._fits(config, server, tool)

    def _fits(self, config: ServerConfig, server: str, tool: str) -> bool:
        return config.tools.allows(tool) and self._in_profiles(server, tool)

    def _in_profiles(self, server: str, name: str) -> bool:
        return all(part is None or part.allows(server, name) for part in (self.profile, *self.held_to))
