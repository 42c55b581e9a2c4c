"""Rule files: phrases, words and expressions that the scanner looks for, as data beside this module.

A rule file is TOML. Its patterns are regular expressions over text in lower case with single spaces; a list of them is
an alternation, the first counts where two match at one place. `(?&name)` stands for the fragment of that name. Patterns
of phrases and words have to be written so that `prefilter` can read them.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from smart_mcp_proxy.policy.scanner.rules.prefilter import Way, ways

CERTAIN = 1.75
STRONG = 1.0
MIDDLE = 0.6
CONDITION = 0.4
WEAK = 0.35
"""Enough in any text; enough in a text that is otherwise as likely honest as not; enough with another; enough with
what is enough with anything else; enough with two others. Set by hand, see tests/policy/scanner_set."""
_WEIGHTS = {"certain": CERTAIN, "strong": STRONG, "middle": MIDDLE, "condition": CONDITION, "weak": WEAK}
_REFERENCE = re.compile(r"\(\?&(\w+)\)")


class Phrase(NamedTuple):
    """A phrase to look for: its alternative patterns, and what it is evidence of.

    Attributes:
        check: What it is evidence of; several phrases of one check count once.
        weight: Of the evidence.
        reason: One sentence for the finding.
        ways: Of saying it; where two begin at one place, the first counts.
    """

    check: str
    weight: float
    reason: str
    ways: tuple[Way, ...]


class RuleFile:
    """The rules of one file, compiled.

    Args:
        name: The file's, without its ending.
    """

    def __init__(self, name: str) -> None:
        text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
        self._entries: dict[str, Any] = tomllib.loads(text)
        self._fragments: dict[str, str] = {}
        for fragment, written in self._entries.get("fragments", {}).items():
            pattern = self._pattern(written)
            self._fragments[fragment] = pattern if isinstance(written, str) else f"(?:{pattern})"

    def phrases(self) -> tuple[Phrase, ...]:
        """Entries of `phrase`, in their order."""
        return tuple(
            Phrase(entry["check"], _WEIGHTS[entry["weight"]], entry["reason"], self._ways(entry))
            for entry in self._entries["phrase"]
        )

    def words(self, group: str) -> tuple[tuple[Way, ...], ...]:
        """The ways of naming each term of a group; of two that begin at one place the first counts."""
        return tuple(map(self._ways, self._entries[group]))

    def expression(self, name: str) -> re.Pattern[str]:
        """An entry of `expressions`."""
        return re.compile(self._pattern(self._entries["expressions"][name]))

    def terms(self, name: str) -> frozenset[str]:
        """A list of single words, which are no patterns."""
        return frozenset(self._entries[name])

    def _ways(self, entry: dict[str, Any]) -> tuple[Way, ...]:
        return ways(self._pattern(entry["patterns"]))

    def _pattern(self, written: str | list[str]) -> str:
        pattern = written if isinstance(written, str) else "|".join(written)
        return _REFERENCE.sub(lambda match: self._fragments[match[1]], pattern)
