"""Record of the calls that a script made and how each ended, for its agent."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from smart_mcp_proxy.errors import Delivery

_NAME_CHARS = 100
_LISTED_GROUPS = 50
"""Calls are listed by tool and outcome; a script that calls more tools than this hears how many are left out."""


@dataclass(slots=True)
class Entry:
    """A call that the script made.

    Attributes:
        name: The tool as the script wrote it.
        outcome: `ok`, `tool_error` or an error code; `cancelled` until it has ended.
        delivery: What is known of its arrival.
    """

    name: str
    outcome: str = "cancelled"
    delivery: Delivery = "not_sent"


class Ledger:
    """Every call of one script."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, name: str) -> Entry:
        """The entry of a call that is about to be made."""
        entry = Entry(name[:_NAME_CHARS])
        self._entries.append(entry)
        return entry

    @property
    def delivery(self) -> Delivery:
        """Delivery of the script as a whole: unknown if any call's is, else executed if any was."""
        found = {entry.delivery for entry in self._entries}
        return "unknown" if "unknown" in found else "executed" if "executed" in found else "not_sent"

    def groups(self) -> list[dict[str, Any]]:
        """The calls by tool and outcome, in the order of their first."""
        counted = Counter((entry.name, entry.outcome) for entry in self._entries)
        groups: list[dict[str, Any]] = [
            {"name": name, "outcome": outcome, "count": count} for (name, outcome), count in counted.items()
        ]
        if rest := groups[_LISTED_GROUPS:]:
            others = {"name": f"{len(rest)} others", "outcome": "various", "count": sum(each["count"] for each in rest)}
            return [*groups[:_LISTED_GROUPS], others]
        return groups
