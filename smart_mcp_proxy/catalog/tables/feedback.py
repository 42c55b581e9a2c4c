"""The SQL of examples: questions that a tool answered before, learned from use."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, Select, case, delete, exists, func, literal, select, tuple_, update

from smart_mcp_proxy.catalog.tables.schema import examples, tools
from smart_mcp_proxy.catalog.tables.upsert import upsert
from smart_mcp_proxy.models import ToolKey

USES_NEEDED: Final = 2
"""A question is searched with from its second use on: once may be chance, or what a hostile text made an agent do."""
_KEPT_PER_TOOL = 20
"""Confirmed questions of one tool; as many again may wait for their second use. Beyond, a tool with many questions
would look like a fit for every query."""
_AHEAD_S = 3_600.0
"""Lead over now beyond which a time of use was stored while the clock was ahead: it would leave last, and what is new
at once. It is set this far behind now instead."""
_KEPT = 10_000
"""In all, some 2 MB; the least recently used leave first."""

_KEY = (examples.c.server_name, examples.c.name, examples.c.words)


class Lesson(msgspec.Struct, frozen=True):
    """A question that was followed by a successful call of a tool it had found.

    Attributes:
        key: The tool.
        question: As it was asked, cleaned.
        words: Its search terms: two wordings with the same ones are one question.
        at_s: When, in seconds since the epoch.
    """

    key: ToolKey
    question: str
    words: str
    at_s: float


class Example(msgspec.Struct, frozen=True):
    """A question that a tool answered.

    Attributes:
        question: As it was first asked.
        uses: How often the tool was called after it.
        last_used_s: When it was last, in seconds since the epoch.
    """

    question: str
    uses: int
    last_used_s: float

    @property
    def is_confirmed(self) -> bool:
        """Whether searches use it."""
        return self.uses >= USES_NEEDED


def learn(connection: Connection, lessons: Sequence[Lesson], now_s: float) -> set[ToolKey]:
    """Count lessons about existing tools, within the limits; returns tools whose examples changed."""
    is_ahead = examples.c.last_used_s > now_s + _AHEAD_S
    connection.execute(update(examples).where(is_ahead).values(last_used_s=now_s - _AHEAD_S))
    changed = {lesson.key for lesson in lessons if _count(connection, lesson) == USES_NEEDED}
    keys_newest_first = select(*_KEY).order_by(examples.c.last_used_s.desc(), examples.c.words)
    for server, name in {lesson.key for lesson in lessons}:
        own = keys_newest_first.where(examples.c.server_name == server, examples.c.name == name)
        for group in (examples.c.uses >= USES_NEEDED, examples.c.uses < USES_NEEDED):
            changed |= _drop(connection, own.where(group).offset(_KEPT_PER_TOOL))
    if connection.execute(select(func.count()).select_from(examples)).scalar_one() > _KEPT:
        changed |= _drop(connection, keys_newest_first.offset(_KEPT))
    return changed


def _count(connection: Connection, lesson: Lesson) -> int:
    """Count how often the question has led to its tool; 0 if the tool has left."""
    server, name = lesson.key
    is_known = exists().where(tools.c.server_name == server, tools.c.name == name)
    values = (server, name, lesson.words, lesson.question, 1, lesson.at_s)
    row = upsert(connection, examples).from_select(
        [column.name for column in examples.columns], select(*map(literal, values)).where(is_known)
    )
    before_s, now_s = examples.c.last_used_s, row.excluded.last_used_s
    counted = row.on_conflict_do_update(
        index_elements=_KEY,
        set_={"uses": examples.c.uses + 1, "last_used_s": case((before_s > now_s, before_s), else_=now_s)},
    ).returning(examples.c.uses)
    return connection.execute(counted).scalar() or 0


def _drop(connection: Connection, keys: Select[str, str, str]) -> set[ToolKey]:
    """Deletes these rows; returns the tools that lost a confirmed one."""
    gone = delete(examples).where(tuple_(*_KEY).in_(keys)).returning(*_KEY, examples.c.uses)
    return {ToolKey(row.server_name, row.name) for row in connection.execute(gone) if row.uses >= USES_NEEDED}


def forget(connection: Connection, key: ToolKey | None, words: str | None) -> tuple[int, set[ToolKey]]:
    """Delete examples; returns the number of questions, and the tools whose examples changed.

    Args:
        connection: Writing.
        key: Of this tool; None for all.
        words: Only the question with these search terms; None for all.
    """
    gone = delete(examples).returning(examples.c.server_name, examples.c.name, examples.c.uses)
    if key is not None:
        gone = gone.where(examples.c.server_name == key.server, examples.c.name == key.tool)
    if words is not None:
        gone = gone.where(examples.c.words == words)
    rows = connection.execute(gone).all()
    return len(rows), {ToolKey(row.server_name, row.name) for row in rows if row.uses >= USES_NEEDED}


def of_tool(connection: Connection, key: ToolKey) -> tuple[Example, ...]:
    """Everything learned about a tool, most used first, what is not confirmed yet included."""
    rows = connection.execute(
        select(examples)
        .where(examples.c.server_name == key.server, examples.c.name == key.tool)
        .order_by(examples.c.uses.desc(), examples.c.last_used_s.desc(), examples.c.words)
    )
    return tuple(Example(row.question, row.uses, row.last_used_s) for row in rows)
