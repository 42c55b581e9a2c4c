"""Table of conditions that users and agents have to know of, each with words, hint and severity.

Tables of the command line, `doctor`, `serve --check`, REST, the page, searches and refused calls take them from here.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

Severity = Literal["", "note", "warning", "error"]
"""error: it cannot be used, and its state is `error`; warning: a part of it cannot, `serve --check` fails; note: all of
it can be used, `doctor` says so."""

_AT_FAULT = "The server is at fault: update it, or report it to its makers."


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
