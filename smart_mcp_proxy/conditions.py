"""Conditions of servers, entries and tools that their user has to know of, in one table.

Tables of the command line, `doctor`, `serve --check`, REST, the page, searches and refused calls take them from here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Severity = Literal["", "note", "warning", "error"]
"""error: it cannot be used, and its state is `error`; warning: a part of it cannot, `serve --check` fails; note: all of
it can be used, `doctor` says so."""

_AT_FAULT = "The server is at fault: update it, or report it to its makers."

_SEVERITIES: Final[tuple[Severity, ...]] = ("", "note", "warning", "error")
_NAMED: Final = 5
"""Left-out definitions that a row names; the others are counted."""


class ConditionRow(NamedTuple):
    """Row of the table.

    Attributes:
        words: One sentence, with fields to fill in.
        hint: What to do about it.
        severity: How bad it is.
    """

    words: str
    hint: str
    severity: Severity

    def message(self, **facts: Any) -> str:
        """The sentence with its fields filled in."""
        return self.words.format_map(facts)


CONDITIONS: Final[Mapping[str, ConditionRow]] = {
    "entry_colon": ConditionRow(
        "Server {name!r} has a colon in its name, which separates server and tool.", "Rename it.", "error"
    ),
    "entry_unseen": ConditionRow(
        "Server {name!r} has an empty name or one with invisible characters.", "Rename it.", "error"
    ),
    "list_failed": ConditionRow(
        "Server '{server}' is connected, but its {kinds} cannot be listed:",
        "It is asked again every {retry_s:g} s.",
        "error",
    ),
    "list_stale": ConditionRow(
        "Server '{server}' is connected, but its {kinds} cannot be listed any more, and its last list is kept:",
        "It is asked again every {retry_s:g} s.",
        "warning",
    ),
    "left_out": ConditionRow(
        "{count} of {listed} {kinds} left out: {each}.",
        f'{_AT_FAULT} What is not needed can be named in its entry: "tools": {{"exclude": ["NAME"]}}',
        "warning",
    ),
    "output_schemas": ConditionRow(
        "Kept from clients up to 2025-11-25, which could not read the list, {count} of its output schemas: {each}.",
        "The tools can be called all the same. The server is at fault: update it, or report it to its makers.",
        "note",
    ),
    "tool_left_out": ConditionRow(
        "Server '{server}' lists the tool '{tool}', but it cannot be used: {cause}.", _AT_FAULT, "error"
    ),
}


class LeftOut(NamedTuple):
    """A definition that a server lists and that cannot be used.

    Attributes:
        name: Its name or URI, or its place in the list where it has none.
        cause: Why, in words of ours alone: agents see them, and nobody has approved the server's.
    """

    name: str
    cause: str


class Remark(NamedTuple):
    """A condition as it was found.

    Attributes:
        message: For people.
        hint: What they can do.
        severity: How bad it is.
        reason: For agents: without names of definitions, which nobody has approved.
        said: Words of the server that the reason ends with.
    """

    message: str
    hint: str
    severity: Severity
    reason: str
    said: str = ""


def build_left_out_remark(kinds: str, definitions: Sequence[LeftOut], count: int, listed: int) -> Remark:
    """The remark on definitions that cannot be used.

    Args:
        kinds: Plural of what they are.
        definitions: At least one of them; not necessarily all.
        count: How many they are.
        listed: How many the server lists, these included.
    """
    row = CONDITIONS["left_out"]
    causes = "; ".join(dict.fromkeys(cause for _, cause in definitions))
    facts = {"count": count, "listed": listed, "kinds": kinds}
    return Remark(
        row.message(**facts, each=_format_definitions(definitions, count)),
        row.hint,
        row.severity,
        row.message(**facts, each=causes),
    )


def output_schemas(tools: Sequence[LeftOut]) -> Remark:
    """The remark on tools whose output schemas some clients cannot read; for people alone."""
    row = CONDITIONS["output_schemas"]
    return Remark(
        row.message(count=len(tools), each=_format_definitions(tools, len(tools))), row.hint, row.severity, ""
    )


def _format_definitions(definitions: Sequence[LeftOut], count: int) -> str:
    shown = [f"{name} ({cause})" for name, cause in definitions[:_NAMED]]
    return ", ".join([*shown, *([f"and {count - len(shown):,} more"] if count > len(shown) else [])])


def worst(remarks: Sequence[Remark]) -> Severity:
    """The highest severity of these; empty without any."""
    return max((remark.severity for remark in remarks), key=_SEVERITIES.index, default="")
