"""One way in which an attack on an agent says something, and the words that put a phrase in another light."""

import re
from typing import NamedTuple

__all__ = ["MARKS", "MIDDLE", "PLAIN_PURPOSE", "STRONG", "WEAK", "Anchors", "Phrase", "anchored", "phrase", "stands"]

STRONG, MIDDLE, WEAK = 1.0, 0.6, 0.35
"""Alone enough; enough with anything else; enough with two others. Set by hand, see tests/policy/scanner_set."""


class Anchors(NamedTuple):
    """Pieces of text without one of which a pattern cannot match: looking for them is much faster.

    Attributes:
        words: Without a blank; a text's different words are enough to look for these.
        sequences: The others.
    """

    words: tuple[str, ...]
    sequences: tuple[str, ...]


class Phrase(NamedTuple):
    """One way of saying something.

    Attributes:
        check: What it is evidence of; several phrases of one check count once.
        weight: Of the evidence.
        reason: One sentence for the finding.
        anchors: The pattern cannot match where none of these stands.
        pattern: Over text in lower case, single spaces.
    """

    check: str
    weight: float
    reason: str
    anchors: Anchors
    pattern: re.Pattern[str]


def stands(text: str, anchors: tuple[str, ...]) -> bool:
    """Whether any of the anchors stands in the text; a plain loop, because a tool is asked hundreds of them."""
    for anchor in anchors:  # noqa: SIM110
        if anchor in text:
            return True
    return False


def anchored(anchors: str) -> Anchors:
    """The anchors that are written with `|` between them."""
    pieces = anchors.split("|")
    return Anchors(
        tuple(piece for piece in pieces if " " not in piece), tuple(piece for piece in pieces if " " in piece)
    )


def phrase(check: str, weight: float, reason: str, anchors: str, *patterns: str) -> Phrase:
    """A phrase that is said in any of the ways of `patterns`; `anchors` are separated by `|`."""
    return Phrase(check, weight, reason, anchored(anchors), re.compile("|".join(patterns)))


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
