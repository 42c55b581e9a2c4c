"""The rules that say which servers, tools and contents are shown: configuration, profiles, reaches."""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from smart_mcp_proxy import policy
from smart_mcp_proxy.models import WHOLE, CallVariant, Reach, ToolRecord
from smart_mcp_proxy.names import IDENTITIES, shelf
from smart_mcp_proxy.servers import Profile, ServerConfig

_ACCESS: tuple[CallVariant, ...] = get_args(CallVariant)
"""Each includes those before it."""

ListedTo = Mapping[str, Mapping[str, str]]
"""Items that servers listed to a person: change hashes by name, by server or shelf of one."""


class Rules(NamedTuple):
    """The part of the catalog that configuration, profiles and reaches show: pure decisions."""

    servers: Mapping[str, ServerConfig]
    profile: Profile | None
    access: CallVariant = WHOLE.access
    held_to: tuple[Profile, ...] = ()
    is_narrowed: bool = False
    listed: ListedTo | None = None
    """To the person who looks; None where nobody in particular does."""

    def offers(self, record: ToolRecord) -> bool:
        """Whether a listed tool is shown."""
        config = self.servers.get(record.key.server)
        if config is None or config.is_off:
            return False
        is_theirs = self.listed is None or not config.is_personal or self.lists(record)
        return is_theirs and self._fits(config, *record.key) and policy.is_within(self.access, record.annotations)

    def lists(self, record: ToolRecord) -> bool:
        """Whether exactly this definition was listed to the person who looks."""
        return (self.listed or {}).get(record.key.server, {}).get(record.key.tool) == record.change_hash

    def is_personal(self, server: str) -> bool:
        """Whether a person looks at a server that lists each person something of their own."""
        return self.listed is not None and server in self.servers and self.servers[server].is_personal

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

    def narrow_to_reach(self, reach: Reach, held_to: Profile | None, listed: ListedTo | None = None) -> "Rules":
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
        listed = self.listed if listed is None else listed
        return Rules(servers, self.profile, access, held, is_narrowed=True, listed=listed)

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
        if config is None or config.is_off or not self._in_profiles(server, name):
            return False
        # What is read through a template is in no list; it is asked for on a connection of theirs.
        listed = self.listed or {}
        return not self.is_personal(server) or any(shelf(server, kind) in listed for kind in IDENTITIES)

    def offers_record(self, server: str, record: ToolRecord) -> bool:
        """Return whether a listed prompt, resource or template is shown to those who reach the server."""
        is_theirs = not self.is_personal(server) or self.lists(record)
        return is_theirs and self.offers_content(server, record.key.tool)

    def allows(self, server: str, tool: str) -> bool:
        """Whether a tool of this name would be one of those that are offered if its server listed it."""
        config = self.servers.get(server)
        if config is None or not self._fits(config, server, tool):
            return False
        # Whether somebody to whom nothing was listed yet would see it, nobody knows.
        listed = (self.listed or {}).get(server)
        return listed is None or not self.is_personal(server) or tool in listed

    def may_know(self, server: str, tool: str) -> bool:
        """Whether a tool of this name would be offered, and is known not to be other people's alone."""
        is_theirs = not self.is_personal(server) or tool in (self.listed or {}).get(server, {})
        return is_theirs and self.allows(server, tool)

    def _fits(self, config: ServerConfig, server: str, tool: str) -> bool:
        return config.tools.allows(tool) and self._in_profiles(server, tool)

    def _in_profiles(self, server: str, name: str) -> bool:
        return all(part is None or part.allows(server, name) for part in (self.profile, *self.held_to))
