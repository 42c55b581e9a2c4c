"""Gateway: builds the parts and owns their lifetime."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

from fastmcp import FastMCP

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import CatalogError, ConfigError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.server import build_server
from smart_mcp_proxy.gateway.activity.activity_log import opened_activity_log
from smart_mcp_proxy.gateway.activity.visitors import Visitors
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.admin.status import GatewayStatus
from smart_mcp_proxy.gateway.calls.admission import open_gates
from smart_mcp_proxy.gateway.calls.calls import CallLimits, Calls
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.inputs import Inputs
from smart_mcp_proxy.gateway.calls.request_states import RequestStates
from smart_mcp_proxy.gateway.calls.requests import Asks
from smart_mcp_proxy.gateway.engines import available, lexical_engine, vector_setup
from smart_mcp_proxy.gateway.indexing.content_sync import Shelves
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.gateway.indexing.learning import Learning, opened_learning
from smart_mcp_proxy.gateway.indexing.tool_sync import Indexer
from smart_mcp_proxy.gateway.indexing.unused_config import Unmatched
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sandbox import Sandbox
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentsDoor
from smart_mcp_proxy.gateway.sessions.contents_changes import ContentsChanges
from smart_mcp_proxy.gateway.sessions.list_changed_hook import ListChangedHook
from smart_mcp_proxy.gateway.sessions.passthrough import Passthrough
from smart_mcp_proxy.gateway.sessions.profile_surfaces import Fronts
from smart_mcp_proxy.gateway.sessions.routing import Routing
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriptions
from smart_mcp_proxy.gateway.sessions.tool_surface import Front
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.client_behavior import Conduct
from smart_mcp_proxy.gateway.shared.tool_offer import Offers, OneOffer, activity_of
from smart_mcp_proxy.gateway.storage import opened_catalog
from smart_mcp_proxy.gateway.tools.builtin_tools import own_tools
from smart_mcp_proxy.gateway.tools.code_execution import CodeExecution
from smart_mcp_proxy.gateway.tools.proxy import proxy_tools
from smart_mcp_proxy.gateway.tools.upstream_servers import UpstreamServers
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.gateway.visibility.presence import Presence
from smart_mcp_proxy.gateway.visibility.visibility import Visible
from smart_mcp_proxy.models import Principal, Reach, ServerStatus
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import Profile, ServerConfig, ServerEdits, with_inherited
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import Dialer, Fleet, SignIns, TlsContext

__all__ = ["Gateway", "GatewayStatus"]

START_DELAY_S = 0.3
"""Upstreams start when the first client has been answered, or after this time. Source: contract.md, Processes."""
ANSWER_S = 0.05
"""Time that the first answer gets to leave: its handler reports it before it is written."""
HEARTBEAT_S = 10.0

log = get_logger("gateway")


class Gateway:
    """One search and one call path in front of all configured servers.

    Open it with `async with`; upstreams start in the background afterwards (see `start_upstreams`).

    Args:
        settings: Frozen settings.
        servers: Configured servers by name.
        environ: What `${VAR}` in server entries expands from.
        passthrough: The one server whose tools agents see under their own names, instead of the gateway's tools.
        clock: Monotonic seconds.

    Raises:
        ConfigError: `passthrough` is not configured.
    """

    def __init__(
        self,
        settings: Settings,
        servers: Mapping[str, ServerConfig],
        *,
        environ: Mapping[str, str],
        profiles: Mapping[str, Profile] = MappingProxyType({}),
        passthrough: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if passthrough is not None and passthrough not in servers:
            raise ConfigError(
                f"Server '{passthrough}' is not configured, so it cannot be passed through.",
                hint=f"Known: {', '.join(sorted(servers)) or 'none'}.",
            )
        self.settings = settings
        self._available, self._unavailable = available(settings, environ)
        self._passthrough = passthrough
        self._profiles = profiles
        self._configured: frozenset[str] = frozenset(servers)
        self._servers = self._served(servers)
        self._environ = environ
        self._clock = clock
        self._stack = AsyncExitStack()
        self._may_start = asyncio.Event()
        self.index = SearchIndex(lexical_engine(self._available))

    def __repr__(self) -> str:
        return f"<Gateway {len(self._servers)} servers, {len(self.index)} tools>"

    async def __aenter__(self) -> "Gateway":
        async with AsyncExitStack() as stack:
            settings = self.settings
            self.catalog = await stack.enter_async_context(opened_catalog(settings))
            self.recorder = await stack.enter_async_context(opened_activity_log(self.catalog, settings))
            self.visible = self._look()
            self.approvals = Approvals(self.catalog, lambda: self._servers, settings.trust, self._follow, self.recorder)
            self.indexer = Indexer(
                self.catalog,
                self.index,
                self.visible.sees,
                self._clock,
                review=self.approvals.review,
                uses_examples=settings.learn,
            )
            self.shelves = Shelves(self.catalog, self.approvals.review, self.indexer.catch_up)
            self.subscriptions = Subscriptions(self.shelves)
            self.learning: Learning | None = None
            if settings.learn:
                opening = opened_learning(self.catalog, self.indexer, self._clock)
                self.learning = await stack.enter_async_context(opening)
            tls = TlsContext(self._environ)
            sign_ins = SignIns(settings.data_dir, tls=tls)
            dialer = await stack.enter_async_context(Dialer(settings.max_message_bytes, sign_ins, tls))
            self.sandbox = await stack.enter_async_context(Sandbox(settings.code_parallel, dialer.watchdog))
            self.gates = open_gates(settings, self._servers, self._clock)
            self.fleet = Fleet(
                environ=self._environ,
                on_change=self._hearing(),
                on_tools_changed=self.indexer.tools_changed,
                on_contents_changed=self.shelves.changed,
                on_resource_updated=self.subscriptions.updated,
                start_parallel=settings.start_parallel,
                open_link=dialer,
            )
            self.presence = Presence(self.fleet, self.indexer, clock=self._clock)
            await self.fleet.apply(self._servers)
            for part in (self.fleet, self.indexer, self.shelves, self.subscriptions):
                stack.push_async_callback(part.close)
            self.embedding = self._keeper_of_vectors()
            if self.embedding is not None:
                stack.push_async_callback(self.embedding.close)
            command = settings.list_changed_exec
            self._hook = ListChangedHook(command, self._environ, dialer.watchdog) if command else None
            if self._hook is not None:
                stack.push_async_callback(self._hook.close)
            self._assemble()
            await self.catalog.register_instance(os.getpid(), sorted(self._servers))
            self.indexer.start(self.fleet)
            self.shelves.start(self.fleet)
            tellers = (self._content_changes.announce, self.agent.announce_changes, self.unmatched.tell)
            background = [self._start(), self._beat(), sign_ins.watch(self.fleet.retry)]
            background += [tell(self.indexer.next_change) for tell in tellers]
            for work in background:
                stack.callback(spawn(work, "gateway").cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def _hearing(self) -> Callable[[ServerStatus], None]:
        """Everybody who hears of a change of a server's state."""
        return self.subscriptions.hearing(self.gates.hearing(self.shelves.hearing(self.indexer.status_changed)))

    def _assemble(self) -> None:
        settings = self.settings
        edits = ServerEdits(settings, Path.cwd())
        self.management = Management(
            edits, self.fleet, self.visible, self.indexer, self.apply, self.recorder.record, self.gates.shown
        )
        self.unmatched = Unmatched(self.catalog, lambda: (self._servers, self._profiles), self.indexer.is_fresh)
        self.outputs = Outputs(self._clock)
        self.agent_tokens = AgentTokens(self.catalog)
        self.inputs = Inputs(RequestStates(settings.data_dir), self._servers, is_cleaned=settings.clean_results)
        self.clients = Clients(self.fleet, self.recorder, self._contents_visible, settings)
        links = Links(self.catalog)
        limits = CallLimits.of(settings, is_passing_through=self._passthrough is not None)
        self.calls = Calls(
            self.visible,
            self.fleet,
            self.outputs,
            self.recorder,
            limits,
            self._clock,
            learning=self.learning,
            gates=self.gates,
            lists=self.indexer,
            inputs=self.inputs,
            clients=self.clients,
            links=links,
        )
        self.toolsets = Toolsets(self.catalog, self._visible_in, self.calls, self._clock)
        parts = (self.shelves, self.fleet, self.gates, self.recorder, limits, self._clock)
        self.asks = Asks(*parts, inputs=self.inputs, clients=self.clients, links=links)
        self.fronts = Fronts(
            self.visible,
            self._look,
            self._front,
            self._profiles,
        )
        self.retrieval = self.fronts.whole.retrieval
        reading = (self._contents_visible, self.shelves, self.fleet, self.asks, settings.tool_name_limit)
        self.contents = ContentsDoor(*reading, self._passthrough, self.subscriptions)
        self.subscriptions.start(self.fleet, self.asks, self.contents.find)
        self.visitors, conduct = Visitors(self.recorder), Conduct(self._clock)
        self.agent = Agent(
            self._offers(conduct),
            self._start_soon,
            conduct,
            on_list_changed=None if self._hook is None else self._hook.fire,
            on_session=[lambda session: self.recorder.record(activity_of(session))],
            may_ask=lambda: self.inputs.is_on,
            may_need_line=lambda: bool(self.visible.per_client),
        )
        self._content_changes = ContentsChanges(self.contents.contents_at, self.agent.list_changes)
        self.agent.on_session += [self._content_changes.begin, self.clients.begin]
        self.agent.list_changes.watching = self.contents.watching

    def _front(self, visible: Visible, profile: str) -> Front:
        """The gateway's own tools working on what is visible in one part of the catalog."""
        settings = self.settings
        retrieval = Retrieval(
            visible,
            self.catalog,
            self.index,
            self.indexer,
            self._statuses,
            self.recorder,
            self.degraded,
            learning=self.learning,
        )
        code = CodeExecution(self.sandbox, self.calls, visible, self.outputs, self.recorder, self._available)
        more = (
            # Not in a part of the catalog: whoever is given a part must not reach beyond it.
            *([UpstreamServers(self.management, settings)] if settings.manage and visible is self.visible else ()),
            *([code] if self._available.code != "off" else ()),
            *proxy_tools(settings, self.catalog, visible, self.calls, self.asks, self.recorder),
        )
        own = own_tools(self.settings, visible, retrieval, self.calls, self.outputs, more)
        make_toolset = partial(self.toolsets.make, profile=profile)
        return Front(visible, retrieval, self.calls, own, make_toolset, self.settings.list_all_below_tokens)

    def _look(self, profile: Profile | None = None) -> Visible:
        """The tools that the configuration shows, of all or of a profile."""
        return Visible(self.catalog, self._servers, self.index.nearest_names, profile, self._absence)

    async def _absence(self, server: str) -> UpstreamError | None:
        return await self.presence.absence(server)

    def _visible_in(self, profile: str, reach: Reach) -> Visible | None:
        visible = self.fronts.visible(profile)
        return None if visible is None else self.fronts.narrowed(visible, reach)

    def _contents_visible(self, path: str, principal: Principal) -> Visible | None:
        return self.fronts.contents_at(path, principal.reach)

    def _offers(self, conduct: Conduct) -> Offers:
        settings = self.settings
        if self._passthrough is not None:
            return OneOffer(partial(self._passed_through, self._passthrough), is_changing=True)
        return Routing(
            settings.routing_type,
            self.fronts.of,
            self.toolsets.at,
            conduct,
            limit=settings.tools_limit,
            clock=self._clock,
            is_listing_more=lambda: settings.list_all_below_tokens > 0 or self.fronts.is_pinning,
        )

    def _passed_through(self, server: str, reach: Reach) -> Passthrough:
        return Passthrough(server, self.fronts.narrowed(self.visible, reach), self.calls, self.indexer, self.is_settled)

    def _keeper_of_vectors(self) -> Embedding | None:
        """Create the worker that embeds tools, if the settings ask for one; not started yet."""
        if self.settings.embedder == "BM25":
            return None
        setup = vector_setup(self.settings, self._available, self._environ)
        return Embedding(self.index, self.catalog, self.indexer, self.settings.data_dir, setup, clock=self._clock)

    def mcp_server(self) -> FastMCP:
        """A FastMCP server that agents can be connected to. It lets everyone in."""
        parts = (self.agent, self.contents, self.clients, self.fleet.gateways, self.visitors.visiting)
        return build_server(SERVER_NAME, __version__, *parts)

    async def serves_at(self, place: str) -> bool:
        """Whether a list of tools is served at `/mcp/{place}`."""
        kind, _, name = place.partition("/")
        if self._passthrough is not None:
            return False
        return await self.toolsets.serves(name) if kind == "t" else kind == "p" and self.fronts.of(name) is not None

    def start_upstreams(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self._may_start.set()

    async def apply(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile] | None = None) -> None:
        """Apply a configuration: only what changed is started, stopped or restarted; None keeps profiles."""
        self._configured = frozenset(servers)
        self._servers = self._served(servers)
        if profiles is not None:
            self._profiles = profiles
        self.fronts.reconfigure(self._servers, self._profiles)
        self.gates.configure(self._servers)
        self.inputs.configure(self._servers)
        await self.fleet.apply(self._servers)
        self.shelves.forget(self._servers)
        await self.indexer.forget(self._configured)
        self.indexer.announce()  # pins, filters and profiles change lists without any server's doing
        await self.catalog.register_instance(os.getpid(), sorted(self._servers))

    def _served(self, servers: Mapping[str, ServerConfig]) -> dict[str, ServerConfig]:
        """Those of the configured servers that this gateway works with."""
        chosen = {name: config for name, config in servers.items() if self._passthrough in (None, name)}
        return with_inherited(chosen, self.settings.inherit_env)

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""
        return await self.presence.wait_settled(timeout_s)

    def status(self) -> GatewayStatus:
        """Status for the command line, REST and health checks."""
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            servers=self._statuses(),
            tools={name: len(self.visible.of_server(name)) for name in self._servers},
            waiting=self.visible.waiting(),
            catalog_tokens=self.retrieval.catalog_tokens(),
            generation=self.catalog.snapshot.generation,
            degraded=self.degraded(),
            unmatched=self.unmatched.found(),
            embedded=self.embedding.progress if self.embedding is not None else None,
            is_loaded=self.indexer.loaded.is_set(),
            sessions=self.agent.sessions,
            visitors=self.visitors.listed(),
        )

    def degraded(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        vectors = self.embedding.degraded if self.embedding is not None else ()
        return (*self._unavailable, *vectors, *filter(None, (self.catalog.problem, self.approvals.problem())))

    def is_settled(self) -> bool:
        """Whether every configured server is listed or has failed."""
        return self.presence.is_settled()

    def _statuses(self) -> tuple[ServerStatus, ...]:
        return tuple([self.gates.shown(upstream.status) for upstream in self.fleet])

    async def _follow(self) -> None:
        await self.indexer.follow()

    def _start_soon(self) -> None:
        asyncio.get_running_loop().call_later(ANSWER_S, self.start_upstreams)

    async def _start(self) -> None:
        try:
            await asyncio.wait_for(self._may_start.wait(), START_DELAY_S)
        except TimeoutError:
            log.debug("no client within %.1f s; starting upstreams", START_DELAY_S)
        if self.embedding is not None:
            self.embedding.start()
        await self.fleet.start()
        try:
            await self.indexer.forget(self._configured)
        except CatalogError as exc:
            log.warning("tools of servers that are no longer configured stay in the catalog: %s", exc)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self.catalog.heartbeat()
            except CatalogError as exc:
                log.warning("other processes cannot see that this one lives: %s", exc)
