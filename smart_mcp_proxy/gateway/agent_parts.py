"""Parts of a gateway that agents meet: the paths of requests, and what answers over MCP."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import lru_cache, partial

import msgspec

from smart_mcp_proxy.gateway.admin_parts import Admin
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.client_sessions import Clients
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.inputs import InputRounds
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, StateKey
from smart_mcp_proxy.gateway.calls.requests import ContentChecks, ContentRequests
from smart_mcp_proxy.gateway.calls.sign_in_links import SignInLinks
from smart_mcp_proxy.gateway.calls.task_requests import TaskRequests
from smart_mcp_proxy.gateway.calls.tasks import TaskCalls, Tasks
from smart_mcp_proxy.gateway.engines import lexical_engine
from smart_mcp_proxy.gateway.parts import Base, Lists, Upstreams
from smart_mcp_proxy.gateway.results.outputs import Outputs, SharedOutputs
from smart_mcp_proxy.gateway.retrieval.kinds import KindIndex, KindSearch
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.app_calls import AppCalls
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentHandlers
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup
from smart_mcp_proxy.gateway.sessions.list_changed_hook import ListChangedHook
from smart_mcp_proxy.gateway.sessions.passthrough import Passthrough
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriptions
from smart_mcp_proxy.gateway.sessions.task_handlers import TaskHandlers
from smart_mcp_proxy.gateway.sessions.tool_surface import Routing, ToolSurfaces
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.sessions import build_session_activity
from smart_mcp_proxy.gateway.tools.builtin_tools import ToolParts
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.gateway.visibility.views import NARROWED
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Principal, Reach
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.upstream import Fleet


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of requests to servers.

    Attributes:
        outputs: What was cut off results.
        inputs: Questions of servers that clients answer with another request.
        state_key: Seals the states of such requests, on all gateways of a store alike.
        clients: The clients that some servers know each of.
        calls: The one call path.
        asks: The one path of prompts, resources and completions.
        content_lookup: Prompts and resources at a path.
        kind_index: Searches tools, prompts and resources together.
        contents: Answers what agents ask of prompts and resources.
        subscriptions: Which client hears of which resource.
        apps: Calls that interfaces of tools make.
        tasks: Answers what agents ask of tasks.
        toolsets: Tools chosen by searches, at addresses of their own.
    """

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
    toolsets: Toolsets


async def open_requests(base: Base, upstreams: Upstreams, lists: Lists, stack: AsyncExitStack) -> Requests:
    """Make the paths of requests to servers."""
    settings, config, views, fleet = base.settings, base.config, lists.views, upstreams.fleet
    links = Links(base.catalog)
    outputs = Outputs(base.clock, _share_outputs(base))
    secret = SecretKey.of(settings)
    states = RequestStates(settings.data_dir, base.catalog.now_s, secret=secret)
    state_key = StateKey(base.catalog, states, is_given=secret is not None)
    await state_key.bring()
    inputs = InputRounds(states, config.servers(), is_cleaned=settings.clean_results)
    base.configured.subscribe(inputs.configure)
    clients = Clients(fleet, base.recorder, lambda path, who: views.at(path, views.reach(who)), settings)
    limits = CallLimits.of(settings, is_passing_through=config.passthrough is not None)
    tasks = Tasks(states, partial(_get_process_run, fleet), limits, wall=base.catalog.now_s)
    path = RequestPath(
        fleet,
        base.recorder,
        limits,
        base.clock,
        admission=lists.admission,
        inputs=inputs,
        clients=clients,
        continuation=TaskCalls(tasks, fleet, lists.admission, inputs, base.clock),
        tracing=base.tracing,
        sign_in_links=SignInLinks(fleet, upstreams.sign_ins.build_link, base.changes.wait),
    )
    calls = Calls(path, views.whole, outputs, learning=lists.learning, lists=lists.tool_lists, links=links)
    checks = ContentChecks(partial(_is_trusted, base), lists.content_sync.list_soon, is_cleaned=limits.is_cleaned)
    asks = ContentRequests(path, lists.content_lists, links=links, checks=checks)
    lookup = ContentLookup(views, base.catalog, settings.tool_name_limit, config.passthrough)
    subscriptions = Subscriptions(lists.content_lists, fleet, asks, lookup.find, lists.content_sync.list_soon)
    stack.push_async_callback(subscriptions.close)
    base.resource_updated.subscribe(subscriptions.handle_resource_updated)
    base.status_changed.subscribe(subscriptions.connection_changed)
    of_tasks = TaskRequests(path, calls, tasks, inputs, lists.tool_lists)
    return Requests(
        outputs=outputs,
        inputs=inputs,
        state_key=state_key,
        clients=clients,
        calls=calls,
        asks=asks,
        content_lookup=lookup,
        kind_index=_index_kinds(base, lists, lookup),
        contents=ContentHandlers(lookup, lists.content_lists, fleet, asks, subscriptions, links),
        subscriptions=subscriptions,
        apps=AppCalls(views, calls, links, lookup, fleet),
        tasks=TaskHandlers(views, fleet, of_tasks, config.passthrough),
        toolsets=Toolsets(base.catalog, views.of, calls, base.clock, reach=views.reach),
    )


def _share_outputs(base: Base) -> SharedOutputs | None:
    """Keep outputs where other processes read them; None where there is one process alone."""
    is_alone = base.worker.is_alone and not base.catalog.is_shared
    return None if is_alone else SharedOutputs(base.catalog)


def _index_kinds(base: Base, lists: Lists, lookup: ContentLookup) -> KindIndex:
    return KindIndex(
        base.catalog,
        SearchIndex(lexical_engine(base.usable)),
        lists.views.whole,
        lookup.on(lists.views.whole),
        uses_examples=base.settings.learn,
        waiting=lambda: lists.index_sync.waiting,
    )


def _get_process_run(fleet: Fleet, server: str) -> str | None:
    """The process of a server on stdio; empty for one over HTTP, None before its first connection."""
    upstream = fleet.upstreams.get(server)
    return "" if upstream is None or upstream.config.transport != "stdio" else upstream.run or None


def _is_trusted(base: Base, server: str) -> bool:
    """Whether a server's policy approves whatever it lists."""
    entry = base.config.servers().get(server)
    return entry is not None and not entry.quarantined and (entry.trust or base.settings.trust) == "trusted"


def open_surfaces(base: Base, upstreams: Upstreams, lists: Lists, requests: Requests, admin: Admin) -> ToolSurfaces:
    """Make the gateway's own tools, on each view of the catalog."""

    def make_parts(view: CatalogView) -> ToolParts:
        kinds = KindSearch(
            requests.content_lookup.on(view),
            requests.kind_index,
            lists.content_lists,
            base.settings.proxy_tool,
            is_degraded=base.settings.embedder not in {"AUTO", "BM25"},
        )
        retrieval = Retrieval(
            view,
            base.catalog,
            lists.index_sync,
            lists.tool_lists,
            partial(admin.condition.statuses, view.person),
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

    return ToolSurfaces(lists.views, requests.toolsets, make_parts)


def open_agent(
    base: Base, upstreams: Upstreams, lists: Lists, requests: Requests, surfaces: ToolSurfaces, stack: AsyncExitStack
) -> Agent:
    """Make what answers agents over MCP."""
    hook = _open_hook(base, upstreams, stack)
    base.session_opened.subscribe(lambda session: base.recorder.record(build_session_activity(session)))
    return Agent(
        Routing(
            base.settings,
            surfaces,
            requests.toolsets,
            ClientBehavior(base.clock),
            base.clock,
            passthrough=_choose_passthrough(base, lists, requests),
        ),
        upstreams.start.soon,
        requests.inputs,
        on_list_changed=None if hook is None else hook.fire,
        on_session=base.session_opened,
        watching=requests.contents.watch_resources,
        may_need_line=lists.views.whole.knows_clients,
        apps=requests.apps,
        following=requests.tasks.follow_tasks,
        tracing=base.tracing,
    )


def _choose_passthrough(base: Base, lists: Lists, requests: Requests) -> Callable[[Principal], Passthrough] | None:
    """The tools of the server that is passed through, by reach; None where all servers are served."""
    server = base.config.passthrough
    if server is None:
        return None

    @lru_cache(NARROWED)
    def open_passthrough(reach: Reach) -> Passthrough:
        view = lists.views.narrow_view(lists.views.whole, reach)
        return Passthrough(server, view, requests.calls, base.changes, lists.presence.is_settled)

    return lambda who: open_passthrough(lists.views.reach(who))


def _open_hook(base: Base, upstreams: Upstreams, stack: AsyncExitStack) -> ListChangedHook | None:
    command = base.settings.list_changed_exec
    if not command:
        return None
    hook = ListChangedHook(command, base.environ, upstreams.connector.watchdog)
    stack.push_async_callback(hook.close)
    return hook
