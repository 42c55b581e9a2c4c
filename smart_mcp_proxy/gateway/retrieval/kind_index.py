"""Index of tools, prompts, resources and resource templates together."""

import threading
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, Final

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.gateway.indexing.documents import build_content_document, build_tool_document
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Item
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, ItemKind, ToolRecord
from smart_mcp_proxy.search import SearchIndex, SearchResult

CONTENT_KINDS: Final[Mapping[ItemKind, ContentKind]] = {
    "prompt": "prompts",
    "resource": "resources",
    "resource_template": "templates",
    "skill": "skills",
}
"""The kinds besides tools, by the names under which agents ask for them."""


class KindIndex:
    """Ranking of all kinds, apart from that of tools, which rank as if there were no prompts.

    A word is as rare as it is among all kinds, whichever are asked for: so scores compare. Few agents ask for more than
    tools: the index is filled when first asked, and from then on brought up to date before each answer.

    Args:
        catalog: The truth.
        index: Empty, and from now on changed here only.
        view: The whole catalog's.
        contents: As seen there.
        uses_examples: Whether questions learned from use are searched with.
        waiting: Gives by id, as approved, the tools whose changed definition waits: they rank, and are no hits.
    """

    def __init__(
        self,
        catalog: Catalog,
        index: SearchIndex,
        view: CatalogView,
        contents: Contents,
        *,
        uses_examples: bool,
        waiting: Callable[[], Mapping[int, ToolRecord]] = dict,
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._view = view
        self._contents = contents
        self._uses_examples = uses_examples
        self._indexed: Mapping[int, ToolRecord] = {}
        self._waiting = waiting
        self._brought: tuple[object, ...] = ()
        self._indexing = threading.Lock()

    def search(self, query: str, **bounds: Any) -> SearchResult:
        """Search as `SearchIndex.search` does, in a thread, the catalog as it is now."""
        with self._indexing:
            self._bring_up()
        return self._index.search(query, **bounds)

    def _bring_up(self) -> None:
        waiting = self._waiting()
        state = (self._catalog.snapshot, self._view.rules, waiting)
        if len(self._brought) == len(state) and all(map(is_, self._brought, state)):
            return
        items: dict[int, tuple[ItemKind, Item]] = {
            item.record.id: (kind, item)
            for kind, listed in CONTENT_KINDS.items()
            for item in self._contents.every(listed)
        }
        wanted = {**waiting, **{record.id: record for record in self._view.records()}}
        wanted |= {id: item.record for id, (_, item) in items.items()}
        changed = [record for id, record in wanted.items() if self._indexed.get(id) is not record]
        added = []
        for record in changed:
            if record.id in items:
                kind, item = items[record.id]
                added.append(build_content_document(record, kind, item.shown))
            else:
                added.append(build_tool_document(record, has_examples=self._uses_examples))
        self._index.update(added, self._indexed.keys() - wanted.keys())
        self._indexed, self._brought = wanted, state
