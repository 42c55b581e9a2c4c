"""Gateway: builds the parts and owns their lifetime."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from fastmcp import FastMCP

from smart_mcp_proxy import __version__
from smart_mcp_proxy.catalog import Catalog, Lesson
from smart_mcp_proxy.errors import CatalogError, ConfigError, MissingExtraError
from smart_mcp_proxy.fastmcp_compat.server import build_server
from smart_mcp_proxy.gateway.agent import Agent
from smart_mcp_proxy.gateway.calls import CallLimits, Calls
from smart_mcp_proxy.gateway.conduct import Conduct
from smart_mcp_proxy.gateway.embedding import Embedding, VectorSetup
from smart_mcp_proxy.gateway.engines import lexical_engine, vector_engine
from smart_mcp_proxy.gateway.front import Front
from smart_mcp_proxy.gateway.fronts import Fronts
from smart_mcp_proxy.gateway.hook import ListChangedHook
from smart_mcp_proxy.gateway.indexer import Indexer
from smart_mcp_proxy.gateway.learning import Learning
from smart_mcp_proxy.gateway.offer import Offers, OneOffer
from smart_mcp_proxy.gateway.outputs import Outputs
from smart_mcp_proxy.gateway.passthrough import Passthrough
from smart_mcp_proxy.gateway.recorder import Recorder
from smart_mcp_proxy.gateway.results import SERVER_NAME
from smart_mcp_proxy.gateway.retrieval import Retrieval
from smart_mcp_proxy.gateway.routing import Routing
from smart_mcp_proxy.gateway.tools.call_tool import CallToolDestructive, CallToolRead, CallToolWrite
from smart_mcp_proxy.gateway.tools.describe_tool import DescribeTool
from smart_mcp_proxy.gateway.tools.own import OwnTools
from smart_mcp_proxy.gateway.tools.read_output import ReadOutput
from smart_mcp_proxy.gateway.tools.retrieve_tools import RetrieveTools
from smart_mcp_proxy.gateway.visible import Visible
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.embedders import open_embedder, require_packages
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import Dialer, Fleet

__all__ = ["Gateway", "GatewayStatus"]

START_DELAY_S = 0.3
"""Upstreams start when the first client has been answered, or after this time. Source: contract.md, Processes."""
ANSWER_S = 0.05
"""Time that the first answer gets to leave: its handler reports it before it is written."""
HEARTBEAT_S = 10.0

log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The gateway at a glance.

    Attributes:
        version: Ours.
        pid: Process id.
        servers: Every configured server.
        tools: Visible tools by server.
        catalog_tokens: Estimated tokens of all visible definitions.
        generation: Of the catalog.
        degraded: Why answers are worse than the settings ask for.
        is_loaded: Whether the stored index serves.
    """

    version: str
    pid: int
    servers: tuple[ServerStatus, ...]
    tools: Mapping[str, int]
    catalog_tokens: int
    generation: int
    degraded: tuple[str, ...]
    is_loaded: bool


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
        self._available, self._unavailable = _available(settings, environ)
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
            self.catalog = await stack.enter_async_context(
                Catalog.open(settings.data_dir, name_limit=settings.tool_name_limit, reset=settings.reset_data)
            )
            self.recorder = await stack.enter_async_context(Recorder(self.catalog.append_activity))
            self.visible = Visible(self.catalog, self._servers, self.index.nearest_names)
            self.indexer = Indexer(
                self.catalog, self.index, self.visible.sees, self._clock, uses_examples=settings.learn
            )
            self.learning = await stack.enter_async_context(self._opened_learning()) if settings.learn else None
            dialer = await stack.enter_async_context(Dialer(settings.max_message_bytes))
            self.fleet = Fleet(
                environ=self._environ,
                on_change=self.indexer.status_changed,
                on_tools_changed=self.indexer.tools_changed,
                start_parallel=settings.start_parallel,
                open_link=dialer,
            )
            await self.fleet.apply(self._servers)
            stack.push_async_callback(self.fleet.close)
            stack.push_async_callback(self.indexer.close)
            self.embedding = self._keeper_of_vectors()
            if self.embedding is not None:
                stack.push_async_callback(self.embedding.close)
            command = settings.list_changed_exec
            self._hook = ListChangedHook(command, self._environ) if command else None
            if self._hook is not None:
                stack.push_async_callback(self._hook.close)
            self._assemble()
            await self.catalog.register_instance(os.getpid(), sorted(self._servers))
            self.indexer.start(self.fleet)
            background = [self._start(), self._beat()]
            if self.agent.offers.is_changing:
                background.append(self.agent.announce_changes(self.indexer.next_change))
            for work in background:
                stack.callback(spawn(work, "gateway").cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def _assemble(self) -> None:
        settings = self.settings
        self.outputs = Outputs(self._clock)
        self.calls = Calls(
            self.visible,
            self.fleet,
            self.outputs,
            self.recorder,
            # What is passed through is not cut: nothing would be listed to read the rest with.
            CallLimits(settings.intent_strict, 0 if self._passthrough else settings.truncate_output_len or 0),
            self._clock,
            learning=self.learning,
        )
        self.fronts = Fronts(
            self.visible,
            lambda profile: Visible(self.catalog, self._servers, self.index.nearest_names, profile),
            self._front,
            self._profiles,
        )
        self.retrieval = self.fronts.whole.retrieval
        conduct = Conduct(self._clock)
        self.agent = Agent(
            self._offers(conduct),
            self._start_soon,
            conduct,
            on_list_changed=None if self._hook is None else self._hook.fire,
        )

    def _front(self, visible: Visible) -> Front:
        """The gateway's own tools working on what is visible in one part of the catalog."""
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
        own = OwnTools(
            [
                RetrieveTools(retrieval, self.settings.top_k),
                DescribeTool(visible, retrieval),
                *(tool(self.calls, visible) for tool in (CallToolRead, CallToolWrite, CallToolDestructive)),
                ReadOutput(self.outputs),
            ]
        )
        return Front(visible, retrieval, self.calls, own, self.settings.list_all_below_tokens)

    def _offers(self, conduct: Conduct) -> Offers:
        settings = self.settings
        if self._passthrough is not None:
            offer = Passthrough(self._passthrough, self.visible, self.calls, self.indexer, self.is_settled)
            return OneOffer(offer, is_changing=True)
        is_pinning = any(config.pin for config in self._servers.values()) or any(
            profile.pin for profile in self._profiles.values()
        )
        return Routing(
            settings.routing_type,
            self.fronts.whole,
            self.fronts.of,
            conduct,
            limit=settings.tools_limit,
            clock=self._clock,
            is_changing=settings.routing_type != "CALL_TOOL" or is_pinning or settings.list_all_below_tokens > 0,
        )

    def _keeper_of_vectors(self) -> Embedding | None:
        """What lets vectors rank, if the settings ask for it; it starts after the first answer."""
        settings = self.settings
        if settings.embedder == "BM25":
            return None
        setup = VectorSetup(partial(open_embedder, settings, self._environ), partial(vector_engine, self._available))
        return Embedding(self.index, self.catalog, self.indexer, settings.data_dir, setup, clock=self._clock)

    @asynccontextmanager
    async def _opened_learning(self) -> AsyncIterator[Learning]:
        """What learns from use while open; its lessons are stored off the call path and searched with at once."""

        async def store(lessons: Sequence[Lesson]) -> None:
            await self.catalog.learn(lessons)
            await self.indexer.follow()

        async with Recorder(store, noun="lessons from use") as recorder:
            yield Learning(recorder.record, self._clock)

    def mcp_server(self, *, token: str | None = None) -> FastMCP:
        """A FastMCP server that agents can be connected to; `token` protects its HTTP endpoints."""
        return build_server(SERVER_NAME, __version__, self.agent.offers.instructions, self.agent, token=token)

    async def serves_at(self, place: str) -> bool:
        """Whether a list of tools is served at `/mcp/{place}`."""
        kind, _, name = place.partition("/")
        return self._passthrough is None and kind == "p" and self.fronts.of(name) is not None

    def start_upstreams(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self._may_start.set()

    async def apply(self, servers: Mapping[str, ServerConfig], profiles: Mapping[str, Profile] | None = None) -> None:
        """Makes these the configuration: starts, stops and restarts only what changed; None leaves the profiles."""
        self._configured = frozenset(servers)
        self._servers = self._served(servers)
        if profiles is not None:
            self._profiles = profiles
        self.fronts.reconfigure(self._servers, self._profiles)
        await self.fleet.apply(self._servers)
        await self.indexer.forget(self._configured)
        await self.catalog.register_instance(os.getpid(), sorted(self._servers))

    def _served(self, servers: Mapping[str, ServerConfig]) -> dict[str, ServerConfig]:
        """Those of the configured servers that this gateway works with."""
        return {name: config for name, config in servers.items() if self._passthrough in (None, name)}

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""

        async def settled() -> None:
            while not self.is_settled():
                await self.indexer.wait_changed()

        try:
            await asyncio.wait_for(settled(), timeout_s)
        except TimeoutError:
            return False
        return True

    def status(self) -> GatewayStatus:
        """What the command line, REST and health checks show."""
        tools = dict.fromkeys(self._servers, 0)
        for record in self.visible.records():
            tools[record.key.server] += 1
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            servers=self._statuses(),
            tools=tools,
            catalog_tokens=self.retrieval.catalog_tokens(),
            generation=self.catalog.snapshot.generation,
            degraded=self.degraded(),
            is_loaded=self.indexer.loaded.is_set(),
        )

    def degraded(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        vectors = self.embedding.degraded if self.embedding is not None else ()
        return (*self._unavailable, *vectors, *((self.catalog.problem,) if self.catalog.problem else ()))

    def is_settled(self) -> bool:
        """Whether every configured server is listed or has failed."""
        return all(map(self._is_done, self._statuses()))

    def _statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(upstream.status for upstream in self.fleet)

    def _is_done(self, status: ServerStatus) -> bool:
        if status.state is ServerState.READY:
            return self.indexer.is_done(status.name)
        return status.state not in (ServerState.CONNECTING, ServerState.DISCONNECTED, ServerState.AUTHENTICATING)

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


def _available(settings: Settings, environ: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """The settings with what is there instead of what is not, and what that is.

    Raises:
        MissingExtraError: Something is not there, and `MCPPROXY_STRICT=true`.
    """
    reasons = []
    try:
        if settings.strict and settings.embedder != "BM25":
            require_packages(settings, environ)
        lexical_engine(settings)
    except MissingExtraError as exc:
        if settings.strict:
            raise
        settings = settings.model_copy(update={"bm25_engine": "builtin"})
        reasons.append(f"{exc.message}; until then the builtin engine ranks")
    return settings, tuple(reasons)
