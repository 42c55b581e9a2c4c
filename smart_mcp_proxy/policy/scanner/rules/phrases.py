"""Phrases of attacks, and words that change the meaning of a phrase."""

import re
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.rules.prefilter import Way, ways

__all__ = ["MARKS", "MIDDLE", "PLAIN_PURPOSE", "STRONG", "WEAK", "Phrase", "phrase"]

STRONG, MIDDLE, WEAK = 1.0, 0.6, 0.35
"""Alone enough in a text that is otherwise as likely honest as not; enough with another; enough with two others. Set by
hand, see tests/policy/scanner_set."""


class Phrase(NamedTuple):
    """One way of saying something.

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


def phrase(check: str, weight: float, reason: str, *patterns: str) -> Phrase:
    """A phrase that is said in any of the ways of `patterns`."""
    return Phrase(check, weight, reason, ways("|".join(patterns)))


PLAIN_PURPOSE = re.compile(
    r"\b(?:add(?:s|ition)?|subtract\w*|multipl\w+|divid\w+|calculat\w+|comput\w+|sums?|arithmetic|math\w*|convert\w*|"
    r"formats?|formatting|uppercase\w*|lowercase\w*|capitaliz\w+|revers\w+|count\w*|round\w*|translat\w+|weather|"
    r"forecast|temperature|joke|jokes|quote of|facts?\b|trivia|horoscope|time ?zones?|current time|date|dice|coin|"
    r"random|uuid|unique identifiers?|color|colour|theme|icon|badge|emoji|greet\w*|hello|spell\w*|grammar|"
    r"shipping costs?|currency|exchange rate|unit|units|bmi|recipe\w*|ascii|markdown|json formatter|prettif\w+|"
    r"beautif\w+|compress\w+|resiz\w+|thumbnail|palindrome|prime|fibonacci|factorial|lorem|slugif\w+|haiku|poem|"
    r"stock price|sports?|score|movie|song|lyrics|dictionary|definition of|synonym\w*|ping)\b"
)
"""Purposes that need nothing of the user's but the argument itself."""

MARKS = re.compile(
    r"\b(?:e\.?g\.?|for example|examples?|such as|sample|detects?|detecting|checks? (?:whether|if|for)|scans? (?:for|"
    r"prompts)|flags?|identif\w+|looks? for|strings such as|documentation|documents|describes?|tests? (?:for|"
    r"whether)|filters? out|blocks?|prevents?|protects? against|redact\w*|mask\w*|warns?|explains?|lint\w*|"
    r"classif\w*|sanitiz\w*|sanitis\w*|searches for|tests?|refus\w+|reject\w*|guards?|security-testing|vulnerability|"
    r"returns? an error)\b"
)
"""Words before a phrase that say that it is talked about, not said."""
