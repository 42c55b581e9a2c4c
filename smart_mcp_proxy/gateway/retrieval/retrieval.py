"""Search answers: the few tools that fit, how to call them, what the index does not know."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

import msgspec
from anyio import move_on_after, to_thread

from smart_mcp_proxy import policy
from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.desktop.present import name_present_client
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync
from smart_mcp_proxy.gateway.indexing.learning import Learning
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.retrieval.hints import (
    PARTLY_LEFT_OUT,
    PARTLY_QUARANTINED,
    build_answer_hint,
    find_named_servers,
    language_hint,
    select_uncovered,
    shorten_text,
    sign_in_hint,
)
from smart_mcp_proxy.gateway.retrieval.kinds import Found, KindSearch, build_found_hint, describe_hit, others_than_tools
from smart_mcp_proxy.gateway.retrieval.standing import Inquiry
from smart_mcp_proxy.gateway.retrieval.summaries import (
    LEADING,
    build_brief_words,
    build_compact_entry,
    build_description,
    build_full_entry,
    build_more,
)
from smart_mcp_proxy.gateway.shared.agent_tools import Registration, ToolList
from smart_mcp_proxy.gateway.shared.refusals import approve_command
from smart_mcp_proxy.gateway.visibility.visibility import NOT_COVERED, CatalogView
from smart_mcp_proxy.models import Hit, ServerState, ServerStatus, ToolRecord
from smart_mcp_proxy.search import SearchResult
from smart_mcp_proxy.telemetry import Activity

BYTES_PER_TOKEN = 4
"""The usual rule of thumb; exact counts need a model's own tokenizer.

Source: docs/design/wire-formats.md#answers-to-a-search"""
LOADING_S = 10.0
"""Longest wait of a search for the stored index, which clients bear. Reading 100,000 tools takes 0.5 s of processor
time (measured), on a machine that starts many things at once several times that."""
FIRST_TOOLS_S = 5.0
"""Longest wait of a search for the first tools of servers that are connecting, where it could find none at all. As
long as calls wait for a first list; most servers connect within a second or two."""
COMPACT_CAP_TOKENS = 2_000
FULL_CAP_TOKENS = 12_000
QUERY_LIMIT_CHARS = 500
"""Characters of a query in the activity log."""
TOP_K_LIMIT = 50
MORE_QUERIES_LIMIT = 4
SUMMARIES_LIMIT = 512
"""Tools whose compact form is remembered, about 0.4 MB; of a toolset or a token there are as many again."""

APART_S: Final = 1_800.0
"""A search after so long a silence begins another conversation, where clients have no sessions."""
REMEMBERED: Final = 4_096
"""Callers; the one that searched longest ago leaves first."""


def estimate_tokens(size_bytes: int) -> int:
    """Tokens that so many bytes of compact JSON cost, roughly."""
    return size_bytes // BYTES_PER_TOKEN


class Question(msgspec.Struct, frozen=True):
    """A search question and its bounds.

    Attributes:
        query: In words, or a tool's name.
        limit: Number of tools wanted, 1 to 50.
        detail: Signatures and first sentences, or whole definitions.
        servers: Only these, if any are named.
        read_only: Only tools marked `readOnlyHint: true`.
        more_queries: Up to four further queries; all hits make one list.
        principal: On whose behalf.
        session: The caller's session, where it has one.
        explain: Whether each tool says why it was found.
        tool_list: Where the tools found are registered; None where none are.
        toolset: A toolset to extend.
        types: Kinds to find; others than tools come with all asked kinds in a ranking of their own.
        is_agents: Whether an agent asks, not a person.
    """

    query: str
    limit: int
    detail: Literal["compact", "full"] = "compact"
    servers: tuple[str, ...] = ()
    read_only: bool = False
    more_queries: tuple[str, ...] = ()
    principal: str = "local"
    session: str | None = None
    explain: bool = False
    tool_list: ToolList | None = None
    toolset: str | None = None
    types: tuple[str, ...] = ()
    is_agents: bool = True

    @property
    def bounds(self) -> dict[str, Any]:
        """The part of it that every ranking is held to."""
        names = ("limit", "more_queries", "servers", "explain")
        return {name: getattr(self, name) for name in names}


class Conversations:
    """Tells the first search of a conversation from the others.

    Each conversation would have been sent the whole catalog once.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: dict[tuple[str, str | None], float] = {}

    def begins(self, principal: str, session: str | None) -> bool:
        """Note a search; whether it is the first one of its conversation.

        Args:
            principal: On whose behalf.
            session: The caller's; None where it has none.
        """
        now_s = self._clock()
        last_s = self._last_s.pop((principal, session), None)
        self._last_s[principal, session] = now_s
        if len(self._last_s) > REMEMBERED:
            del self._last_s[next(iter(self._last_s))]
        return last_s is None or now_s - last_s > APART_S


@dataclass(eq=False, repr=False)
class Retrieval:
    """Answers questions about tools.

    Attributes:
        visible: What may be seen.
        catalog: Generation and definitions.
        index_sync: Has the index of it, and says whether it is loaded.
        lists: Know how old it is.
        statuses: The servers' present states.
        recorder: Gets one activity record per search.
        degraded: Tells why answers are worse than the settings ask for.
        learning: Told of searches; None where nothing is learned.
        kinds: Finds more than tools; None where tools are all that is asked for.
        loading_s: Longest wait for an index that is still being loaded.
        first_tools_s: Longest wait for the first tools, where there are none.
    """

    loading_s = LOADING_S
    first_tools_s = FIRST_TOOLS_S

    visible: CatalogView
    catalog: Catalog
    index_sync: IndexSync
    lists: ListState
    statuses: Callable[[], Iterable[ServerStatus]]
    recorder: Recorder[Activity]
    degraded: Callable[[], Iterable[str]] = tuple
    _: KW_ONLY
    learning: Learning | None = None
    kinds: KindSearch | None = None

    def __post_init__(self) -> None:
        self._index = self.index_sync.index
        self._conversations = Conversations(time.monotonic)
        self._summaries: dict[int, tuple[ToolRecord, dict[str, Any]]] = {}
        """By tool id, each with the record that it is of."""
        self._catalog_tokens = 0
        self._counted: tuple[object, object] = (None, None)

    async def retrieve(self, question: Question) -> dict[str, Any]:
        """The answer of `retrieve_tools`.

        Raises:
            RequestError: The question is out of its bounds.
            ServerNotFoundError: A named server is not configured.
        """
        started = time.monotonic()
        self._check(question)
        with move_on_after(self.loading_s):  # what is not loaded yet would be missing from the answer
            await self.index_sync.loaded.wait()
        await self._wait_first_tools(question.servers)
        kinds = self.kinds if others_than_tools(question.types) else None
        if kinds is not None:
            await kinds.wait_listed([each.name for each in self.statuses() if each.state is ServerState.READY])
        # As of now: what is listed during the search was not searched.
        not_covered = self.not_covered(question.servers, kinds)
        retried = {status.name for status in self.statuses() if status.last_error}
        found = await self._search(question)
        others = None if kinds is None else await self._others(question, kinds)
        shown = [(hit, record) for hit in found.hits if (record := self.visible.by_id(hit.id)) is not None]
        tools, was_capped = self._fit_under_cap(question, shown)
        sent = shown[: len(tools)]  # what the answer has no room for is registered nowhere either
        registered = Registration()
        if question.tool_list is not None:
            registered = await question.tool_list.register(sent, question.toolset, question.principal)
        named = {*question.servers, *find_named_servers((question.query, *question.more_queries), self.visible.servers)}
        about = named | {entry["server"] for entry in (*tools, *(others.entries if others is not None else ()))}
        uncovered = select_uncovered(not_covered, about, retried, is_closed=bool(question.servers))
        following = [record for hit in found.following if (record := self.visible.by_id(hit.id)) is not None]
        rows = {"tools": tools, "more": build_more([*(record for _, record in shown[len(tools) :]), *following])}
        answer = self._answer(question, found, rows, registered, uncovered, others, named=named, was_capped=was_capped)
        self._learn(question, sent)
        self.recorder.record(
            Activity(
                kind="search",
                principal=question.principal,
                subject=policy.mask_text(question.query, QUERY_LIMIT_CHARS),
                outcome="ok" if shown or answer.get("found") else "empty",
                duration_ms=(time.monotonic() - started) * 1000,
                at_s=time.time(),
                detail={"tools": [tool["name"] for tool in answer["tools"]]}
                | (self._tokens(question, answer["tokens"]) | _changes(registered) | name_present_client()),
                session=policy.short_digest(question.session) if question.session else "",
            )
        )
        return answer

    async def _wait_first_tools(self, named: Collection[str]) -> None:
        """Wait for tools to search, of these servers or of all, while there are none and some may still come.

        Many agents search before any server is connected; an answer without tools would end their search.
        """
        servers = named or self.visible.servers
        if any(map(self.visible.of_server, servers)):  # also those of an earlier run
            return
        with move_on_after(self.first_tools_s):
            # A list in the catalog is not indexed before it is fresh.
            while not any(self.lists.is_fresh(server) and self.visible.of_server(server) for server in servers):
                if all(self.lists.is_settled(status) for status in self.statuses() if status.name in servers):
                    return
                await self.lists.wait_changed()

    async def why_not(self, question: Question, name: str) -> dict[str, Any]:
        """Tell people where a tool stands for a question, see `Inquiry.about`; nothing is recorded."""
        self._check(question)
        with move_on_after(self.loading_s):
            await self.index_sync.loaded.wait()
        statuses = {status.name: status for status in self.statuses()}
        inquiry = Inquiry(
            self.visible, self.catalog.snapshot, self._index, statuses, self._select_ranked_ids, self._fit_under_cap
        )
        return await to_thread.run_sync(inquiry.about, question, name)

    def _tokens(self, question: Question, tokens: Mapping[str, int]) -> dict[str, Any]:
        """Estimated tokens of an answer, and of the catalog that its conversation was not sent whole."""
        if question.is_agents:
            spared = tokens["catalog"] * self._conversations.begins(question.principal, question.session)
            return {"tokens": {"sent": tokens["sent"], "spared": spared}}
        return {}

    def _learn(self, question: Question, sent: list[tuple[Hit, ToolRecord]]) -> None:
        """Let the calls that follow teach: not from names, nor where several queries found a tool."""
        is_plain = not question.more_queries and not any("exact" in hit.why for hit, _ in sent)
        if self.learning is not None and is_plain:
            keys = [record.key for _, record in sent]
            self.learning.record_search(question.principal, question.session, question.query, keys)

    def describe(self, record: ToolRecord) -> dict[str, Any]:
        """The whole definition of one tool, with how to call it."""
        return build_description(record, is_stale=self._is_stale(record))

    def summarize(self, record: ToolRecord) -> dict[str, Any]:
        """Summarize one tool: names, signature and first sentence."""
        known, summary = self._summaries.get(record.id, (None, {}))
        if known is not record:
            if len(self._summaries) >= SUMMARIES_LIMIT:
                self._summaries.clear()
            summary = build_compact_entry(record, is_stale=False)
            self._summaries[record.id] = (record, summary)
        return summary | {"stale": self._is_stale(record)}

    def catalog_tokens(self) -> int:
        """Estimated tokens of every visible definition, that is, what an agent is spared."""
        snapshot, servers = self.catalog.snapshot, self.visible.servers
        if self._counted[0] is not snapshot or self._counted[1] is not servers:
            self._catalog_tokens = estimate_tokens(sum(len(record.raw) for record in self.visible.records()))
            self._counted = (snapshot, servers)
        return self._catalog_tokens

    def not_covered(self, named: Collection[str] = (), kinds: KindSearch | None = None) -> list[dict[str, str]]:
        """The servers whose tools may be missing or out of date, by name and state.

        Disabled servers are among them where they were asked for by name. A server that is connected but not listed
        yet is `unlisted`; one some of whose tools wait for the user is `partly_quarantined`, and nothing more is said
        of them; one some of whose tools cannot be used is `partly_left_out`. `reason` says why, where the state does
        not.
        """
        servers, waiting = self.visible.servers, self.visible.count_waiting()
        lists = [self.lists] if kinds is None else [self.lists, kinds.lists]
        rows = []
        for status in self.statuses():
            if status.name not in servers:
                continue
            if status.state in NOT_COVERED or (status.state is ServerState.DISABLED and status.name in named):
                state = status.state.value
            elif status.state is ServerState.READY and not all(each.is_fresh(status.name) for each in lists):
                state = "unlisted"
            elif status.name in waiting:
                state = PARTLY_QUARANTINED
            elif status.severity == "warning":
                state = PARTLY_LEFT_OUT
            else:
                continue
            row = {"server": status.name, "state": state}
            rows.append(row | ({"reason": status.reason} if status.reason else {}))
        return sorted(rows, key=lambda row: row["server"])

    def _check(self, question: Question) -> None:
        if not question.query.strip():
            raise RequestError("query is empty.", hint="Say in a few words what the tool should do.")
        if not all(map(str.strip, question.more_queries)):
            raise RequestError("more_queries has an empty entry.", hint="Leave it out, or say what the tool should do.")
        if not 1 <= question.limit <= TOP_K_LIMIT:
            raise RequestError(f"limit is {question.limit}.", hint=f"Use an integer from 1 to {TOP_K_LIMIT}.")
        if len(question.more_queries) > MORE_QUERIES_LIMIT:
            raise RequestError(
                f"more_queries has {len(question.more_queries)} entries.", hint=f"Use at most {MORE_QUERIES_LIMIT}."
            )
        others_than_tools(question.types)
        self.visible.require_servers(list(question.servers))

    def _select_ranked_ids(self, question: Question) -> tuple[Set[int] | None, Set[int]]:
        """The ids that are ranked, None for all that are indexed; those of them that wait, and are not found."""
        allowed, waiting = self.visible.ids(), self.index_sync.waiting
        if question.read_only:
            allowed = {record.id for record in self.visible.records() if _is_read_only(record)}
        if not waiting:
            return allowed, frozenset()
        seen = [record for record in waiting.values() if self.visible.sees(record)]
        wanted = frozenset(each.id for each in seen if not question.read_only or _is_read_only(each))
        return allowed if allowed is None else allowed | wanted, wanted

    async def _search(self, question: Question) -> SearchResult:
        def work() -> SearchResult:
            allowed, waiting = self._select_ranked_ids(question)
            return self._index.search(question.query, allowed=allowed, waiting=waiting, **question.bounds)

        is_plain = not (question.read_only or question.explain)
        if is_plain and self._index.is_instant(question.query, question.more_queries):
            return work()
        return await to_thread.run_sync(work)

    async def _others(self, question: Question, kinds: KindSearch) -> Found:
        """Entries of all asked types."""
        allowed, waiting = self._select_ranked_ids(question)
        tools = {each.id: each for each in self.visible.records() if allowed is None or each.id in allowed}
        return await kinds.find(question.query, question.types, tools, self.summarize, waiting, **question.bounds)

    def _answer(
        self,
        question: Question,
        found: SearchResult,
        rows: Mapping[str, Any],
        registered: Registration,
        not_covered: Sequence[Mapping[str, str]],
        others: Found | None,
        *,
        named: Collection[str],
        was_capped: bool,
    ) -> dict[str, Any]:
        near = [(hit, self.visible.by_id(hit.id)) for hit in found.near_misses]
        age_s = self.lists.age_s(self.visible.servers)
        loading = () if self.index_sync.loaded.is_set() else ("the stored index is still loading",)
        answer: dict[str, Any] = {
            "query": shorten_text(question.query),
            "total": found.total,
            **self._build_waiting_rows(found),
            **rows,
            "near_misses": [{"name": str(rec.key), "score": round(hit.score, 3)} for hit, rec in near if rec],
            "newly_registered": list(registered.newly_registered),
            "evicted": list(registered.evicted),
            "pool": registered.pool,
            "toolset": registered.toolset,
            "generation": self.catalog.snapshot.generation,
            "index_age_s": None if age_s is None else round(age_s, 1),
            "not_covered": not_covered,
            "degraded": [*self.degraded(), *found.degraded, *loading],
        }
        if not found.is_sure:
            answer["confidence"] = "low"
        if others is not None:
            answer |= others.members()
            answer["degraded"] += others.degraded
        answer["hint"] = build_answer_hint(
            answer,
            (question.query, *question.more_queries),
            found.unanswered,
            was_capped=was_capped,
            detail=question.detail,
            knows_tools=bool(self.visible.records()),
            named=named,
            kept_back=str(self.visible.find_refusal(question.query) or ""),
        )
        open_to_people = [row["server"] for row in not_covered if self.visible.servers[row["server"]].can_use_oauth]
        skills = self.kinds.skills_hint() if self.kinds is not None else ""
        answer["hint"] += build_found_hint(others) if others is not None else skills
        answer["hint"] += language_hint(found.language) + sign_in_hint(not_covered, open_to_people)
        answer["hint"] += f" {registered.reason}" if registered.reason else ""
        # Reasons are for people: an agent is never sent any.
        shown = ("tools", "found") if others is not None else ("tools",)
        plain = answer | {name: _drop_explanations(answer[name]) for name in shown} if question.explain else answer
        sent = estimate_tokens(len(msgspec.json.encode(plain)))
        answer["tokens"] = {"catalog": self.catalog_tokens(), "sent": sent, "is_estimate": True}
        if question.explain:
            left_out = ((hit, self.visible.by_id(hit.id)) for hit in found.left_out)
            answer["left_out"] = [_reason(hit, record) for hit, record in left_out if record]
        return answer

    def _build_waiting_rows(self, found: SearchResult) -> dict[str, Any]:
        """Name what belongs in an answer and waits: by its name alone, none of its text; nothing if none does."""
        records = [record for hit in found.waiting if (record := self.index_sync.waiting.get(hit.id)) is not None]
        rows = [
            {"name": str(each.key), "server": each.key.server, "approve": approve_command(each.key)} for each in records
        ]
        return {"waiting": rows} if rows else {}

    def _fit_under_cap(
        self, question: Question, shown: list[tuple[Hit, ToolRecord]]
    ) -> tuple[list[dict[str, Any]], bool]:
        """The tools as they are sent, the first always, the rest while they fit under the cap."""
        is_compact = question.detail == "compact"
        cap = COMPACT_CAP_TOKENS if is_compact else FULL_CAP_TOKENS
        tools: list[dict[str, Any]] = []
        used = 0
        for hit, record in shown:
            if is_compact:
                tool = self.summarize(record) | (build_brief_words(record) if len(tools) >= LEADING else {})
            else:
                tool = build_full_entry(record, is_stale=self._is_stale(record))
            tool |= describe_hit(hit, is_explained=question.explain)
            used += estimate_tokens(len(msgspec.json.encode(tool)))
            if tools and used > cap:
                return tools, True
            tools.append(tool)
        return tools, False

    def _is_stale(self, record: ToolRecord) -> bool:
        return not self.lists.is_fresh(record.key.server)


def _is_read_only(record: ToolRecord) -> bool:
    return record.annotations.get("readOnlyHint") is True


def _drop_explanations(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: part for key, part in entry.items() if key != "why"} for entry in entries]


def _changes(registered: Registration) -> dict[str, Any]:
    """Changes to the caller's list that the activity log keeps of a search."""
    changes = {"registered": list(registered.newly_registered), "evicted": list(registered.evicted)}
    return {key: names for key, names in changes.items() if names}


def _reason(hit: Hit, record: ToolRecord) -> dict[str, Any]:
    """Why a tool that ranked well is not in the answer."""
    return {"name": str(record.key), "score": round(hit.score, 3), "reason": hit.why["left_out"]}
