"""Learning from use: a question that led to a successful call becomes the tool's example."""

import re
import time
import unicodedata
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from smart_mcp_proxy.catalog import Catalog, Lesson
from smart_mcp_proxy.errors import RequestError, ToolNotFoundError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import parse_canonical
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.telemetry import redact

WINDOW_S = 600.0
"""An agent calls what it looked for within seconds; ten minutes leave its user the time to approve."""
SEARCHES_KEPT = 5
"""An agent searches for one step of a task at a time, often for all of them before the first call."""
AGENTS_KEPT = 1_000
"""Agents whose last searches are remembered, some megabytes; the agent that has been silent longest is forgotten."""
QUESTION_LIMIT_CHARS = 200
"""A longer one is a whole task with its particulars, not a question that one tool answers."""

_SECRET = re.compile(
    r"""
    (?i:\b(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[\s_-]?key|authorization|credentials?)\b\s*(?:[:=]|\bis\b)\s*\S)
    | (?i:\b(?:bearer|basic)\s+\S{8})
    | -----BEGIN
    | ://[^/\s:@]+:[^/\s@]+@                                               # a password in an address
    | \b(?:sk|pk|rk|gh[opusr]|github_pat|glpat|xox[abeprs]|AKIA|ASIA)[-_]?[A-Za-z0-9]{8}
    | (?=[\w+/=-]{0,200}\d)(?=[\w+/=-]{0,200}[A-Za-z])(?<![\w+/=-])[\w+=-]{20}   # keys, hashes, parts of a JWT
    """,
    re.VERBOSE,
)
"""Texts that look like secrets to people who hunt for them; a question too many left out costs nothing."""


class _Search(msgspec.Struct, frozen=True):
    """A search that an agent made.

    Attributes:
        question: What it asked, cleaned.
        found: The tools it was shown and has not called since.
        at_s: When, in monotonic seconds.
    """

    question: str
    found: set[ToolKey]
    at_s: float


@dataclass(eq=False, repr=False)
class Learning:
    """Puts searches and the calls that follow them together.

    Attributes:
        store: Takes a lesson; must neither wait nor fail.
        clock: Monotonic seconds.
        wall: Seconds since the epoch, by which lessons of all gateways on one store are ordered.
    """

    store: Callable[[Lesson], None]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._searches: OrderedDict[tuple[str, str | None], deque[_Search]] = OrderedDict()

    def record_search(self, principal: str, session: str | None, question: str, found: Collection[ToolKey]) -> None:
        """Remembers what an agent asked and was shown.

        Args:
            principal: On whose behalf it searched.
            session: Its session, where it has one.
            question: In words; nothing is learned from a tool's name.
            found: The tools it was shown.
        """
        cleaned = normalize_question(question)
        if cleaned is None or not found:
            return
        agent = (principal, session)
        recent = self._searches.setdefault(agent, deque(maxlen=SEARCHES_KEPT))
        recent.append(_Search(cleaned, set(found), self.clock()))
        self._searches.move_to_end(agent)
        if len(self._searches) > AGENTS_KEPT:
            self._searches.popitem(last=False)

    def learn_from_call(self, principal: str, session: str | None, key: ToolKey) -> None:
        """Learns from a successful call, if the same agent has found its tool by a question shortly before.

        A search teaches one lesson about a tool, however often the tool is called after it.
        """
        earliest_s = self.clock() - WINDOW_S
        for search in reversed(self._searches.get((principal, session), ())):
            if search.at_s >= earliest_s and key in search.found:
                search.found.discard(key)
                self.store(Lesson(key, search.question, normalize_wording(search.question), self.wall()))
                return


def normalize_question(text: str) -> str | None:
    """Normalise a question for storage; None if too long, wordless, or possibly a secret."""
    visible = "".join(" " if character.isspace() else character for character in text[: 2 * QUESTION_LIMIT_CHARS])
    visible = "".join(character for character in visible if not unicodedata.category(character).startswith("C"))
    question = " ".join(visible.split())
    if not question or len(text) > 2 * QUESTION_LIMIT_CHARS or len(question) > QUESTION_LIMIT_CHARS:
        return None
    if redact(text) != text or redact(question) != question or _SECRET.search(question):
        return None
    return question if terms(question) else None


def normalize_wording(question: str) -> str:
    """Return the search terms of a question, by which two wordings of it are the same."""
    return " ".join(sorted(set(terms(question))))


@asynccontextmanager
async def open_learning(catalog: Catalog, index_sync: IndexSync, clock: Callable[[], float]) -> AsyncIterator[Learning]:
    """Open the learner; examples are stored off the call path and searched at once."""

    async def store(lessons: Sequence[Lesson]) -> None:
        await catalog.learn(lessons)
        await index_sync.follow()

    async with Recorder(store, noun="lessons from use") as recorder:
        yield Learning(recorder.record, clock, catalog.now_s)


async def forget_examples(catalog: Catalog, name: str | None, question: str | None) -> int:
    """Forgets what was learned about one tool, or all; returns how many questions that were.

    Args:
        catalog: Has them.
        name: Canonical or listed; None for all tools.
        question: Only this one, in any wording with the same words; None for all.

    Raises:
        ToolNotFoundError: The catalog has no tool of that name, and so no examples of it.
        RequestError: The question holds no word.
    """
    words = None if question is None else normalize_wording(question)
    if words == "":
        raise RequestError(
            f"The question {question!r:.80} holds no word.", hint="Give it as mcpproxy tool show has it."
        )
    if name is None:
        return await catalog.forget_examples(None, words)
    snapshot = catalog.snapshot
    key = parse_canonical(name)
    record = (snapshot.by_key.get(key) if key else None) or snapshot.by_listed.get(name)
    if record is None:
        raise ToolNotFoundError(
            f"No tool is named {name[:QUESTION_LIMIT_CHARS]!r}.",
            hint="Only tools that are in the catalog have examples; mcpproxy tool list names them.",
        )
    return await catalog.forget_examples(record.key, words)
