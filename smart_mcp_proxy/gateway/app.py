"""Assembly of a gateway: its parts in dependency order, then its background work."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from types import MappingProxyType

from smart_mcp_proxy.catalog import Catalog, open_catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log
from smart_mcp_proxy.gateway.admin_parts import forget_unused, open_admin
from smart_mcp_proxy.gateway.agent_parts import open_agent, open_requests, open_surfaces
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.engines import available, lexical_engine
from smart_mcp_proxy.gateway.gateway import Gateway
from smart_mcp_proxy.gateway.observability.choose import create_metrics, open_tracing
from smart_mcp_proxy.gateway.observability.export import open_export
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.gateway.parts import START_DELAY_S, Base, open_lists, open_upstreams
from smart_mcp_proxy.gateway.sessions.contents_changes import ContentsChanges
from smart_mcp_proxy.gateway.shared.shared_sign_ins import require_secret_key
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import Profile, ServerConfig, describe_isolation, identify_program
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
    separates: bool = False,
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
        separates: See `Configuration`.

    Raises:
        ConfigError: `passthrough` is not configured, the data directory or database cannot be used, or sign-ins to
            keep in it lack a key.
        CatalogError: The catalog stays locked.
    """
    config = Configuration(settings, servers, profiles, passthrough, separates=separates)
    require_secret_key(settings, config.servers().values())
    usable, unavailable = available(settings, environ)
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_gateway_catalog(settings))
        await _remember_unconfined(catalog, config)
        metrics = create_metrics(settings, config.servers)
        export = await stack.enter_async_context(open_export(settings.activity_export))
        recorder = await stack.enter_async_context(open_activity_log(catalog, settings, metrics, export=export))
        if tracing is None and serves:
            tracing = await stack.enter_async_context(open_tracing(environ, is_strict=settings.strict))
        base = Base(
            settings=settings,
            usable=usable,
            unavailable=unavailable,
            config=config,
            environ=environ,
            clock=clock,
            catalog=catalog,
            index=SearchIndex(lexical_engine(usable)),
            recorder=recorder,
            worker=worker,
            tracing=tracing,
            metrics=metrics,
        )
        gateway = await _assemble(base, stack)
        await _begin(gateway, stack, serves=serves)
        yield gateway


def open_gateway_catalog(settings: Settings) -> AbstractAsyncContextManager[Catalog]:
    """Open the catalog of the data directory, or of the database.

    It is in memory if the default one cannot be used, in a read-only home, say.

    Raises:
        ConfigError: The directory that the user has chosen, or the database, cannot be used, or a newer program has
            written it.
        CatalogError: The file stays locked.
    """
    return open_catalog(settings, reset=settings.reset_data, is_needed="data_dir" in settings.model_fields_set)


async def _remember_unconfined(catalog: Catalog, config: Configuration) -> None:
    """Leave servers as they are that ran before there was a sandbox."""
    programs = {name: identify_program(server) for name, server in config.servers().items()}
    with suppress(CatalogError):  # it is told of elsewhere; what nobody remembers starts in the sandbox
        config.remember(await catalog.bind_unconfined(programs), await catalog.find_altered_programs())
    if altered := ", ".join(config.list_altered()):
        log.warning(
            "the record of who ran before there was a sandbox was changed in the catalog by something else than a "
            "gateway, so these are taken for new: %s",
            altered,
        )


def _warn_of_unconfined(servers: Mapping[str, ServerConfig]) -> None:
    if names := ", ".join(name for name, server in servers.items() if describe_isolation(server) == "none"):
        log.warning("this system has no sandbox (bubblewrap is one): servers that can approve themselves: %s", names)


async def _assemble(base: Base, stack: AsyncExitStack) -> Gateway:
    upstreams = await open_upstreams(base, stack)
    lists = await open_lists(base, upstreams.fleet, stack)
    requests = await open_requests(base, upstreams, lists, stack)
    admin = open_admin(base, upstreams, lists, stack)
    surfaces = open_surfaces(base, upstreams, lists, requests, admin)
    agent = open_agent(base, upstreams, lists, requests, surfaces, stack)
    return Gateway(base, upstreams, lists, requests, admin, surfaces, agent)


async def _begin(gateway: Gateway, stack: AsyncExitStack, *, serves: bool) -> None:
    """Begin what runs by itself as long as the gateway is open."""
    base, requests, servers = gateway.base, gateway.requests, gateway.base.config.servers()
    if serves and base.config.lacks_sandbox and base.worker.number == 0:
        _warn_of_unconfined(servers)
    await gateway.upstreams.fleet.apply(servers)
    await base.catalog.register_instance(os.getpid(), sorted(servers), serves=serves)
    _divide(gateway)
    gateway.lists.index_sync.start()
    announcer = ContentsChanges(requests.content_lookup.at, gateway.agent.list_changes)
    base.session_opened.subscribe(announcer.begin)
    base.session_opened.subscribe(requests.clients.begin)
    tellers = (
        announcer.announce,
        requests.subscriptions.announce,
        gateway.agent.announce_changes,
        gateway.admin.unmatched.tell,
    )
    for work in (
        _start_upstreams(gateway, serves=serves),
        _beat(gateway),
        requests.toolsets.follow(),
        gateway.upstreams.sign_ins.watch(gateway.upstreams.fleet.retry),
        gateway.lists.person_lists.follow(lambda: any(each.is_personal for each in base.config.servers().values())),
        *(tell(base.changes.next) for tell in tellers),
    ):
        stack.callback(spawn(work, "gateway").cancel)


async def _start_upstreams(gateway: Gateway, *, serves: bool) -> None:
    await gateway.upstreams.start.wait(START_DELAY_S)
    if gateway.admin.embedding is not None:
        gateway.admin.embedding.start()
    if not serves:  # a command that needs the servers says so
        await gateway.upstreams.start.wait()
    await gateway.upstreams.fleet.start()
    try:
        await forget_unused(gateway.base, gateway.lists)
    except CatalogError as exc:
        log.warning("tools of servers that are no longer configured stay in the catalog: %s", exc)


def _divide(gateway: Gateway) -> None:
    """Keep the share of limits that the other gateways on the store leave."""
    gateway.lists.admission.divide([other.servers for other in gateway.catalog.other_gateways])


async def _beat(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        try:
            await gateway.catalog.heartbeat()
            _divide(gateway)
            await gateway.requests.state_key.bring()
        except CatalogError as exc:
            log.warning("other processes cannot see that this one lives: %s", exc)
