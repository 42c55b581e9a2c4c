"""Search over tools, prompts, resources and templates together: what fits, and how it is used."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import is_
from typing import Any, Final, get_args

import msgspec
from anyio import to_thread

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.indexing.documents import build_content_document, build_tool_document
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.retrieval.summaries import first_sentence
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Item
from smart_mcp_proxy.gateway.visibility.uri_templates import variables
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, Hit, ItemKind, ToolRecord
from smart_mcp_proxy.search import SearchIndex, SearchResult

ITEM_KINDS: Final[tuple[ItemKind, ...]] = get_args(ItemKind)
CONTENT_KINDS: Final[Mapping[ItemKind, ContentKind]] = {
    "prompt": "prompts",
    "resource": "resources",
    "resource_template": "templates",
    "skill": "skills",
}
"""The kinds besides tools, by the names under which agents ask for them."""
CAP_BYTES = 8_000
"""Limit on `found`, the same as on the tools: 2,000 tokens of four bytes."""
CLONES_LIMIT = 10
"""Other tools named that say the same as one in the answer."""
SHOWN_CHARS = 80
SKILLS_HINT = ' Skills, which are instructions for whole tasks, are found with types ["skill"].'
BY_WORDS = "found is ranked by words alone"

_MEMBERS: Final[Mapping[ItemKind, str]] = {
    "prompt": "name",
    "resource": "uri",
    "resource_template": "uri_template",
    "skill": "uri",
}
"""The member of an entry that holds what agents use it by."""


@dataclass(eq=False, repr=False)
class KindIndex:
    """Ranking of all kinds, apart from that of tools, which rank as if there were no prompts.

    A word is as rare as it is among all kinds, whichever are asked for: so scores compare. Few agents ask for more than
    tools: the index is filled when first asked, and from then on brought up to date before each answer.

    Attributes:
        catalog: The truth.
        index: Empty, and from now on changed here only.
        view: The whole catalog's.
        contents: As seen there.
        uses_examples: Whether questions learned from use are searched with.
        waiting: Gives by id, as approved, the tools whose changed definition waits: they rank, and are no hits.
    """

    catalog: Catalog
    index: SearchIndex
    view: CatalogView
    contents: Contents
    _: KW_ONLY
    uses_examples: bool
    waiting: Callable[[], Mapping[int, ToolRecord]] = dict

    def __post_init__(self) -> None:
        self._indexed: Mapping[int, ToolRecord] = {}
        self._brought: tuple[object, ...] = ()
        self._indexing = threading.Lock()

    def search(self, query: str, **bounds: Any) -> SearchResult:
        """Search as `SearchIndex.search` does, in a thread, the catalog as it is now."""
        with self._indexing:
            self._bring_up()
        return self.index.search(query, **bounds)

    def _bring_up(self) -> None:
        waiting = self.waiting()
        state = (self.catalog.snapshot, self.view.rules, waiting)
        if len(self._brought) == len(state) and all(map(is_, self._brought, state)):
            return
        items: dict[int, tuple[ItemKind, Item]] = {
            item.record.id: (kind, item)
            for kind, listed in CONTENT_KINDS.items()
            for item in self.contents.every(listed)
        }
        wanted = {**waiting, **{record.id: record for record in self.view.records()}}
        wanted |= {id: item.record for id, (_, item) in items.items()}
        changed = [record for id, record in wanted.items() if self._indexed.get(id) is not record]
        added = []
        for record in changed:
            if record.id in items:
                kind, item = items[record.id]
                added.append(build_content_document(record, kind, item.shown))
            else:
                added.append(build_tool_document(record, has_examples=self.uses_examples))
        self.index.update(added, self._indexed.keys() - wanted.keys())
        self._indexed, self._brought = wanted, state


class Found(msgspec.Struct, frozen=True):
    """Entries of all kinds that were asked for, in one ranking.

    Attributes:
        entries: Best first, as they are sent.
        is_sure: Whether one of them fits surely, or there is none.
        was_capped: Whether more were left out for their size.
        degraded: Why the ranking is worse than the settings ask for.
    """

    entries: Sequence[Mapping[str, Any]]
    is_sure: bool
    was_capped: bool
    degraded: tuple[str, ...]

    def members(self) -> dict[str, Any]:
        """The members that they add to an answer."""
        return {"found": self.entries} | ({} if self.is_sure else {"found_confidence": "low"})


@dataclass(eq=False, repr=False)
class KindSearch:
    """Finds tools, prompts, resources and templates that one part of the catalog shows.

    Attributes:
        contents: Prompts, resources and templates that may be found.
        index: Ranks them.
        lists: Know whether they are stale.
        proxy_tool: Name of the `proxy` tool; None where there is none.
        is_degraded: Whether the settings ask for vectors as well.
    """

    contents: Contents
    index: KindIndex
    lists: ListState
    proxy_tool: str | None
    _: KW_ONLY
    is_degraded: bool

    def __post_init__(self) -> None:
        self._degraded = (BY_WORDS,) if self.is_degraded else ()

    async def wait_listed(self, connected: Collection[str]) -> None:
        """Waits for the very first lists of servers that are connected, at most 5 s: these are on their way."""
        servers = [server for server in self.contents.servers if server in connected]
        await self.lists.wait_known(servers, *CONTENT_KINDS.values())

    def skills_hint(self) -> str:
        """A sentence of an answer that says how to find skills; empty where there are none."""
        return SKILLS_HINT if self.contents.of("skills") else ""

    async def find(
        self,
        query: str,
        types: Collection[str],
        tools: Mapping[int, ToolRecord],
        summarize: Callable[[ToolRecord], dict[str, Any]],
        waiting: Set[int],
        **bounds: Any,
    ) -> Found:
        """Entries of these types that fit.

        Args:
            query: As asked.
            types: Some of `ITEM_KINDS`.
            tools: Those that may be found, by id.
            summarize: A tool in a few words.
            waiting: Tools that rank with them and wait for approval.
            bounds: Further parts of the question, as `SearchIndex.search` takes them.
        """
        allowed: dict[int, tuple[ItemKind, Item]] = {
            item.record.id: (kind, item)
            for kind, listed in CONTENT_KINDS.items()
            if kind in types
            for item in self.contents.of(listed).values()
        }
        waiting = waiting if "tool" in types else frozenset()
        ids = allowed.keys() | (tools.keys() | waiting if "tool" in types else ())
        answer = await to_thread.run_sync(partial(self.index.search, query, allowed=ids, waiting=waiting, **bounds))
        entries: list[dict[str, Any]] = []
        used = 0
        for hit in answer.hits:
            entry = self._entry(*allowed[hit.id]) if hit.id in allowed else _tool(summarize(tools[hit.id]))
            entry |= describe_hit(hit, is_explained=bounds.get("explain", False))
            used += len(msgspec.json.encode(entry))
            if entries and used > CAP_BYTES:
                break
            entries.append(entry)
        was_capped = len(entries) < len(answer.hits)
        return Found(entries, answer.is_sure, was_capped, (*self._degraded, *answer.degraded))

    def _entry(self, kind: ItemKind, item: Item) -> dict[str, Any]:
        """A prompt, a resource or a template, with all that it takes to use it."""
        definition, member = item.definition, _MEMBERS[kind]
        if kind == "skill":
            definition = definition["frontmatter"]
        title = definition.get("title") or (definition.get("name") if kind != "prompt" else None)
        entry: dict[str, Any] = {"kind": kind, member: item.shown, "server": item.server}
        if isinstance(title, str) and title:
            entry["title"] = title
        entry["description"] = first_sentence(str(definition.get("description") or ""))
        if kind == "prompt":
            entry["arguments"] = _arguments(definition)
        elif kind == "resource_template":
            entry["variables"] = variables(item.shown)
        use: dict[str, Any] = {"request": "prompts/get" if kind == "prompt" else "resources/read"}
        if self.proxy_tool is not None:
            type_ = "prompt" if kind == "prompt" else "resource"
            use |= {"tool": self.proxy_tool, "args": {"action": "call", "type": type_, "path": item.shown}}
        return entry | {"use": use, "stale": not self.lists.is_fresh(item.server)}


def others_than_tools(types: Collection[str]) -> bool:
    """Whether these types are asked for beside or instead of tools.

    Raises:
        RequestError: One of them is none.
    """
    for type_ in types:
        if type_ not in ITEM_KINDS:
            raise RequestError(f"types has {type_[:SHOWN_CHARS]!r}.", hint=f"Known: {', '.join(ITEM_KINDS)}.")
    return bool(set(types) - {"tool"})


def build_found_hint(found: Found) -> str:
    """Further sentences of an answer's hint: how to use the entries."""
    if not found.entries:
        return " Nothing of the other types fits: found is empty."
    hint = " found has all asked types in one ranking; use says by which request or tool each is used"
    if any(entry["kind"] == "resource_template" for entry in found.entries):
        hint += ", a template with its variables filled in"
    hint += "." if found.is_sure else ". It is not certain that one of them fits."
    return hint + (" More fits than could be sent in found; ask more precisely." if found.was_capped else "")


def describe_hit(hit: Hit, *, is_explained: bool) -> dict[str, Any]:
    """Score and clones of a hit, and the reasons of its rank where they are asked for."""
    facts: dict[str, Any] = {"score": round(hit.score, 3)}
    if "clones" in hit.why:
        facts["clones"] = hit.why["clones"][:CLONES_LIMIT]
    return facts | ({"why": dict(hit.why)} if is_explained else {})


def _tool(summary: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: summary[name] for name in ("name", "server", "description", "signature")}
    return {"kind": "tool", **told, "use": {"tool": summary["call_with"]}, "stale": summary["stale"]}


def _arguments(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": argument["name"],
            "description": first_sentence(str(argument.get("description") or "")),
            "required": argument.get("required") is True,
        }
        for argument in definition.get("arguments") or ()
    ]
