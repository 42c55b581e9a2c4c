"""Assembly of a gateway: its parts in dependency order, then its background work."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log
from smart_mcp_proxy.gateway.activity.visitors import Visitors
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens
from smart_mcp_proxy.gateway.admin.page_sessions import PageSessions
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIns
from smart_mcp_proxy.gateway.admin.sign_in_progress import sign_in_progress
from smart_mcp_proxy.gateway.agent_parts import Requests, open_agent, open_requests
from smart_mcp_proxy.gateway.calls.state_key import StateKey
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.engines import available
from smart_mcp_proxy.gateway.gateway import Gateway
from smart_mcp_proxy.gateway.indexing.unused_config import Unmatched
from smart_mcp_proxy.gateway.observability.choose import create_metrics, open_tracing
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.gateway.parts import (
    Admin,
    Base,
    ListParts,
    Upstreams,
    open_admin,
    open_lists,
    open_upstreams,
)
from smart_mcp_proxy.gateway.retrieval.kinds import KindSearch
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.contents_changes import ContentsChanges
from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurfaces
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.shared_sign_ins import require_secret_key
from smart_mcp_proxy.gateway.storage import open_gateway_catalog
from smart_mcp_proxy.gateway.tools.builtin_tools import ToolParts
from smart_mcp_proxy.gateway.upstream_start import UpstreamStart
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, spawn

HEARTBEAT_S = 10.0

log = get_logger("gateway")


@asynccontextmanager
async def open_gateway(  # noqa: PLR0913  (what is given to it is made elsewhere)
    settings: Settings,
    servers: Mapping[str, ServerConfig],
    *,
    environ: Mapping[str, str],
    profiles: Mapping[str, Profile] = MappingProxyType({}),
    passthrough: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    worker: Worker = ALONE,
    serves: bool = True,
    tracing: Tracing | None = None,
) -> AsyncIterator[Gateway]:
    """Open a gateway; its upstreams start in the background afterwards (see `Gateway.start_upstreams`).

    Args:
        settings: Frozen settings.
        servers: Configured servers by name.
        environ: What `${VAR}` in server entries expands from.
        profiles: Configured profiles by name.
        passthrough: The one server whose tools agents see under their own names, instead of the gateway's tools.
        clock: Monotonic seconds.
        worker: This process among its workers.
        serves: Whether agents call through it; other gateways on its store then leave it a share of the limits.
        tracing: Makes spans of requests; None for what the environment asks for.

    Raises:
        ConfigError: `passthrough` is not configured, the data directory or database cannot be used, or sign-ins to
            keep in it lack a key.
        CatalogError: The catalog stays locked.
    """
    config = Configuration(settings, servers, profiles, passthrough)
    require_secret_key(settings, config.servers().values())
    usable, unavailable = available(settings, environ)
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_gateway_catalog(settings))
        metrics = create_metrics(settings, config.servers)
        recorder = await stack.enter_async_context(open_activity_log(catalog, settings, metrics))
        if tracing is None and serves:
            tracing = await stack.enter_async_context(open_tracing(environ, is_strict=settings.strict))
        base = Base(
            settings, usable, config, environ, clock, catalog, recorder, worker, tracing=tracing, metrics=metrics
        )
        upstreams = await open_upstreams(base, stack)
        lists = await open_lists(base, upstreams, stack)
        requests = await open_requests(base, upstreams, lists, stack)
        admin = open_admin(base, unavailable, upstreams, lists, stack)
        gateway = _assemble(base, upstreams, lists, requests, admin, stack)
        await upstreams.fleet.apply(config.servers())
        await catalog.register_instance(os.getpid(), sorted(config.servers()), serves=serves)
        _divide(gateway)
        lists.index_sync.start()
        announcer = ContentsChanges(requests.content_lookup.at, gateway.agent.list_changes)
        for begin in (announcer.begin, requests.clients.begin):
            base.session_opened.subscribe(begin)
        for work in _background(gateway, upstreams, requests, announcer):
            stack.callback(spawn(work, "gateway").cancel)
        yield gateway


def _assemble(
    base: Base, upstreams: Upstreams, lists: ListParts, requests: Requests, admin: Admin, stack: AsyncExitStack
) -> Gateway:
    settings, config, catalog, views = base.settings, base.config, base.catalog, lists.views
    toolsets = Toolsets(catalog, views.of, requests.calls, base.clock)
    surfaces = ToolSurfaces(views, toolsets, partial(_tool_parts, base, upstreams, lists, requests, admin))
    upstream_start = UpstreamStart()
    progress = sign_in_progress(catalog, settings, is_alone=base.worker.is_alone)
    server_sign_ins = ServerSignIns(upstreams.sign_ins, config.servers, base.environ, base.changes.announce, progress)
    stack.push_async_callback(server_sign_ins.close)
    agent = open_agent(base, upstreams, lists, requests, surfaces, toolsets, upstream_start.soon, stack)
    return Gateway(
        settings=settings,
        worker=base.worker,
        metrics=base.metrics,
        config=config,
        catalog=catalog,
        index=base.index,
        index_sync=lists.index_sync,
        changes=base.changes,
        fleet=upstreams.fleet,
        presence=lists.presence,
        admission=lists.admission,
        tool_lists=lists.tool_lists,
        content_lists=lists.content_lists,
        tool_sync=lists.tool_sync,
        content_sync=lists.content_sync,
        views=views,
        calls=requests.calls,
        asks=requests.asks,
        clients=requests.clients,
        surfaces=surfaces,
        toolsets=toolsets,
        content_lookup=requests.content_lookup,
        contents=requests.contents,
        tasks=requests.tasks,
        subscriptions=requests.subscriptions,
        agent=agent,
        visitors=Visitors(base.recorder),
        sandbox=upstreams.sandbox,
        learning=lists.learning,
        embedding=admin.embedding,
        approvals=admin.approvals,
        management=admin.management,
        agent_tokens=AgentTokens(catalog),
        page_sessions=PageSessions(catalog),
        server_sign_ins=server_sign_ins,
        unmatched=Unmatched(catalog, lambda: (config.servers(), config.profiles()), lists.tool_lists.is_fresh),
        condition=admin.condition,
        reconfiguration=admin.reconfiguration,
        upstream_start=upstream_start,
    )


def _tool_parts(
    base: Base, upstreams: Upstreams, lists: ListParts, requests: Requests, admin: Admin, view: CatalogView
) -> ToolParts:
    kinds = KindSearch(
        requests.content_lookup.on(view),
        requests.kind_index,
        lists.content_lists,
        base.settings.proxy_tool,
        is_degraded=base.settings.embedder != "BM25",
    )
    retrieval = Retrieval(
        view,
        base.catalog,
        lists.index_sync,
        lists.tool_lists,
        admin.condition.statuses,
        base.recorder,
        admin.condition.list_degradations,
        learning=lists.learning,
        kinds=kinds,
    )
    return ToolParts(
        settings=base.settings,
        usable=base.usable,
        view=view,
        is_whole=view is lists.views.whole,
        retrieval=retrieval,
        calls=requests.calls,
        asks=requests.asks,
        outputs=requests.outputs,
        catalog=base.catalog,
        recorder=base.recorder,
        sandbox=upstreams.sandbox,
        management=admin.management,
    )


def _background(
    gateway: Gateway, upstreams: Upstreams, requests: Requests, announcer: ContentsChanges
) -> list[Coroutine[Any, Any, None]]:
    """Return what runs by itself as long as the gateway is open."""

    async def start() -> None:
        if gateway.embedding is not None:
            gateway.embedding.start()
        await gateway.fleet.start()

    tellers = (
        announcer.announce,
        gateway.subscriptions.announce,
        gateway.agent.announce_changes,
        gateway.unmatched.tell,
    )
    return [
        gateway.upstream_start.run(start, gateway.reconfiguration.forget_unused),
        _beat(gateway, requests.state_key),
        gateway.toolsets.follow(),
        upstreams.sign_ins.watch(gateway.fleet.retry),
        *(tell(gateway.changes.next) for tell in tellers),
    ]


def _divide(gateway: Gateway) -> None:
    """Keep the share of limits that the other gateways on the store leave."""
    gateway.admission.divide([other.servers for other in gateway.catalog.other_gateways])


async def _beat(gateway: Gateway, state_key: StateKey) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        try:
            await gateway.catalog.heartbeat()
            _divide(gateway)
            await state_key.bring()
        except CatalogError as exc:
            log.warning("other processes cannot see that this one lives: %s", exc)
