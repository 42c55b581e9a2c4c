"""One way in which an attack on an agent says something, and the words that put a phrase in another light."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.needs import alternatives, needs, quick

__all__ = [
    "MARKS",
    "MIDDLE",
    "PLAIN_PURPOSE",
    "STRONG",
    "WEAK",
    "Anchors",
    "Phrase",
    "Way",
    "anchored",
    "matches",
    "phrase",
    "pieces_in",
    "ways",
]

STRONG, MIDDLE, WEAK = 1.0, 0.6, 0.35
"""Alone enough; enough with anything else; enough with two others. Set by hand, see tests/policy/scanner_set."""


class Anchors(NamedTuple):
    """Pieces of text without one of which a pattern cannot match: looking for them is much faster.

    Attributes:
        words: The bit of all pieces without a blank; 0 if there is none.
        sequences: The others: the bits of the words of each, and the piece.
    """

    words: int
    sequences: tuple[tuple[int, str], ...]


class Way(NamedTuple):
    """One alternative of a pattern.

    Attributes:
        needs: The bits without each of which it cannot match.
        pattern: Over text in lower case, single spaces.
    """

    needs: int
    pattern: re.Pattern[str]


class Phrase(NamedTuple):
    """One way of saying something.

    Attributes:
        check: What it is evidence of; several phrases of one check count once.
        weight: Of the evidence.
        reason: One sentence for the finding.
        anchors: It is said nowhere where none of these stands.
        ways: Of saying it; where two begin at one place, the first counts.
    """

    check: str
    weight: float
    reason: str
    anchors: Anchors
    ways: tuple[Way, ...]


_BITS: dict[frozenset[str], int] = {}
"""A bit for each set of pieces of which a text has to hold one, set while the phrases are read in."""
_BEGINNING_CHARS = 3
_BEGINNINGS: dict[str, dict[str, int]] = {}
"""The bits of each piece, by its first three letters."""
_SHORT: dict[str, int] = {}
"""The bits of each piece that is shorter."""
KNOWN_WORDS = 8_192
"""Words of which it is remembered what they hold: about 2 MiB."""


def pieces_in(words: Iterable[str]) -> int:
    """The bits of all sets of pieces of which one stands in one of these words."""
    return reduce(or_, filter(None, map(_pieces_of, words)), 0)


@lru_cache(maxsize=KNOWN_WORDS)
def _pieces_of(word: str) -> int:
    """Looks at each place only for the pieces that begin with the letters there."""
    held = 0
    for piece, bits in _SHORT.items():
        if piece in word:
            held |= bits
    for at in range(len(word) - _BEGINNING_CHARS + 1):
        start = word[at : at + _BEGINNING_CHARS]
        if start in _BEGINNINGS:
            for piece, bits in _BEGINNINGS[start].items():
                if word.startswith(piece, at):
                    held |= bits
    return held


def matches(ways: Iterable[Way], anchors: Anchors, text: str, held: int) -> Iterable[re.Match[str]]:
    """What one pattern of all these ways finds in a text whose words hold the pieces of these bits."""
    tried = [way.pattern for way in ways if held & way.needs == way.needs]
    return _in_turn(tried, text) if tried and _stands(held, text, anchors) else ()


def _in_turn(patterns: Sequence[re.Pattern[str]], text: str) -> Iterator[re.Match[str]]:
    """One match after the other; where two begin at one place, that of the first pattern."""
    ahead = [match for pattern in patterns if (match := pattern.search(text)) is not None]
    while ahead:
        first = min(ahead, key=re.Match.start)
        yield first
        end = first.end()
        found = [match if match.start() >= end else match.re.search(text, end) for match in ahead]
        ahead = [match for match in found if match is not None]


def _stands(held: int, text: str, anchors: Anchors) -> bool:
    """Whether any of the anchors stands in a text whose words hold the pieces of these bits."""
    if held & anchors.words:
        return True
    for words, sequence in anchors.sequences:  # noqa: SIM110
        if held & words == words and sequence in text:
            return True
    return False


def _bit(pieces: frozenset[str]) -> int:
    if pieces not in _BITS:
        _BITS[pieces] = 1 << len(_BITS)
        for piece in pieces:
            is_short = len(piece) < _BEGINNING_CHARS
            same = _SHORT if is_short else _BEGINNINGS.setdefault(piece[:_BEGINNING_CHARS], {})
            same[piece] = same.get(piece, 0) | _BITS[pieces]
    return _BITS[pieces]


def _bits(sets: Iterable[frozenset[str]]) -> int:
    return reduce(or_, map(_bit, sets), 0)


def anchored(anchors: str) -> Anchors:
    """The anchors that are written with `|` between them."""
    pieces = anchors.split("|")
    words = frozenset(piece for piece in pieces if " " not in piece)
    sequences = tuple((_bits(_words_of(piece)), piece) for piece in pieces if " " in piece)
    return Anchors(_bit(words) if words else 0, sequences)


def _words_of(sequence: str) -> Iterator[frozenset[str]]:
    """The words of a sequence that few texts hold: the longer ones."""
    words = sequence.split()
    least = min(_BEGINNING_CHARS, max(map(len, words)))
    return (frozenset([word]) for word in words if len(word) >= least)


def phrase(check: str, weight: float, reason: str, anchors: str, *patterns: str) -> Phrase:
    """A phrase that is said in any of the ways of `patterns`; `anchors` are separated by `|`."""
    return Phrase(check, weight, reason, anchored(anchors), ways("|".join(patterns)))


def ways(pattern: str) -> tuple[Way, ...]:
    """The alternatives of a pattern, each with what it needs: few texts have to be searched for all of them."""
    return tuple(Way(_bits(needs(each)), re.compile(quick(each))) for each in alternatives(pattern))


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
