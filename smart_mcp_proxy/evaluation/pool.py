"""The tools that an evaluation searches: those of a file, or those of the catalog."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from smart_mcp_proxy.catalog import approval_digest, change_hash
from smart_mcp_proxy.catalog.hashing import json_text
from smart_mcp_proxy.evaluation.files import LabelledTool
from smart_mcp_proxy.gateway.indexing.documents import build_tool_document
from smart_mcp_proxy.models import Document, ToolRecord
from smart_mcp_proxy.names import build_listed_name


class ToolCorpus(msgspec.Struct, frozen=True):
    """Tools as a catalog holds them.

    Attributes:
        records: In no order that counts.
        source_of: Where a tool comes from, by id; what is not in it has no source.
        has_examples: Whether questions learned from use are searched.
    """

    records: tuple[ToolRecord, ...]
    source_of: Mapping[int, str]
    has_examples: bool = False

    @property
    def sources(self) -> frozenset[str]:
        """Every source of a tool here."""
        return frozenset(self.source_of[record.id] for record in self.records if record.id in self.source_of)

    def names(self) -> frozenset[str]:
        """The canonical names of the tools."""
        return frozenset(str(record.key) for record in self.records)

    def servers(self) -> frozenset[str]:
        """The servers that have a tool here."""
        return frozenset(record.key.server for record in self.records)

    def only(self, sources: Collection[str]) -> "ToolCorpus":
        """The tools that come from one of `sources`."""
        return self._where(lambda source: source in sources)

    def without(self, sources: Collection[str]) -> "ToolCorpus":
        """The tools that come from elsewhere."""
        return self._where(lambda source: source not in sources)

    def documents(self) -> list[Document]:
        """Searchable documents of the tools."""
        return [build_tool_document(record, has_examples=self.has_examples) for record in self.records]

    def _where(self, is_kept: Callable[[str], bool]) -> "ToolCorpus":
        kept = tuple(record for record in self.records if is_kept(self.source_of.get(record.id, "")))
        return ToolCorpus(kept, self.source_of, self.has_examples)


def pool_of_tools(tools: Sequence[LabelledTool], name_limit: int) -> ToolCorpus:
    """A catalog of these tools, in memory.

    Args:
        tools: Each key once.
        name_limit: Longest listed name, in characters.
    """
    records = tuple(_records(tools, name_limit))
    sources = {record.id: tool.source for record, tool in zip(records, tools, strict=True) if tool.source}
    return ToolCorpus(records, sources)


def _records(tools: Iterable[LabelledTool], name_limit: int) -> Iterable[ToolRecord]:
    taken: set[str] = set()
    for id, tool in enumerate(tools, 1):
        listed = build_listed_name(tool.key, name_limit, taken)
        taken.add(listed)
        full_hash = change_hash(tool.key.server, tool.definition)
        hints = tool.definition.get("annotations", {})
        yield ToolRecord(
            id=id,
            key=tool.key,
            listed_name=listed,
            raw=json_text(tool.definition).encode(),
            change_hash=full_hash,
            digest=approval_digest(full_hash),
            annotations={hint: value for hint, value in hints.items() if isinstance(value, bool)},
        )
