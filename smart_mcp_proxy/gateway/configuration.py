"""The servers and profiles that a gateway works with at present."""

from collections.abc import Collection, Mapping

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import Profile, ServerConfig, isolate, with_inherited, with_own_processes
from smart_mcp_proxy.servers.isolation import IsolationDefault
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import find_way


class Configuration:
    """The configuration in force.

    Args:
        settings: Frozen settings.
        servers: Configured servers by name.
        profiles: By name.
        passthrough: The one server that is worked with; None for all.
        separates: Whether clients of different places share the servers: those that depend on one get a process each.

    Attributes:
        lacks_sandbox: Whether servers run unconfined since the system has no sandbox.

    Raises:
        ConfigError: `passthrough` is not configured, or its entry cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        servers: Mapping[str, ServerConfig],
        profiles: Mapping[str, Profile],
        passthrough: str | None,
        *,
        separates: bool = False,
    ) -> None:
        if passthrough is not None and passthrough not in servers:
            raise ConfigError(
                f"Server '{passthrough}' is not configured, so it cannot be passed through.",
                hint=f"Known: {', '.join(sorted(servers)) or 'none'}.",
            )
        if passthrough is not None and (refusal := servers[passthrough].refusal) is not None:
            raise ConfigError(refusal[0], hint=refusal[1])
        self.passthrough = passthrough
        self._separates = separates
        self._inherited = settings.inherit_env
        self.lacks_sandbox = settings.isolation == "auto" and find_way() is None
        self._isolation: IsolationDefault = "none" if self.lacks_sandbox else settings.isolation
        self._known: Mapping[str, str] = {}
        self._altered: Collection[str] = ()
        self.server_names: frozenset[str]
        """Names of all configured servers, those that are not worked with included."""
        self._chosen: Mapping[str, ServerConfig]
        self._servers: Mapping[str, ServerConfig]
        self._profiles: Mapping[str, Profile]
        self.replace(servers, profiles)

    def __repr__(self) -> str:
        return f"<Configuration of {len(self._servers)} servers, {len(self._profiles)} profiles>"

    def replace(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile]) -> None:
        """Put another configuration in force."""
        self.server_names = frozenset(servers)
        chosen = {name: config for name, config in servers.items() if self.passthrough in (None, name)}
        separated = with_own_processes(chosen) if self._separates else chosen
        self._chosen = with_inherited(separated, self._inherited)
        self._servers = isolate(self._chosen, self._isolation, self._known)
        self._profiles = profiles

    def remember(self, known: Mapping[str, str], altered: Collection[str]) -> None:
        """Leave servers as they are that ran before there was a sandbox.

        Args:
            known: Digests of their programs, by server.
            altered: Servers of which something else than a gateway has written that.
        """
        self._known, self._altered = known, altered
        self._servers = isolate(self._chosen, self._isolation, known)

    def list_altered(self) -> list[str]:
        """List servers that are taken for new, since something else has written that they are known."""
        return [name for name, each in self._chosen.items() if name in self._altered and each.isolation.mode is None]

    def servers(self) -> Mapping[str, ServerConfig]:
        """Servers that are worked with, by name; the same object until the configuration changes."""
        return self._servers

    def profiles(self) -> Mapping[str, Profile]:
        """Profiles by name; the same object until the configuration changes."""
        return self._profiles
