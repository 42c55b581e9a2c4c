"""Configuration without effect: a pin or a filter that names what no server lists."""

import asyncio
import fnmatch
from collections.abc import Callable, Collection, Iterator, Mapping, Set

from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.gateway.shared.changes import wait_change_settled
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.telemetry import get_logger

log = get_logger("config")

Configured = tuple[Mapping[str, ServerConfig], Mapping[str, Profile]]


def find_unmatched(
    snapshot: Snapshot, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile], listed: Collection[str]
) -> Iterator[str]:
    """A sentence for each pin and filter that fits no tool; tools that wait for approval are tools.

    Args:
        snapshot: The catalog.
        servers: The configuration, by name.
        profiles: Likewise.
        listed: Servers that have listed their tools; of the others nobody knows.
    """
    for name in filter(servers.__contains__, listed):
        yield from _check_server_names(snapshot, servers[name])
    for profile in profiles.values():
        its = {name for name in profile.servers or servers if name in servers}
        if its.issubset(listed):
            yield from _check_profile_names(snapshot, profile, its)


def _check_server_names(snapshot: Snapshot, config: ServerConfig) -> Iterator[str]:
    globs = [glob for glob in (*config.tools.include, *config.tools.exclude) if glob != "*"]
    if not (config.pin or globs):
        return  # as nearly always: thousands of names are not put together for nothing
    records = snapshot.collect_server_tools(config.name)
    own = {record.key.tool for record in records}
    pins = [pin for pin in config.pin if pin not in own | _full_names(records)]
    see = f"mcpproxy tool list --server {shell_word(config.name)}"
    yield from _format_unmatched(f"Server '{config.name}'", pins, [glob for glob in globs if not _fits(glob, own)], see)


def _check_profile_names(snapshot: Snapshot, profile: Profile, servers: Set[str]) -> Iterator[str]:
    globs = [glob for glob in profile.tools if glob != "*"]
    if not (profile.pin or globs):
        return
    records = snapshot.collect_server_tools(*servers)
    full = _full_names(records)
    pins = [pin for pin in profile.pin if pin not in full]
    names = {name for record in records for name in (record.key.tool, str(record.key))}
    globs = [glob for glob in globs if not _fits(glob, names)]
    yield from _format_unmatched(f"Profile '{profile.name}'", pins, globs, "mcpproxy tool list")


def _full_names(records: Collection[ToolRecord]) -> set[str]:
    """Their names that are no other tool's: canonical and listed ones."""
    return {name for record in records for name in (str(record.key), record.listed_name)}


def _fits(glob: str, names: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names)


def _format_unmatched(whose: str, pins: Collection[str], globs: Collection[str], see: str) -> Iterator[str]:
    for key, texts in (("pin", pins), ("tools", globs)):
        for text in texts:
            yield f"{whose}: {text!r} in its '{key}' fits no tool. Correct it or take it out. All names: {see}"


class Unmatched:
    """Looks for them whenever tools are listed.

    Args:
        catalog: Holds what was listed.
        configured: The servers and the profiles; a look-up that gives the same objects until they change.
        is_listed: Whether a server has listed its tools since it was connected.
    """

    def __init__(
        self, catalog: Catalog, configured: Callable[[], Configured], is_listed: Callable[[str], bool]
    ) -> None:
        self._catalog = catalog
        self._configured = configured
        self._is_listed = is_listed
        self._looked_at: tuple[object, ...] = (None, None, None)
        self._listed: tuple[str, ...] = ()
        self._found: tuple[str, ...] = ()
        self._told: set[str] = set()

    def list_unmatched(self) -> tuple[str, ...]:
        """A sentence for each, as of now."""
        snapshot, (servers, profiles) = self._catalog.snapshot, self._configured()
        listed = tuple(filter(self._is_listed, servers))
        now = (snapshot, servers, profiles)
        if listed != self._listed or any(one is not other for one, other in zip(now, self._looked_at, strict=True)):
            self._found = tuple(find_unmatched(snapshot, servers, profiles, listed))
            self._looked_at, self._listed = now, listed
        return self._found

    async def tell(self, changes: Callable[[], asyncio.Event]) -> None:
        """Logs each of them once; never returns.

        Args:
            changes: An event that is set when the catalog or a server changes next.
        """
        while True:
            next_change = changes()
            for sentence in self.list_unmatched():
                if sentence not in self._told:
                    self._told.add(sentence)
                    log.warning("%s", sentence)
            await wait_change_settled(next_change)
