"""One way in which an attack on an agent says something, and the words that put a phrase in another light."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "MARKS",
    "MIDDLE",
    "PLAIN_PURPOSE",
    "STRONG",
    "WEAK",
    "Anchors",
    "Phrase",
    "anchored",
    "phrase",
    "pieces_in",
    "stands",
]

STRONG, MIDDLE, WEAK = 1.0, 0.6, 0.35
"""Alone enough; enough with anything else; enough with two others. Set by hand, see tests/policy/scanner_set."""


class Anchors(NamedTuple):
    """Pieces of text without one of which a pattern cannot match: looking for them is much faster.

    Attributes:
        words: A bit for each piece without a blank; some word of a text has to hold one of these.
        sequences: The others: the bit of the longest word of each, and the piece.
    """

    words: int
    sequences: tuple[tuple[int, str], ...]


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


_BITS: dict[str, int] = {}
"""A bit for each piece that is looked for in words, set while the phrases are read in."""
_BEGINNINGS: dict[str, list[tuple[str, int]]] = {}
"""The same by their first two letters, those of one letter by that."""
KNOWN_WORDS = 8_192
"""Words of which it is remembered what they hold: about 2 MiB."""


def pieces_in(words: Iterable[str]) -> int:
    """A bit for each piece that stands in one of these words."""
    held = 0
    for word in words:
        held |= _pieces_of(word)
    return held


@lru_cache(maxsize=KNOWN_WORDS)
def _pieces_of(word: str) -> int:
    """Looks at each place only for the pieces that begin with the letters there."""
    held = 0
    for at in range(len(word)):
        for start in (word[at], word[at : at + 2]):
            if start in _BEGINNINGS:
                for piece, bit in _BEGINNINGS[start]:
                    if word.startswith(piece, at):
                        held |= bit
    return held


def stands(held: int, text: str, anchors: Anchors) -> bool:
    """Whether any of the anchors stands in a text whose words hold these pieces."""
    if held & anchors.words:
        return True
    for longest, sequence in anchors.sequences:  # noqa: SIM110
        if held & longest and sequence in text:
            return True
    return False


def _bit(piece: str) -> int:
    if piece not in _BITS:
        _BITS[piece] = 1 << len(_BITS)
        _BEGINNINGS.setdefault(piece[:2], []).append((piece, _BITS[piece]))
    return _BITS[piece]


def anchored(anchors: str) -> Anchors:
    """The anchors that are written with `|` between them."""
    words, sequences = 0, []
    for piece in anchors.split("|"):
        longest = max(piece.split(), key=len)
        bit = _bit(longest)
        if piece == longest:
            words |= bit
        else:
            sequences.append((bit, piece))
    return Anchors(words, tuple(sequences))


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
