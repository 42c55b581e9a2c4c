"""Interface of engines."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document, Hit

Arrays = Mapping[str, NDArray[Any]]
"""Part of an index as it is stored, by name."""

LOWER_FLOOR = 0.7
"""The fitness from which a hit may be an answer. Between it and 1, agents judge better than a threshold: the
floors of 1 alone left 3 to 13 % of three sets of answerable queries empty, this one 0.3 to 3 %, at 0.001 to 0.009 of
recall@5."""
UPPER_FLOOR = 1.0
"""The fitness from which a hit surely is one: the unit of fitness."""
_PER_SERVER = 5
"""Places before the crowd's that one server may fill, or an even share of them where there are few servers: one that
floods the catalog does not make a crowd."""


class Fit(IntEnum):
    """Whether the best hit answers a query.

    `MAYBE` lies between the two floors of the contract: it is shown, and said to be uncertain.
    """

    NO = 0
    MAYBE = 1
    YES = 2


class Scores(NamedTuple):
    """A ranking, best first.

    Attributes:
        ids: Shape (n,).
        scores: In [0, 1], shape (n,).
        weight: Of the query's terms together, in nats: `weight * scores**3` is the evidence for each.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.floating[Any]]
    weight: float = 0.0

    def hits(self) -> list[Hit]:
        """A hit for each."""
        return list(map(Hit, self.ids.tolist(), self.scores.tolist()))


class Engine(Protocol):
    """Ranks documents against a query. Reading methods may run in any thread while one `update` runs."""

    name: str
    is_instant: bool
    """Whether ranking takes a fraction of a millisecond, less than handing it to another thread and back."""

    @property
    def problem(self) -> str | None:
        """Why it ranks worse than it should at present, one sentence; None if it does not."""

    def __len__(self) -> int:
        """Number of documents that can be found."""

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        """Make `added` searchable and forget `removed`, atomically for searches.

        An added id that is known is replaced, an unknown removed one is ignored.
        """

    def rank(self, query: str, depth: int, allowed: Set[int] | None) -> list[Hit]:
        """At most `depth` hits with a score above 0, best first; ties at the end go by `compute_tie_break`.

        Args:
            query: Any text.
            depth: At least 1.
            allowed: Ids that may appear, a set that does not change any more; None for all.
        """

    def fit(self, query: str, id: int, allowed: Set[int] | None = None) -> Fit:
        """Fit of the query's best hit; `NO` for an unknown id.

        Args:
            query: Any text.
            id: The best of what `rank` gave.
            allowed: As in `rank`: what the hit has to stand out from.
        """

    def fitness(self, query: str, id: int, allowed: Set[int] | None = None) -> float:
        """Fitness of a hit, 0 or more: from 1 on it fits, from 0.7 on it may; 0 for an unknown id."""

    def meets(self, query: str, ids: Collection[int]) -> bool:
        """Whether one of these documents holds a word of the query, or what may stand for one."""

    def explain(
        self, query: str, ids: Collection[int], allowed: Set[int] | None = None
    ) -> Mapping[int, Mapping[str, Any]]:
        """Explain, for people, which parts of each document answered; without unknown ids.

        There is no prior to tell of: only query and definition, with the questions learned for it, decide.

        Args:
            query: Any text.
            ids: Of the documents, of what `rank` may give.
            allowed: As in `rank`: what the documents were ranked among.
        """


def classify_fitness(fitness: float) -> Fit:
    """The fit of a hit with this fitness."""
    if fitness >= UPPER_FLOOR:
        return Fit.YES
    return Fit.MAYBE if fitness >= LOWER_FLOOR else Fit.NO


class LexicalEngine(Engine, Protocol):
    """Engine that ranks by words and reports how well they fit, for fusion with others.

    What it explains has `lexical`, its score.
    """

    def scores(self, query: str, depth: int, allowed: Set[int] | None) -> Scores:
        """Rank like `rank`, as arrays: a search that only compares hits makes no objects."""


@runtime_checkable
class Storable(Protocol):
    """Engine whose work on the documents can be stored, so that the next start need not do it again."""

    def dump_arrays(self, ids: NDArray[np.int64]) -> Arrays:
        """Return the work on these documents, which are all that there are, numbered in this order."""

    def restore(self, arrays: Arrays, documents: dict[int, Document], ids: NDArray[np.int64]) -> None:
        """Make documents searchable again, in place of all that were.

        Args:
            arrays: What was stored.
            documents: By id, never changed afterwards.
            ids: In the order in which they were stored; -1 for one that is not among `documents` any more.
        """


def crowd_place(servers: Sequence[Hashable], crowd: int, count: int) -> int | None:
    """The place of a ranking that is the crowd's, from 0; None if the ranking does not reach it.

    Args:
        servers: Of the ranked tools, best first; None for a tool that is gone.
        crowd: Number of the tools that count, up to the one in the crowd's place; at least 1.
        count: Of all servers.
    """
    per_server = max(_PER_SERVER, math.ceil(crowd / max(1, count)))
    first = servers[:crowd]
    if len(first) == crowd and None not in first and max(Counter(first).values()) <= per_server:
        return crowd - 1
    taken: Counter[Hashable] = Counter()
    counted = 0
    for place, server in enumerate(servers):
        if server is not None and taken[server] < per_server:
            taken[server] += 1
            counted += 1
            if counted == crowd:
                return place
    return None
