"""Parts of a gateway, in groups, each made of those before it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.events import Event
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.admin.list_review import ListReview
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl, open_admission
from smart_mcp_proxy.gateway.condition import GatewayCondition
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.engines import lexical_engine, vector_setup
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync, Sight
from smart_mcp_proxy.gateway.indexing.learning import Learning, open_learning
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import CONTENTS, TOOLS, ListSync
from smart_mcp_proxy.gateway.indexing.page_listing import PageReview, with_pages
from smart_mcp_proxy.gateway.observability.metrics import Metrics
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.gateway.reconfiguration import Reconfiguration
from smart_mcp_proxy.gateway.sandbox import Sandbox
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.shared.shared_sign_ins import sign_in_store
from smart_mcp_proxy.gateway.visibility.presence import Presence
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import ServerStatus, ToolRecord
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import Profile, ServerConfig, ServerEdits
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import Connector, Fleet, Keeper, SignIns, TlsContext


class Base:
    """Settings, configuration, catalog and events that nearly every part needs.

    Args:
        settings: Frozen settings.
        usable: The same as far as this installation can do it.
        config: The configuration in force.
        environ: The gateway's environment.
        clock: Monotonic seconds.
        catalog: The truth about what servers list.
        recorder: Gets activity records.
        worker: This process among its workers.
        tracing: Makes spans of requests; None where nothing is traced.
        metrics: Counts activity; None where nothing is counted.
    """

    def __init__(  # noqa: PLR0913  (each is another part of the gateway)
        self,
        settings: Settings,
        usable: Settings,
        config: Configuration,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        catalog: Catalog,
        recorder: Recorder[Activity],
        worker: Worker,
        *,
        tracing: Tracing | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.worker = worker
        self.tracing = tracing
        self.metrics = metrics
        self.settings = settings
        self.usable = usable
        self.config = config
        self.environ = environ
        self.clock = clock
        self.catalog = catalog
        self.recorder = recorder
        self.index = SearchIndex(lexical_engine(usable))
        self.changes = Changes()
        self.configured: Event[Mapping[str, ServerConfig]] = Event()
        self.session_opened: Event[Session] = Event()


@dataclass(frozen=True)
class Upstreams:
    """The servers' sessions, and what is heard of them."""

    dialer: Connector
    sign_ins: SignIns
    sandbox: Sandbox
    fleet: Fleet
    status_changed: Event[ServerStatus]
    tools_changed: Event[str]
    contents_changed: Event[str]
    resource_updated: Event[str, str]


async def open_upstreams(base: Base, stack: AsyncExitStack) -> Upstreams:
    """Open the servers' sessions; none is started yet."""
    settings = base.settings
    tls = TlsContext(base.environ)
    store = sign_in_store(base.catalog, settings)
    sign_ins = SignIns(settings.data_dir, store=store, now=base.catalog.now_s, tls=tls)
    dialer = await stack.enter_async_context(Connector(settings.max_message_bytes, sign_ins, tls, base.worker))
    sandbox = await stack.enter_async_context(Sandbox(settings.code_parallel, dialer.watchdog))
    status_changed, tools_changed, contents_changed = Event[ServerStatus](), Event[str](), Event[str]()
    resource_updated = Event[str, str]()
    fleet = Fleet(
        environ=base.environ,
        on_change=status_changed,
        on_tools_changed=tools_changed,
        on_contents_changed=contents_changed,
        on_resource_updated=resource_updated,
        start_parallel=settings.start_parallel,
        open_session=dialer,
        worker=base.worker,
    )
    stack.push_async_callback(fleet.close)
    if not base.worker.is_alone:
        keeper = Keeper(fleet.upstreams, base.worker)
        status_changed.subscribe(keeper.status_changed)
        tools_changed.subscribe(keeper.tools_changed)
        contents_changed.subscribe(keeper.contents_changed)
        resource_updated.subscribe(keeper.resource_updated)
        stack.push_async_callback(keeper.close)
    told = (status_changed, tools_changed, contents_changed, resource_updated)
    return Upstreams(dialer, sign_ins, sandbox, fleet, *told)


@dataclass(frozen=True)
class ListParts:
    """Parts that follow servers' lists: catalog, views and index."""

    admission: AdmissionControl
    tool_lists: ListState
    content_lists: ListState
    presence: Presence
    views: Views
    index_sync: IndexSync
    tool_sync: ListSync
    content_sync: ListSync
    learning: Learning | None


async def open_lists(base: Base, upstreams: Upstreams, stack: AsyncExitStack) -> ListParts:
    """Make the parts that follow servers' lists; `index_sync` has to be started."""
    settings, config, catalog, fleet = base.settings, base.config, base.catalog, upstreams.fleet
    admission = open_admission(settings, config.servers(), base.clock)
    base.configured.subscribe(admission.configure)
    upstreams.status_changed.subscribe(admission.connection_changed)

    tool_lists = ListState(fleet, catalog, base.changes, clock=base.clock)
    content_lists = ListState(fleet, catalog, base.changes, clock=base.clock)
    presence = Presence(fleet, tool_lists, clock=base.clock)

    def look(profile: Profile | None) -> CatalogView:
        nearest, is_hinting = base.index.nearest_names, settings.search_hints
        causes = (presence.absence, tool_lists.why_left_out)
        return CatalogView(catalog, config.servers(), nearest, profile, *causes, is_hinting=is_hinting)

    views = Views(look, config.profiles())
    sight = Sight(lambda record: _is_searched(views, record), lambda: views.whole.rules)
    index_sync = IndexSync(
        *(catalog, base.index, sight, base.changes),
        uses_examples=settings.learn,
        data_dir=settings.data_dir,
        clock=base.clock,
    )
    stack.push_async_callback(index_sync.close)
    review = ListReview(catalog, config.servers, settings.trust)
    bring, loaded = index_sync.catch_up, index_sync.loaded.wait
    tool_sync = ListSync(tool_lists, fleet, catalog, TOOLS, bring, review=review, loaded=loaded)
    kinds = with_pages(CONTENTS, tool_lists, catalog)
    pages_review = PageReview(catalog, review)
    content_sync = ListSync(content_lists, fleet, catalog, kinds, bring, review=pages_review, loaded=loaded)
    for sync, changed in ((tool_sync, upstreams.tools_changed), (content_sync, upstreams.contents_changed)):
        stack.push_async_callback(sync.close)
        upstreams.status_changed.subscribe(sync.status_changed)
        changed.subscribe(sync.list_soon)

    learning: Learning | None = None
    if settings.learn:
        learning = await stack.enter_async_context(open_learning(catalog, index_sync, base.clock))
    return ListParts(
        admission, tool_lists, content_lists, presence, views, index_sync, tool_sync, content_sync, learning
    )


def _is_searched(views: Views, record: ToolRecord) -> bool:
    """Whether a search may find a tool: models are not shown what is for interfaces alone."""
    return views.whole.sees(record) and not is_for_apps_alone(record.raw)


@dataclass(frozen=True)
class Admin:
    """Parts for operators: status, approvals, servers."""

    reconfiguration: Reconfiguration
    approvals: Approvals
    embedding: Embedding | None
    condition: GatewayCondition
    management: Management


def open_admin(
    base: Base, unavailable: Sequence[str], upstreams: Upstreams, lists: ListParts, stack: AsyncExitStack
) -> Admin:
    """Make what operators look at and change.

    Args:
        base: Settings, configuration, catalog.
        unavailable: What the settings ask for and this installation cannot give.
        upstreams: The servers' sessions.
        lists: What servers list.
        stack: Closes what is opened here.
    """
    settings, config, catalog, recorder = base.settings, base.config, base.catalog, base.recorder
    fleet, views, admission = upstreams.fleet, lists.views, lists.admission
    syncs = (lists.tool_sync, lists.content_sync)
    reconfiguration = Reconfiguration(
        *(config, base.configured, views, fleet, syncs, lists.index_sync, catalog, base.changes)
    )
    approvals = Approvals(catalog, config.servers, lists.index_sync.follow, recorder)
    embedding = _create_embedding(base, lists)
    if embedding is not None:
        stack.push_async_callback(embedding.close)
    condition = GatewayCondition(
        *(fleet, admission, catalog, approvals, embedding, lists.tool_lists, unavailable),
        is_fenced=settings.fence_results,
    )
    edits = ServerEdits(settings, Path.cwd())
    management = Management(
        *(edits, fleet, views.whole, lists.tool_sync.list_now, reconfiguration.apply, recorder.record),
        condition.complete_status,
    )
    return Admin(reconfiguration, approvals, embedding, condition, management)


def _create_embedding(base: Base, lists: ListParts) -> Embedding | None:
    """Create the worker that embeds tools, if the settings ask for one; not started yet."""
    settings = base.settings
    if settings.embedder == "BM25":
        return None
    setup = vector_setup(settings, base.usable, base.environ)
    return Embedding(base.catalog, lists.index_sync, settings.data_dir, setup, clock=base.clock)
