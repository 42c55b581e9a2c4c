"""A running gateway: its parts, and what its entry points ask of the whole."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from smart_mcp_proxy import __version__
from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.fastmcp_compat.server import AgentServer
from smart_mcp_proxy.gateway.admin.status import GatewayStatus
from smart_mcp_proxy.gateway.admin_parts import Admin, reconfigure
from smart_mcp_proxy.gateway.agent_parts import Requests
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.parts import Base, Lists, Upstreams
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.method_handlers import MethodHandlers
from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurfaces
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.greeting.eras import StdioEras, stdio_eras
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings

if TYPE_CHECKING:
    from fastmcp import FastMCP


class Gateway(msgspec.Struct, frozen=True, eq=False):
    """Single search and call path in front of all configured servers, opened by `open_gateway`.

    Attributes:
        base: Settings, configuration, catalog and events.
        upstreams: The servers' sessions.
        lists: Parts that follow servers' lists.
        requests: The paths of requests to servers.
        admin: Parts for operators.
        surfaces: The gateway's own tools on each view.
        agent: Answers agents.
    """

    base: Base
    upstreams: Upstreams
    lists: Lists
    requests: Requests
    admin: Admin
    surfaces: ToolSurfaces
    agent: Agent

    def __repr__(self) -> str:
        return f"<Gateway {len(self.base.config.servers())} servers, {len(self.base.index)} tools>"

    @property
    def settings(self) -> Settings:
        """Frozen settings."""
        return self.base.settings

    @property
    def catalog(self) -> Catalog:
        """The truth about what servers list."""
        return self.base.catalog

    @property
    def visible(self) -> CatalogView:
        """The view of the whole catalog."""
        return self.lists.views.whole

    @property
    def retrieval(self) -> Retrieval:
        """The search over the whole catalog."""
        return self.surfaces.whole.retrieval

    @property
    def calls(self) -> Calls:
        """The one call path."""
        return self.requests.calls

    @property
    def stdio_eras(self) -> StdioEras:
        """Protocol eras that clients on stdio are offered."""
        is_registering = self.base.config.passthrough is None  # one server passed through: no search changes its list
        return stdio_eras(self.settings.stdio_era, self.settings.routing_type if is_registering else "CALL_TOOL")

    def mcp_server(self) -> "FastMCP":
        """A FastMCP server that agents can be connected to. It lets everyone in."""
        # Here and not above: clients on pipes do without it.
        from smart_mcp_proxy.fastmcp_compat.fastmcp_server import build_server

        return build_server(self.agent_server())

    def agent_server(self) -> AgentServer:
        """The server that answers agents on pipes, behind FastMCP everywhere else."""
        return AgentServer(
            SERVER_NAME,
            __version__,
            self.agent,
            contents=MethodHandlers(self.requests.contents, self.requests.tasks),
            clients=self.requests.clients,
            gateways=self.upstreams.fleet.gateways,
            visiting=self.admin.visitors.track_visit,
        )

    async def serves_at(self, place: str) -> bool:
        """Whether a list of tools is served at `/mcp/{place}`."""
        kind, _, name = place.partition("/")
        if self.base.config.passthrough is not None:
            return False
        if kind == "t":
            return await self.requests.toolsets.serves(name)
        return kind == "p" and bool(self.lists.views.of(name))

    def start_upstreams(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self.upstreams.start.now()

    async def apply(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile] | None = None) -> None:
        """Apply a configuration: only what changed is started, stopped or restarted; None keeps profiles."""
        await reconfigure(self.base, self.upstreams.fleet, self.lists, servers, profiles)

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""
        return await self.lists.presence.wait_settled(timeout_s)

    def is_settled(self) -> bool:
        """Whether every configured server is listed or has failed."""
        return self.lists.presence.is_settled()

    def degraded(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        return self.admin.condition.list_degradations()

    def status(self) -> GatewayStatus:
        """Status for the command line, REST and health checks."""
        admin, catalog, visible = self.admin, self.catalog, self.visible
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            servers=admin.condition.statuses(),
            tools={name: len(visible.of_server(name)) for name in self.base.config.servers()},
            waiting=visible.count_waiting(),
            catalog_tokens=self.retrieval.catalog_tokens(),
            generation=catalog.snapshot.generation,
            degraded=self.degraded(),
            unmatched=admin.unmatched.list_unmatched(),
            embedded=admin.embedding.progress if admin.embedding is not None else None,
            is_loaded=self.lists.index_sync.loaded.is_set(),
            sessions=self.agent.sessions,
            visitors=admin.visitors.list_visitors(),
            gateways=catalog.gateways,
            is_shared=catalog.is_shared,
            clock_ahead_s=catalog.clock_ahead_s,
        )
