"""One way in which an attack on an agent says something, and the words that put a phrase in another light."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.needs import LEAST_CHARS, alternatives, is_plain, needs, quick, sequences

__all__ = [
    "MARKS",
    "MIDDLE",
    "PLAIN_PURPOSE",
    "STRONG",
    "WEAK",
    "Phrase",
    "Way",
    "matches",
    "phrase",
    "pieces_in",
    "ways",
]

STRONG, MIDDLE, WEAK = 1.0, 0.6, 0.35
"""Alone enough; enough with anything else; enough with two others. Set by hand, see tests/policy/scanner_set."""


class Way(NamedTuple):
    """One alternative of a pattern.

    Attributes:
        needs: The bits without each of which it cannot match.
        sequences: Without one of which it cannot match; none if that is not known.
        pattern: Over text in lower case, single spaces.
    """

    needs: int
    sequences: tuple[str, ...]
    pattern: re.Pattern[str]


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


_BITS: dict[frozenset[str], int] = {}
"""A bit for each set of pieces of which a text has to hold one, set while the phrases are read in."""
_BEGINNINGS: dict[str, dict[str, int]] = {}
"""The bits of each piece, by its first letters."""
_SHORT: dict[str, int] = {}
"""The bits of each piece that is shorter than that: none of them is of ASCII letters and digits alone."""
_SHORT_ASCII: dict[str, int] = {}
"""Those of them that may stand in a word of ASCII characters: few."""
KNOWN_WORDS = 8_192
"""Words of which it is remembered what they hold: about 2 MiB."""


def pieces_in(words: Iterable[str]) -> int:
    """The bits of all sets of pieces of which one stands in one of these words."""
    return reduce(or_, filter(None, map(_pieces_of, words)), 0)


@lru_cache(maxsize=KNOWN_WORDS)
def _pieces_of(word: str) -> int:
    """Looks at each place only for the pieces that begin with the letters there."""
    held = 0
    if not is_plain(word):
        for piece, bits in (_SHORT_ASCII if word.isascii() else _SHORT).items():
            if piece in word:
                held |= bits
    for at in range(len(word) - LEAST_CHARS + 1):
        start = word[at : at + LEAST_CHARS]
        if start in _BEGINNINGS:
            for piece, bits in _BEGINNINGS[start].items():
                if word.startswith(piece, at):
                    held |= bits
    return held


def matches(ways: Iterable[Way], text: str, held: int) -> Iterable[re.Match[str]]:
    """What one pattern of all these ways finds in a text whose words hold the pieces of these bits."""
    tried = [
        way.pattern
        for way in ways
        if held & way.needs == way.needs and (not way.sequences or any(map(text.__contains__, way.sequences)))
    ]
    return _in_turn(tried, text) if tried else ()


def _in_turn(patterns: Sequence[re.Pattern[str]], text: str) -> Iterator[re.Match[str]]:
    """One match after the other; where two begin at one place, that of the first pattern."""
    ahead = [match for pattern in patterns if (match := pattern.search(text)) is not None]
    while ahead:
        first = min(ahead, key=re.Match.start)
        yield first
        end = first.end()
        found = [match if match.start() >= end else match.re.search(text, end) for match in ahead]
        ahead = [match for match in found if match is not None]


def _bit(pieces: frozenset[str]) -> int:
    if pieces not in _BITS:
        _BITS[pieces] = 1 << len(_BITS)
        for piece in pieces:
            is_short = len(piece) < LEAST_CHARS
            same = _SHORT if is_short else _BEGINNINGS.setdefault(piece[:LEAST_CHARS], {})
            same[piece] = same.get(piece, 0) | _BITS[pieces]
            if is_short and piece.isascii():
                _SHORT_ASCII[piece] = same[piece]
    return _BITS[pieces]


def _bits(sets: Iterable[frozenset[str]]) -> int:
    return reduce(or_, map(_bit, sets), 0)


def phrase(check: str, weight: float, reason: str, *patterns: str) -> Phrase:
    """A phrase that is said in any of the ways of `patterns`."""
    return Phrase(check, weight, reason, ways("|".join(patterns)))


def ways(pattern: str) -> tuple[Way, ...]:
    """The alternatives of a pattern, each with what it needs: few texts have to be searched for all of them."""
    return tuple(
        Way(_bits(needs(each)), tuple(sequences(each)), re.compile(quick(each))) for each in alternatives(pattern)
    )


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
