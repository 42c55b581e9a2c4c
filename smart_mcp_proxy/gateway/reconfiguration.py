"""Puts another configuration in force: only what changed is started, stopped or restarted."""

import os
from collections.abc import Mapping

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.events import Event
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync
from smart_mcp_proxy.gateway.indexing.list_sync import ListSync
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.upstream import Fleet


class Reconfiguration:
    """Changes the configuration of the parts that follow it.

    Args:
        config: The configuration in force, replaced here.
        configured: Called with the servers that are worked with, before any of them starts or stops.
        views: Follow it.
        fleet: Starts and stops servers.
        syncs: The workers of the servers' lists.
        index_sync: Brings to the index what became visible or hidden.
        catalog: Forgets servers that no process uses.
        changes: Told once all follow the new configuration.
    """

    def __init__(
        self,
        config: Configuration,
        configured: Event[Mapping[str, ServerConfig]],
        views: Views,
        fleet: Fleet,
        syncs: tuple[ListSync, ...],
        index_sync: IndexSync,
        catalog: Catalog,
        changes: Changes,
    ) -> None:
        self._config = config
        self._configured = configured
        self._views = views
        self._fleet = fleet
        self._syncs = syncs
        self._index_sync = index_sync
        self._catalog = catalog
        self._changes = changes

    async def apply(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile] | None = None) -> None:
        """Apply a configuration; None keeps the profiles."""
        config = self._config
        config.replace(servers, config.profiles() if profiles is None else profiles)
        self._views.reconfigure(config.servers(), config.profiles())
        self._configured(config.servers())
        await self._fleet.apply(config.servers())
        for sync in self._syncs:
            sync.forget(config.servers())
        await self.forget_unused()
        self._changes.announce()  # pins, filters and profiles change lists without any server's doing
        await self._catalog.register_instance(os.getpid(), sorted(config.servers()))

    async def forget_unused(self) -> None:
        """Remove the tools of servers that are neither configured nor in use by another process.

        Raises:
            CatalogError: They cannot be removed now; they stay, unseen.
        """
        await self._catalog.forget_servers(self._config.server_names)
        await self._index_sync.catch_up()
