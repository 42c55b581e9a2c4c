"""Literal prefilter: finds where a pattern may match, to search there alone.

With it a scan takes a third of the processor time: 0.6 to 0.9 against 2.3 to 2.7 ms a definition (830 real ones).

Refused: *google-re2* (1.1.20251105). 27 of 476 alternatives look around, which it cannot, and its word boundaries are
of ASCII: in other text it missed 4 matches of 40. A set of it, `re` for both, takes 2.0 ms a definition and 66 MiB, or
3.7 ms within its default of 8 MiB; this takes 1.0 ms, and `re` alone 5.0 (481 real ones).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

LEAST_CHARS = 3
"""Shorter pieces stand in most texts, if they are of ASCII letters and digits."""
MOST_PIECES = 40
"""Most pieces of which a text needs only one: of more, most texts hold one."""
MOST_LETTERS = 8
"""Most letters that a pattern may begin with: looking for one of more finds too many places."""
_TIMES = r"(?P<times>(?:[?*+]|\{(?:\d+(?:,\d*)?|,\d+)\})[?+]?)?"
_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?P<kind>:|=|!|<=|<!)|(?!\?)))|(?P<bar>\|)|"
    r"(?:(?P<close>\))|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[bdsnwDSW]|[.^$])|\\(?P<escaped>[^\w\s])|"
    rf"(?P<plain>[^\\()|\[])){_TIMES}",
    re.DOTALL,
)
"""Token of a pattern, of what the patterns here are written with."""
_Need = frozenset[str]
_Token = re.Match[str]

Span = tuple[int, int]
"""Start and end of a part of a text."""
MOST_WORDS = 12
"""Looking for the places of more words than that takes longer than looking for the pattern everywhere."""
SENTENCE, LINE, STOP, TEXT = 0, 1, 2, 3
"""Ends of the part of a text that a match stays in: full stops and line breaks, breaks, stops, nothing."""


def alternatives(pattern: str) -> list[str]:
    """The alternatives of which the whole pattern is made."""
    found, start, depth = [], 0, 0
    for token in _tokens(pattern):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["bar"] and not depth:
            found.append(pattern[start : token.start()])
            start = token.end()
    return [*found, pattern[start:]]


def needs(pattern: str) -> list[_Need]:
    """Sets of pieces without blanks: the pattern matches only in texts that hold a piece of each set."""
    return _choice(_tokens(pattern))[0]


def may_match(pattern: str, char: str) -> bool:
    """Whether this character may stand where the pattern matches or looks; true where it asks for an end."""
    return any(
        token["class"] in ("^", "$")
        or char in (token["plain"], token["escaped"])
        or (token["class"] is not None and re.fullmatch(token["class"], char) is not None)
        for token in _tokens(pattern)
    )


def quick(pattern: str) -> str:
    """The same pattern, tried only where one of its first letters stands instead of at every character.

    The engine looks for first letters by itself, but not behind a word boundary: that is asked one letter later.
    """
    tokens = list(_tokens(pattern))
    firsts = _firsts(tokens, 1) if pattern.startswith(r"\b") else None
    if firsts is None or len({token[0] for token in firsts}) > MOST_LETTERS:
        return pattern
    for token in reversed(firsts):
        pattern = f"{pattern[: token.end()]}(?<=\\b{token[0]}){pattern[token.end() :]}"
    return pattern.removeprefix(r"\b")


def _firsts(tokens: list[_Token], at: int) -> list[_Token] | None:
    """Possible first letters of the rest of a pattern, in order; None if it may begin otherwise."""
    token = tokens[at]
    if token["plain"] and token["plain"].isalpha() and not token["times"]:
        return [token]
    if token["kind"] != ":":
        return None
    found: list[_Token] = []
    depth = 0
    for place, each in enumerate(tokens[at:], at + 1):
        depth += (each["open"] is not None) - (each["close"] is not None)
        if not depth:
            return None if _may_miss(each) else found
        if depth == 1 and (each is token or each["bar"]):
            firsts = _firsts(tokens, place)
            if firsts is None:
                return None
            found += firsts
    return None


def _tokens(pattern: str) -> Iterator[_Token]:
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"The pattern cannot be read from {pattern[at : at + 20]!r} on. Write it without that.")
        yield token
        at = token.end()


def _choice(tokens: Iterator[_Token]) -> tuple[list[_Need], _Token | None]:
    """Literals that every branch of a group needs, and the token that ends it."""
    ways: list[list[_Need]] = [[]]
    run = ""
    for token in tokens:
        char = token["plain"] or token["escaped"]
        if char and not _may_miss(token):
            run += char
        if char and not token["times"]:
            continue
        ways[-1] += _split_needs(run)
        run = ""
        if token["open"]:
            ways[-1] += _group(token, tokens)
        elif token["bar"]:
            ways.append([])
        elif token["close"]:
            return _merge_branches(ways), token
    ways[-1] += _split_needs(run)
    return _merge_branches(ways), None


def _group(start: _Token, tokens: Iterator[_Token]) -> list[_Need]:
    found, end = _choice(tokens)
    return [] if start["kind"] in ("!", "<!") or end is None or _may_miss(end) else found


def _may_miss(token: _Token) -> bool:
    """Whether a pattern matches without what this token stands for."""
    return (token["times"] or "").startswith(("?", "*", "{0", "{,"))


def _split_needs(run: str) -> list[_Need]:
    return [frozenset([piece]) for piece in run.split() if len(piece) >= LEAST_CHARS or not is_plain(piece)]


def is_plain(piece: str) -> bool:
    """Whether it is of ASCII letters and digits alone."""
    return piece.isascii() and piece.isalnum()


def _merge_branches(ways: list[list[_Need]]) -> list[_Need]:
    """Literals that all of several branches need, the most telling first."""
    if len(ways) == 1:
        return ways[0]
    ranked = zip(*(sorted(needed, key=_rate_need, reverse=True) for needed in ways), strict=False)
    shared = (_shortest(piece for need in rank for piece in need) for rank in ranked)
    return [pieces for pieces in shared if len(pieces) <= MOST_PIECES]


def _rate_need(need: _Need) -> tuple[int, int]:
    return min(map(len, need)), -len(need)


def _shortest(pieces: Iterable[str]) -> _Need:
    """The pieces that hold no other one."""
    every = frozenset(pieces)
    return frozenset(piece for piece in every if not any(other != piece and other in piece for other in every))


class Way(NamedTuple):
    """An alternative of a pattern.

    Attributes:
        number: Its own.
        group: The pattern's: the number of its first alternative.
        needs: The bits without each of which it cannot match.
        reach: What a match stays within.
        pattern: Over text in lower case, single spaces.
    """

    number: int
    group: int
    needs: int
    reach: int
    pattern: re.Pattern[str]


_WAYS: list[Way] = []
_EVERYWHERE: set[int] = set()
"""Ways that nothing announces: few."""
_BITS: dict[frozenset[str], int] = {}
"""A bit for each set of pieces of which a text has to hold one, set while the patterns are read in."""
_BEGINNINGS: dict[str, dict[str, int]] = {}
"""The bits of each piece of letters and digits, by its first ones."""
_MARKED: dict[str, dict[str, int]] = {}
"""The bits of each other piece, by the first character that is neither."""
_ASCII_MARKS: set[str] = set()
"""Characters of `_MARKED` that an ASCII text may hold."""
_ANNOUNCED: dict[str, set[int]] = {}
"""The ways that are looked for where a piece stands."""
_Held = tuple[int, Collection[int]]
"""The bits of the pieces that stand in a word, and the ways that they announce."""
_WORD = re.compile(r"[a-z0-9]{3,}")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """the user turn tool list return file for result all from message data request source with add name use key and
        content before text call this response argument includ read env http system first only need other output
        server used you function not run""",
    )
)
"""Pieces that stand in every twentieth definition or more: rarer ones announce a way better."""
_NO_PIECES: Mapping[str, int] = {}
_NO_WAYS = frozenset[int]()
_HOLDS_NOTHING: _Held = (0, ())
KNOWN_WORDS = 16_384
"""Words of which it is remembered what they hold: about 4 MiB. 5,000 tools have 12,000."""


def ways(pattern: str) -> tuple[Way, ...]:
    """Alternatives of a pattern with their required literals: few texts need them all."""
    group = len(_WAYS)
    return tuple(_way(each, group) for each in alternatives(pattern))


class Searchable:
    """A text in which ways of saying something are looked for.

    Args:
        text: In lower case, single spaces, line breaks only between strings of a definition.

    Attributes:
        heard: The ways that the text has all pieces for, by the number of their pattern, each with the words that
            announce it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = (text.replace(".", "\n"), text, text.replace("\n", " ").replace(".", "\n"))
        self._parts: dict[tuple[int, str], list[Span]] = {}
        self._held: dict[Span, int] = {}
        marks = [*_find_marks(text)]
        self._marks = reduce(or_, [bits for _, (bits, _) in marks], 0)
        self.heard = _select_ways([*marks, *((word, _find_pieces(word)) for word in set(_WORD.findall(text)))])

    def find(self, group: tuple[Way, ...]) -> Iterable[re.Match[str]]:
        """Matches of one pattern of these alternatives in the text."""
        heard = self.heard.get(group[0].group)
        if heard is None:
            return ()
        turns = [(way.pattern, where) for way, words in heard if (where := self._where(way, words))]
        if len(turns) > 1:
            return _in_turn(turns, self.text)
        return [
            match
            for pattern, where in turns
            for start, stop in reversed(where)
            for match in pattern.finditer(self.text, start, stop)
        ]

    def _where(self, way: Way, words: Sequence[str]) -> list[Span]:
        """The parts of the text in which a way may match, the last one first."""
        if way.reach == TEXT or not 0 < len(words) <= MOST_WORDS:
            return [(0, len(self.text))]
        found = self._lines_with(way.reach, words[0])
        if len(words) > 1:
            found = sorted({span for word in words for span in self._lines_with(way.reach, word)})
        return [span for span in reversed(found) if self._collect_bits(span) & way.needs == way.needs]

    def _lines_with(self, reach: int, word: str) -> Sequence[Span]:
        """The parts of the text that hold a word."""
        known = self._parts.get((reach, word))
        if known is None:
            known = self._parts[reach, word] = [*_lines_with(word, self._lines[reach])]
        return known

    def _collect_bits(self, span: Span) -> int:
        """The bits of the pieces in a part of the text, and of the marks anywhere in it."""
        held = self._held.get(span)
        if held is None:
            words = [_find_pieces(word)[0] for word in _WORD.findall(self.text, *span)]
            held = self._held[span] = reduce(or_, words, self._marks)
        return held


def _lines_with(word: str, lines: str) -> Iterator[Span]:
    at = lines.find(word)
    while at >= 0:
        stop = lines.find("\n", at)
        stop = len(lines) if stop < 0 else stop
        yield lines.rfind("\n", 0, at) + 1, stop
        at = lines.find(word, stop)


def _select_ways(words: Iterable[tuple[str, _Held]]) -> Mapping[int, Sequence[tuple[Way, Sequence[str]]]]:
    held, announcing = 0, {number: list[str]() for number in _EVERYWHERE}
    for word, (bits, announced) in words:
        held |= bits
        for number in announced:
            announcing.setdefault(number, []).append(word)
    found: dict[int, list[tuple[Way, Sequence[str]]]] = {}
    for number in sorted(announcing):
        way = _WAYS[number]
        if held & way.needs == way.needs:
            found.setdefault(way.group, []).append((way, announcing[number]))
    return found


def _find_marks(text: str) -> Iterator[tuple[str, _Held]]:
    """The pieces in a text that are not of letters and digits alone."""
    chars = _ASCII_MARKS if text.isascii() else _MARKED
    for char in filter(text.__contains__, chars):
        for piece, bits in _MARKED[char].items():
            if piece in text:
                yield piece, (bits, _ANNOUNCED.get(piece, _NO_WAYS))


@lru_cache(maxsize=KNOWN_WORDS)
def _find_pieces(word: str) -> _Held:
    """Letters and digits of a word."""
    held, announced = 0, set[int]()
    for at in range(len(word) - LEAST_CHARS + 1):
        for piece, bits in _BEGINNINGS.get(word[at : at + LEAST_CHARS], _NO_PIECES).items():
            if word.startswith(piece, at):
                held |= bits
                announced |= _ANNOUNCED.get(piece, _NO_WAYS)
    return (held, tuple(announced)) if held else _HOLDS_NOTHING


_Turn = tuple[re.Pattern[str], list[Span]]
"""A pattern and the places that it has not been looked for in yet, the next one last."""


def _in_turn(tried: Iterable[_Turn], text: str) -> Iterator[re.Match[str]]:
    """Yield matches in text order, without overlaps; of two at one start, the first pattern's."""
    ahead = [(match, turn) for turn in tried if (match := _next(turn, text, 0)) is not None]
    while ahead:
        first = min([match for match, _ in ahead], key=re.Match.start)
        yield first
        end = first.end()
        found = [(match if match.start() >= end else _next(turn, text, end), turn) for match, turn in ahead]
        ahead = [(match, turn) for match, turn in found if match is not None]


def _next(turn: _Turn, text: str, at: int) -> re.Match[str] | None:
    pattern, pending = turn
    while pending:
        start, stop = pending[-1]
        if at < stop and (match := pattern.search(text, max(start, at), stop)) is not None:
            return match
        pending.pop()
    return None


def _way(pattern: str, group: int) -> Way:
    needed, number = needs(pattern), len(_WAYS)
    reach = SENTENCE + (LINE if may_match(pattern, ".") else 0) + (STOP if may_match(pattern, "\n") else 0)
    if needed:
        for piece in max(needed, key=_rarity):
            _ANNOUNCED.setdefault(piece, set()).add(number)
    else:
        _EVERYWHERE.add(number)
    bits = reduce(or_, map(_bit, needed), 0)
    _WAYS.append(Way(number, group, bits, reach, re.compile(quick(pattern))))
    _find_pieces.cache_clear()
    return _WAYS[-1]


def _rarity(pieces: frozenset[str]) -> tuple[bool, int, int]:
    return _COMMON.isdisjoint(pieces), min(map(len, pieces)), -len(pieces)


def _bit(pieces: frozenset[str]) -> int:
    if pieces not in _BITS:
        _BITS[pieces] = 1 << len(_BITS)
        for piece in pieces:
            if is_plain(piece):
                same = _BEGINNINGS.setdefault(piece[:LEAST_CHARS], {})
            else:
                mark = next(char for char in piece if not is_plain(char))
                same = _MARKED.setdefault(mark, {})
                if mark.isascii():
                    _ASCII_MARKS.add(mark)
            same[piece] = same.get(piece, 0) | _BITS[pieces]
    return _BITS[pieces]
