"""A running gateway: its parts, and what its entry points ask of the whole."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fastmcp import FastMCP

from smart_mcp_proxy import __version__
from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.fastmcp_compat.server import build_server
from smart_mcp_proxy.gateway.activity.visitors import Visitors
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.admin.page_sessions import PageSessions
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIns
from smart_mcp_proxy.gateway.admin.status import GatewayStatus
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.requests import ContentRequests
from smart_mcp_proxy.gateway.condition import GatewayCondition
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync
from smart_mcp_proxy.gateway.indexing.learning import Learning
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import ListSync
from smart_mcp_proxy.gateway.indexing.unused_config import Unmatched
from smart_mcp_proxy.gateway.observability.metrics import Metrics
from smart_mcp_proxy.gateway.reconfiguration import Reconfiguration
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sandbox import Sandbox
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentHandlers
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup
from smart_mcp_proxy.gateway.sessions.method_handlers import MethodHandlers
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriptions
from smart_mcp_proxy.gateway.sessions.task_handlers import TaskHandlers
from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurfaces
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.upstream_start import UpstreamStart
from smart_mcp_proxy.gateway.visibility.presence import Presence
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.greeting import StdioEras, stdio_eras
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import Fleet


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gateway:
    """Single search and call path in front of all configured servers, opened by `open_gateway`.

    Attributes:
        settings: Frozen settings.
        worker: This process among its workers.
        metrics: Counts activity; None where nothing is counted.
        config: The configuration in force.
        catalog: The truth about what servers list.
        index: Searches the visible tools.
        index_sync: Keeps it equal to the catalog.
        changes: Tell of listings, servers' states and tools that change.
        fleet: The servers' sessions.
        presence: Says why a server lists nothing.
        admission: Limits and breakers of calls.
        tool_lists: What servers have listed of tools.
        content_lists: The same of prompts and resources.
        tool_sync: Lists tools again.
        content_sync: Lists prompts and resources again.
        views: What may be seen, of the whole catalog and of each profile.
        calls: The one call path.
        asks: The one path of prompts, resources and completions.
        clients: The clients that some servers know each of.
        surfaces: The gateway's own tools on each view.
        toolsets: Tools chosen by searches, at addresses of their own.
        content_lookup: Prompts and resources at a path.
        contents: Answers what agents ask of them.
        tasks: Answers what agents ask of tasks.
        subscriptions: Which client hears of which resource.
        agent: Answers agents.
        visitors: Clients without a session.
        sandbox: Runs scripts.
        learning: Learns from use; None where nothing is learned.
        embedding: Embeds tools; None where no vectors rank.
        approvals: What waits for the user.
        management: Changes the servers.
        agent_tokens: Scoped tokens of agents.
        page_sessions: Browsers that are let in to the page.
        server_sign_ins: Sign-ins at servers that a person begins there.
        unmatched: What the configuration names and no server lists.
        condition: States, and why answers are worse than they could be.
        reconfiguration: Puts another configuration in force.
        upstream_start: Decides when the servers start.
    """

    settings: Settings
    worker: Worker
    metrics: Metrics | None
    config: Configuration
    catalog: Catalog
    index: SearchIndex
    index_sync: IndexSync
    changes: Changes
    fleet: Fleet
    presence: Presence
    admission: AdmissionControl
    tool_lists: ListState
    content_lists: ListState
    tool_sync: ListSync
    content_sync: ListSync
    views: Views
    calls: Calls
    asks: ContentRequests
    clients: Clients
    surfaces: ToolSurfaces
    toolsets: Toolsets
    content_lookup: ContentLookup
    contents: ContentHandlers
    tasks: TaskHandlers
    subscriptions: Subscriptions
    agent: Agent
    visitors: Visitors
    sandbox: Sandbox
    learning: Learning | None
    embedding: Embedding | None
    approvals: Approvals
    management: Management
    agent_tokens: AgentTokens
    page_sessions: PageSessions
    server_sign_ins: ServerSignIns
    unmatched: Unmatched
    condition: GatewayCondition
    reconfiguration: Reconfiguration
    upstream_start: UpstreamStart

    def __repr__(self) -> str:
        return f"<Gateway {len(self.config.servers())} servers, {len(self.index)} tools>"

    @property
    def visible(self) -> CatalogView:
        """The view of the whole catalog."""
        return self.views.whole

    @property
    def retrieval(self) -> Retrieval:
        """The search over the whole catalog."""
        return self.surfaces.whole.retrieval

    @property
    def stdio_eras(self) -> StdioEras:
        """Protocol eras that clients on stdio are offered."""
        is_registering = self.config.passthrough is None  # one server passed through: no search changes its list
        return stdio_eras(self.settings.stdio_era, self.settings.routing_type if is_registering else "CALL_TOOL")

    def mcp_server(self) -> FastMCP:
        """A FastMCP server that agents can be connected to. It lets everyone in."""
        parts = (
            self.agent,
            MethodHandlers(self.contents, self.tasks),
            self.clients,
            self.fleet.gateways,
            self.visitors.track_visit,
        )
        return build_server(SERVER_NAME, __version__, *parts)

    async def serves_at(self, place: str) -> bool:
        """Whether a list of tools is served at `/mcp/{place}`."""
        kind, _, name = place.partition("/")
        if self.config.passthrough is not None:
            return False
        return await self.toolsets.serves(name) if kind == "t" else kind == "p" and bool(self.views.of(name))

    def start_upstreams(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self.upstream_start.now()

    async def apply(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile] | None = None) -> None:
        """Apply a configuration: only what changed is started, stopped or restarted; None keeps profiles."""
        await self.reconfiguration.apply(servers, profiles)

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""
        return await self.presence.wait_settled(timeout_s)

    def is_settled(self) -> bool:
        """Whether every configured server is listed or has failed."""
        return self.presence.is_settled()

    def degraded(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        return self.condition.list_degradations()

    def status(self) -> GatewayStatus:
        """Status for the command line, REST and health checks."""
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            servers=self.condition.statuses(),
            tools={name: len(self.visible.of_server(name)) for name in self.config.servers()},
            waiting=self.visible.count_waiting(),
            catalog_tokens=self.retrieval.catalog_tokens(),
            generation=self.catalog.snapshot.generation,
            degraded=self.degraded(),
            unmatched=self.unmatched.list_unmatched(),
            embedded=self.embedding.progress if self.embedding is not None else None,
            is_loaded=self.index_sync.loaded.is_set(),
            sessions=self.agent.sessions,
            visitors=self.visitors.list_visitors(),
            gateways=self.catalog.gateways,
            is_shared=self.catalog.is_shared,
            clock_ahead_s=self.catalog.clock_ahead_s,
        )
