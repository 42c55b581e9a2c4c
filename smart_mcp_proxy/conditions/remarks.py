"""Conditions as they were found, in the words of the table."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from smart_mcp_proxy.conditions.table import CONDITIONS, Severity

_SEVERITIES: Final[tuple[Severity, ...]] = ("", "note", "warning", "error")
_NAMED: Final = 5
"""Left-out definitions that a row names; the others are counted."""


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
