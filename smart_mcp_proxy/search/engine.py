"""What the search room asks of anything that ranks tools."""

from collections.abc import Iterable, Mapping, Set
from typing import Any, Protocol

from smart_mcp_proxy.models import Document, Hit

__all__ = ["Engine"]


class Engine(Protocol):
    """Ranks documents against a query. Reading methods may run in any thread while one `update` runs."""

    name: str

    def __len__(self) -> int:
        """How many documents can be found."""

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        """Makes `added` searchable and forgets `removed`; an added id that is known is replaced, an unknown removed
        one ignored. A search sees all of the change or nothing of it."""

    def rank(self, query: str, depth: int, allowed: Set[int] | None) -> list[Hit]:
        """At most `depth` hits with a score above 0, best first, equal scores by id.

        Args:
            query: Any text.
            depth: At least 1.
            allowed: Ids that may appear; None for all.
        """

    def fits(self, query: str, id: int) -> bool:
        """Whether the query's best hit is good enough to be an answer; False for an unknown id."""

    def explain(self, query: str, id: int) -> Mapping[str, Any]:
        """What in the document answered the query, for people; empty for an unknown id."""
