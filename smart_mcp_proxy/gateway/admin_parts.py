"""Parts of a gateway for operators: its condition, its configuration, its approvals and tokens."""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec

from smart_mcp_proxy.conditions import Remark, worst
from smart_mcp_proxy.errors import RateLimitedError
from smart_mcp_proxy.gateway.activity.visitors import Visitors
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens
from smart_mcp_proxy.gateway.admin.approvals import Approvals
from smart_mcp_proxy.gateway.admin.doors import OperatorDoors
from smart_mcp_proxy.gateway.admin.joined import Joined, note_name
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.admin.own_sign_ins import OwnSignIns
from smart_mcp_proxy.gateway.admin.page_sessions import PageSessions
from smart_mcp_proxy.gateway.admin.people import count_needed
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIns, sign_in_progress
from smart_mcp_proxy.gateway.engines import vector_setup
from smart_mcp_proxy.gateway.indexing.embedding import Embedding
from smart_mcp_proxy.gateway.indexing.unused_config import Unmatched
from smart_mcp_proxy.gateway.parts import Base, Lists, Upstreams
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.servers import Profile, ServerConfig, ServerEdits
from smart_mcp_proxy.upstream import Fleet, Upstream


class GatewayCondition(msgspec.Struct, frozen=True):
    """The servers' states, and why answers are worse than they could be.

    Attributes:
        base: The catalog, which may have lost its file, and what this installation cannot give.
        fleet: The servers.
        lists: Breakers, and what is wrong with servers' lists.
        approvals: May have lost their record.
        embedding: May lack vectors; None where no vectors rank.
    """

    base: Base
    fleet: Fleet
    lists: Lists
    approvals: Approvals
    embedding: Embedding | None

    def statuses(self, person: str = "") -> tuple[ServerStatus, ...]:
        """Every configured server's state, with what its breaker and its list add to it.

        Args:
            person: Whose connection is looked at, and begun, where each person has their own; empty for the whole.
        """
        return tuple([self.complete_status(self._find_status(upstream, person)) for upstream in self.fleet])

    def _find_status(self, upstream: Upstream, person: str) -> ServerStatus:
        if person and upstream.is_personal and not upstream.config.is_off:
            with suppress(RateLimitedError):  # others use theirs: it is not said whose
                return (self.fleet.find(upstream.name, person) or upstream).status
        return upstream.status

    def complete_status(self, status: ServerStatus) -> ServerStatus:
        """The status with what the server's breaker and its list add to it."""
        status = self.lists.admission.add_breaker_status(status)
        remarks = self.lists.tool_lists.remarks(status.name) if status.state is ServerState.READY else ()
        if not remarks:
            return status
        severity = worst(remarks)
        return msgspec.structs.replace(
            status,
            state=ServerState.ERROR if severity == "error" else status.state,
            error=_join_sentences(status.error, *(each.message for each in remarks)),
            hint=_join_sentences(status.hint, *(each.hint for each in remarks)),
            severity=severity,
            reason=_join_sentences(*(self._strip_server_words(each) for each in remarks)),
        )

    def _strip_server_words(self, remark: Remark) -> str:
        is_fenced = self.base.settings.fence_results  # where agents read a server's words, they are fenced
        return remark.reason.removesuffix(remark.said).rstrip() if is_fenced else remark.reason

    def list_degradations(self) -> tuple[str, ...]:
        """Why answers are worse at present than the settings ask for."""
        vectors = self.embedding.degradations if self.embedding is not None else ()
        catalog = self.base.catalog
        problems = filter(None, (catalog.problem, catalog.shortage, self.approvals.problem()))
        return (*self.base.unavailable, *vectors, *problems)


def _join_sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


async def reconfigure(
    base: Base,
    fleet: Fleet,
    lists: Lists,
    servers: Mapping[str, ServerConfig],
    profiles: Mapping[str, Profile] | None = None,
) -> None:
    """Apply a configuration: only what changed is started, stopped or restarted; None keeps the profiles."""
    config = base.config
    config.replace(servers, config.profiles() if profiles is None else profiles)
    lists.views.reconfigure(config.servers(), config.profiles())
    base.configured(config.servers())
    await fleet.apply(config.servers())
    for sync in (lists.tool_sync, lists.content_sync):
        sync.forget(config.servers())
    await forget_unused(base, lists)
    base.changes.announce()  # pins, filters and profiles change lists without any server's doing
    await base.catalog.register_instance(os.getpid(), sorted(config.servers()))


async def forget_unused(base: Base, lists: Lists) -> None:
    """Remove the tools of servers that are neither configured nor in use by another process.

    Raises:
        CatalogError: They cannot be removed now; they stay, unseen.
    """
    await base.catalog.forget_servers(base.config.server_names)
    await lists.index_sync.catch_up()


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """Parts for operators.

    Attributes:
        approvals: What waits for the user.
        embedding: Embeds tools; None where no vectors rank.
        condition: States, and why answers are worse than they could be.
        management: Changes the servers.
        agent_tokens: Scoped tokens of agents.
        page_sessions: Browsers that are let in to the page.
        server_sign_ins: Sign-ins at servers that a person begins there.
        own_sign_ins: Shows each person theirs.
        unmatched: What the configuration names and no server lists.
        visitors: Clients without a session.
        joined: Clients that have joined through doors.
        doors: Refuses servers where operators are answered.
    """

    approvals: Approvals
    embedding: Embedding | None
    condition: GatewayCondition
    management: Management
    agent_tokens: AgentTokens
    page_sessions: PageSessions
    server_sign_ins: ServerSignIns
    own_sign_ins: OwnSignIns
    unmatched: Unmatched
    visitors: Visitors
    joined: Joined
    doors: OperatorDoors


def open_admin(base: Base, upstreams: Upstreams, lists: Lists, stack: AsyncExitStack) -> Admin:
    """Make what operators look at and change."""
    settings, config, catalog, fleet = base.settings, base.config, base.catalog, upstreams.fleet
    approvals = Approvals(catalog, config.servers, lists.index_sync.follow, base.recorder)
    approvals.count_needed = partial(count_needed, settings, config.servers)
    embedding = _create_embedding(base, lists)
    if embedding is not None:
        stack.push_async_callback(embedding.close)
    condition = GatewayCondition(base, fleet, lists, approvals, embedding)
    management = Management(
        ServerEdits(settings, Path.cwd()),
        fleet,
        lists.views.whole,
        lists.tool_sync.list_now,
        partial(reconfigure, base, fleet, lists),
        base.recorder.record,
        condition.complete_status,
        base.environ,
    )
    progress = sign_in_progress(catalog, settings, is_alone=base.worker.is_alone)
    base.session_opened.subscribe(lambda session: note_name(session.client.name))
    server_sign_ins = ServerSignIns(
        upstreams.sign_ins, config.servers, base.environ, base.changes.announce, base.recorder.record, progress
    )
    stack.push_async_callback(server_sign_ins.close)
    agent_tokens, page_sessions = AgentTokens(catalog), PageSessions(catalog)
    page_sessions.find_holder = agent_tokens.find_holder
    agent_tokens.record = page_sessions.record = base.recorder.record
    if (quotas := lists.admission.quotas) is not None:
        quotas.find_person = agent_tokens.find_person
    return Admin(
        approvals=approvals,
        embedding=embedding,
        condition=condition,
        management=management,
        agent_tokens=agent_tokens,
        page_sessions=page_sessions,
        server_sign_ins=server_sign_ins,
        own_sign_ins=OwnSignIns(upstreams.sign_ins, lists.views, base.environ, base.recorder.record),
        unmatched=Unmatched(catalog, lambda: (config.servers(), config.profiles()), lists.tool_lists.is_fresh),
        visitors=Visitors(base.recorder, on_visit=lambda visit: note_name(visit.client)),
        joined=Joined(),
        doors=OperatorDoors(
            lambda: upstreams.connector.watchdog.servers, config.servers, base.recorder.record, base.clock
        ),
    )


def _create_embedding(base: Base, lists: Lists) -> Embedding | None:
    """Create the worker that embeds tools, if the settings ask for one; not started yet."""
    settings = base.settings
    if settings.embedder == "BM25":
        return None
    setup = vector_setup(settings, base.usable, base.environ)
    return Embedding(base.catalog, lists.index_sync, settings.data_dir, setup, clock=base.clock)
