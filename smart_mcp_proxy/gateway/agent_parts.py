"""Parts of a gateway that agents meet: the paths of requests, and what answers over MCP."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache, partial

from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.content_checks import ContentChecks
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.inputs import InputRounds
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.calls.request_states import RequestStates
from smart_mcp_proxy.gateway.calls.requests import ContentRequests
from smart_mcp_proxy.gateway.calls.state_key import StateKey
from smart_mcp_proxy.gateway.calls.task_requests import TaskRequests
from smart_mcp_proxy.gateway.calls.tasks import Tasks
from smart_mcp_proxy.gateway.configuration import Configuration
from smart_mcp_proxy.gateway.engines import lexical_engine
from smart_mcp_proxy.gateway.parts import Base, ListParts, Upstreams
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.results.shared_outputs import SharedOutputs
from smart_mcp_proxy.gateway.retrieval.kind_index import KindIndex
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.app_calls import AppCalls
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentHandlers
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup
from smart_mcp_proxy.gateway.sessions.list_changed_hook import ListChangedHook
from smart_mcp_proxy.gateway.sessions.passthrough import Passthrough
from smart_mcp_proxy.gateway.sessions.routing import Routing
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriptions
from smart_mcp_proxy.gateway.sessions.task_handlers import TaskHandlers
from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurfaces
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.sessions import build_session_activity
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.gateway.visibility.views import NARROWED
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import Fleet


@dataclass(frozen=True)
class Requests:
    """The paths of requests to servers."""

    outputs: Outputs
    inputs: InputRounds
    state_key: StateKey
    clients: Clients
    calls: Calls
    asks: ContentRequests
    content_lookup: ContentLookup
    kind_index: KindIndex
    contents: ContentHandlers
    subscriptions: Subscriptions
    apps: AppCalls
    tasks: TaskHandlers


async def open_requests(base: Base, upstreams: Upstreams, lists: ListParts, stack: AsyncExitStack) -> Requests:
    """Make the paths of requests to servers."""
    settings, config, clock, fleet = base.settings, base.config, base.clock, upstreams.fleet
    views, recorder, admission = lists.views, base.recorder, lists.admission
    shared = SharedOutputs(base.catalog) if base.catalog.is_shared or not base.worker.is_alone else None
    outputs, links = Outputs(clock, shared), Links(base.catalog)
    secret = SecretKey.of(settings)
    states = RequestStates(settings.data_dir, base.catalog.now_s, secret=secret)
    state_key = StateKey(base.catalog, states, is_given=secret is not None)
    await state_key.bring()
    inputs = InputRounds(states, config.servers(), is_cleaned=settings.clean_results)
    base.configured.subscribe(inputs.configure)
    clients = Clients(fleet, recorder, lambda path, who: views.at(path, who.reach), settings)
    limits = CallLimits.of(settings, is_passing_through=config.passthrough is not None)
    tasks = Tasks(states, partial(_get_process_run, fleet), limits, wall=base.catalog.now_s)
    path = RequestPath(
        *(fleet, recorder, limits, clock),
        admission=admission,
        inputs=inputs,
        clients=clients,
        tasks=tasks,
        tracing=base.tracing,
    )
    calls = Calls(path, views.whole, outputs, learning=lists.learning, lists=lists.tool_lists, links=links)
    checks = ContentChecks(
        partial(_is_trusted, config, settings), lists.content_sync.list_soon, is_cleaned=limits.is_cleaned
    )
    asks = ContentRequests(path, lists.content_lists, links=links, checks=checks)
    lookup = ContentLookup(views, base.catalog, settings.tool_name_limit, config.passthrough)
    subscriptions = Subscriptions(lists.content_lists, fleet, asks, lookup.find, lists.content_sync.list_soon)
    stack.push_async_callback(subscriptions.close)
    upstreams.resource_updated.subscribe(subscriptions.handle_resource_updated)
    upstreams.status_changed.subscribe(subscriptions.connection_changed)
    contents = ContentHandlers(lookup, lists.content_lists, fleet, asks, subscriptions, links)
    apps = AppCalls(views, calls, links, lookup, fleet)
    of_tasks = TaskRequests(path, calls, tasks, inputs, lists.tool_lists)
    task_handlers = TaskHandlers(views, fleet, of_tasks, config.passthrough)
    index = SearchIndex(lexical_engine(base.usable))
    kinds = KindIndex(
        *(base.catalog, index, views.whole, lookup.on(views.whole)),
        uses_examples=settings.learn,
        waiting=lambda: lists.index_sync.waiting,
    )
    return Requests(
        *(outputs, inputs, state_key, clients, calls, asks, lookup, kinds, contents, subscriptions, apps, task_handlers)
    )


def _get_process_run(fleet: Fleet, server: str) -> str | None:
    """The process of a server on stdio; empty for one over HTTP, None before its first connection."""
    upstream = fleet.upstreams.get(server)
    return "" if upstream is None or upstream.config.transport != "stdio" else upstream.run or None


def _is_trusted(config: Configuration, settings: Settings, server: str) -> bool:
    """Whether a server's policy approves whatever it lists."""
    entry = config.servers().get(server)
    return entry is not None and not entry.quarantined and (entry.trust or settings.trust) == "trusted"


def open_agent(
    base: Base,
    upstreams: Upstreams,
    lists: ListParts,
    requests: Requests,
    surfaces: ToolSurfaces,
    toolsets: Toolsets,
    on_first_answer: Callable[[], None],
    stack: AsyncExitStack,
) -> Agent:
    """Make what answers agents over MCP.

    Args:
        base: Settings and configuration.
        upstreams: The servers' sessions.
        lists: What servers list.
        requests: The paths of requests to servers.
        surfaces: The gateway's own tools on each view.
        toolsets: Tools at addresses of their own.
        on_first_answer: Called once, when a client has been answered for the first time.
        stack: Closes what is opened here.
    """
    hook = _hook(base, upstreams, stack)
    base.session_opened.subscribe(lambda session: base.recorder.record(build_session_activity(session)))
    return Agent(
        Routing(
            base.settings,
            surfaces,
            toolsets,
            ClientBehavior(base.clock),
            base.clock,
            passthrough=_choose_passthrough(base, lists, requests),
        ),
        on_first_answer,
        requests.inputs,
        on_list_changed=None if hook is None else hook.fire,
        on_session=base.session_opened,
        watching=requests.contents.watch_resources,
        may_need_line=lists.views.whole.knows_clients,
        apps=requests.apps,
        following=requests.tasks.follow_tasks,
        tracing=base.tracing,
    )


def _choose_passthrough(base: Base, lists: ListParts, requests: Requests) -> Callable[[Reach], Passthrough] | None:
    """The tools of the server that is passed through, by reach; None where all servers are served."""
    server = base.config.passthrough
    if server is None:
        return None

    @lru_cache(NARROWED)
    def open_passthrough(reach: Reach) -> Passthrough:
        view = lists.views.narrow_view(lists.views.whole, reach)
        return Passthrough(server, view, requests.calls, base.changes, lists.presence.is_settled)

    return open_passthrough


def _hook(base: Base, upstreams: Upstreams, stack: AsyncExitStack) -> ListChangedHook | None:
    command = base.settings.list_changed_exec
    if not command:
        return None
    hook = ListChangedHook(command, base.environ, upstreams.dialer.watchdog)
    stack.push_async_callback(hook.close)
    return hook
