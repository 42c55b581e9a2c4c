"""Parts of a gateway, in groups, each made of those before it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.events import Event
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.admin.list_review import ListReview
from smart_mcp_proxy.gateway.admin.people import count_needed
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl, open_admission
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync, Sight
from smart_mcp_proxy.gateway.indexing.learning import Learning, open_learning
from smart_mcp_proxy.gateway.indexing.list_state import ListState, Presence
from smart_mcp_proxy.gateway.indexing.list_sync import CONTENTS, TOOLS, ListSync
from smart_mcp_proxy.gateway.indexing.page_listing import PageReview, with_pages
from smart_mcp_proxy.gateway.indexing.person_lists import PersonLists, for_people
from smart_mcp_proxy.gateway.observability.metrics import Metrics
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.gateway.sandbox import Sandbox
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.shared.shared_sign_ins import sign_in_store
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import ServerStatus, ToolRecord
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import Profile, ServerConfig, list_guarded_places
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity, get_logger
from smart_mcp_proxy.upstream import SHELTER, Connector, Fleet, Keeper, Shelter, SignIns, SubjectTokens, TlsContext

START_DELAY_S: Final = 0.3
"""Upstreams start when the first client has been answered, or after this time.

Source: docs/design/processes.md#starting"""
ANSWER_S: Final = 0.05
"""Time that the first answer gets to leave: its handler reports it before it is written."""

log = get_logger("gateway")


class Base(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Settings, configuration, catalog and events that nearly every part needs.

    Attributes:
        settings: Frozen settings.
        usable: The same as far as this installation can do it.
        unavailable: What the settings ask for and this installation cannot give.
        config: The configuration in force.
        environ: The gateway's environment.
        clock: Monotonic seconds.
        catalog: The truth about what servers list.
        index: Searches the visible tools.
        recorder: Gets activity records.
        worker: This process among its workers.
        tracing: Makes spans of requests; None where nothing is traced.
        metrics: Counts activity; None where nothing is counted.
        changes: Tell of listings, servers' states and tools that change.
        configured: Tells of another configuration, before any server starts or stops.
        session_opened: Tells of each client that opens a session.
        status_changed: Tells of each server's new state.
        tools_changed: Names a server whose tools changed.
        contents_changed: Names a server whose prompts or resources changed.
        resource_updated: Names a server and the URI of a resource that it updated.
    """

    settings: Settings
    usable: Settings
    unavailable: tuple[str, ...]
    config: Configuration
    environ: Mapping[str, str]
    clock: Callable[[], float]
    catalog: Catalog
    index: SearchIndex
    recorder: Recorder[Activity]
    worker: Worker
    tracing: Tracing | None
    metrics: Metrics | None
    changes: Changes = msgspec.field(default_factory=Changes)
    configured: Event[Mapping[str, ServerConfig]] = msgspec.field(default_factory=Event)
    session_opened: Event[Session] = msgspec.field(default_factory=Event)
    status_changed: Event[ServerStatus] = msgspec.field(default_factory=Event)
    tools_changed: Event[str] = msgspec.field(default_factory=Event)
    contents_changed: Event[str] = msgspec.field(default_factory=Event)
    resource_updated: Event[str, str] = msgspec.field(default_factory=Event)
    __repr__ = object.__repr__  # the environment may hold secrets


class UpstreamStart:
    """Decides when the upstreams start; whoever wants them earlier says so."""

    def __init__(self) -> None:
        self._may_start = asyncio.Event()

    def __repr__(self) -> str:
        return f"<UpstreamStart {'due' if self._may_start.is_set() else 'waiting'}>"

    def now(self) -> None:
        """Lets the upstreams start now instead of waiting for a first client."""
        self._may_start.set()

    def soon(self) -> None:
        """Lets them start once the answer that is being made has left."""
        asyncio.get_running_loop().call_later(ANSWER_S, self.now)

    async def wait(self, limit_s: float | None = None) -> None:
        """Wait for a first client, if need be for no longer than `limit_s`."""
        try:
            await asyncio.wait_for(self._may_start.wait(), limit_s)
        except TimeoutError:
            log.debug("no client within %.1f s", limit_s)


class Upstreams(msgspec.Struct, frozen=True):
    """The servers' sessions.

    Attributes:
        connector: Opens them.
        sign_ins: Signs in at servers.
        sandbox: Runs scripts.
        fleet: Keeps them.
        subjects: Tokens that people came with.
        start: Decides when they start.
    """

    connector: Connector
    sign_ins: SignIns
    sandbox: Sandbox
    fleet: Fleet
    subjects: SubjectTokens
    start: UpstreamStart = msgspec.field(default_factory=UpstreamStart)


async def open_upstreams(base: Base, stack: AsyncExitStack) -> Upstreams:
    """Open the servers' sessions; none is started yet."""
    settings, worker = base.settings, base.worker
    tls = TlsContext(base.environ)
    store = sign_in_store(base.catalog, settings)
    subjects = SubjectTokens()
    sign_ins = SignIns(
        settings.data_dir,
        store=store,
        now=base.catalog.now_s,
        tls=tls,
        find_subject=subjects.find,
        people_url=(settings.public_url or "") if settings.oidc_url else "",
    )
    shelter = Shelter(settings.data_dir / SHELTER, list_guarded_places(settings, Path.cwd()))
    connector = Connector(settings.max_message_bytes, sign_ins, tls, worker, shelter)
    await stack.enter_async_context(connector)
    sandbox = await stack.enter_async_context(Sandbox(settings.code_parallel, connector.watchdog))
    fleet = Fleet(
        environ=base.environ,
        on_change=base.status_changed,
        on_tools_changed=base.tools_changed,
        on_contents_changed=base.contents_changed,
        on_resource_updated=base.resource_updated,
        start_parallel=settings.start_parallel,
        open_session=connector,
        worker=worker,
    )
    fleet.guarded = shelter.guarded
    subjects.is_wanted, subjects.on_new = fleet.has_exchanges, fleet.retry_exchanges
    sign_ins.is_waiting = fleet.is_waiting
    stack.push_async_callback(fleet.close)
    if not worker.is_alone:
        keeper = Keeper(fleet.upstreams, worker)
        base.status_changed.subscribe(keeper.status_changed)
        base.tools_changed.subscribe(keeper.tools_changed)
        base.contents_changed.subscribe(keeper.contents_changed)
        base.resource_updated.subscribe(keeper.resource_updated)
        stack.push_async_callback(keeper.close)
    return Upstreams(connector, sign_ins, sandbox, fleet, subjects)


class Lists(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that follow servers' lists: catalog, views and index.

    Attributes:
        admission: Limits and breakers of calls.
        tool_lists: What servers have listed of tools.
        content_lists: The same of prompts and resources.
        presence: Says why a server lists nothing.
        views: What may be seen, of the whole catalog and of each profile.
        index_sync: Keeps the index equal to the catalog.
        tool_sync: Lists tools again.
        content_sync: Lists prompts and resources again.
        learning: Learns from use; None where nothing is learned.
        person_lists: What each person was listed by servers where each signs in.
    """

    admission: AdmissionControl
    tool_lists: ListState
    content_lists: ListState
    presence: Presence
    views: Views
    index_sync: IndexSync
    tool_sync: ListSync
    content_sync: ListSync
    learning: Learning | None
    person_lists: PersonLists


async def open_lists(base: Base, fleet: Fleet, stack: AsyncExitStack) -> Lists:
    """Make the parts that follow servers' lists; `index_sync` has to be started."""
    settings, config, catalog = base.settings, base.config, base.catalog
    admission = open_admission(settings, config.servers(), base.clock)
    base.configured.subscribe(admission.configure)
    base.status_changed.subscribe(admission.connection_changed)

    tool_lists = ListState(fleet, catalog, base.changes, clock=base.clock)
    content_lists = ListState(fleet, catalog, base.changes, clock=base.clock)
    person_lists = PersonLists(catalog, base.changes.announce)
    presence = Presence(fleet, tool_lists, is_brought=person_lists.is_brought, clock=base.clock)

    def look(profile: Profile | None) -> CatalogView:
        return CatalogView(
            catalog,
            config.servers(),
            base.index.nearest_names,
            profile,
            presence.absence,
            tool_lists.why_left_out,
            is_hinting=settings.search_hints,
        )

    views = Views(look, config.profiles(), person_lists.listed_to)
    index_sync = IndexSync(
        catalog,
        base.index,
        Sight(lambda record: _is_searched(views, record), lambda: views.whole.rules),
        base.changes,
        uses_examples=settings.learn,
        data_dir=settings.data_dir,
        clock=base.clock,
    )
    stack.push_async_callback(index_sync.close)
    review = ListReview(catalog, config.servers, settings.trust, partial(count_needed, settings, config.servers))
    bring, loaded = index_sync.catch_up, index_sync.loaded.wait
    tools = for_people(TOOLS, person_lists, catalog)
    tool_sync = ListSync(tool_lists, fleet, catalog, tools, bring, review=review, loaded=loaded)
    kinds = for_people(with_pages(CONTENTS, tool_lists, catalog), person_lists, catalog)
    pages_review = PageReview(catalog, review)
    content_sync = ListSync(content_lists, fleet, catalog, kinds, bring, review=pages_review, loaded=loaded)
    for sync, changed in ((tool_sync, base.tools_changed), (content_sync, base.contents_changed)):
        stack.push_async_callback(sync.close)
        base.status_changed.subscribe(sync.status_changed)
        changed.subscribe(sync.list_soon)
    return Lists(
        admission=admission,
        tool_lists=tool_lists,
        content_lists=content_lists,
        presence=presence,
        views=views,
        index_sync=index_sync,
        tool_sync=tool_sync,
        content_sync=content_sync,
        learning=await _open_learning(base, index_sync, stack),
        person_lists=person_lists,
    )


def _is_searched(views: Views, record: ToolRecord) -> bool:
    """Whether a search may find a tool: models are not shown what is for interfaces alone."""
    return views.whole.sees(record) and not is_for_apps_alone(record.raw)


async def _open_learning(base: Base, index_sync: IndexSync, stack: AsyncExitStack) -> Learning | None:
    if not base.settings.learn:
        return None
    return await stack.enter_async_context(open_learning(base.catalog, index_sync, base.clock))
