"""Required literals of a pattern, read from it, so that most patterns need not be tried."""

import re
from collections.abc import Callable, Iterable, Iterator

LEAST_CHARS = 3
"""Shorter pieces stand in most texts, if they are of ASCII letters and digits."""
MOST_SEQUENCES = 24
"""Looking for more of them in a text costs what trying the pattern does."""
MOST_PIECES = 40
"""Where one of so many will do, most texts hold one."""
MOST_LETTERS = 8
"""Where a pattern begins with one of more, looking for them finds too many places."""
_TIMES = r"(?P<times>(?:[?*+]|\{(?:\d+(?:,\d*)?|,\d+)\})[?+]?)?"
_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?P<kind>:|=|!|<=|<!)|(?!\?)))|(?P<bar>\|)|"
    r"(?:(?P<close>\))|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[bdsnwDSW]|[.^$])|\\(?P<escaped>[^\w\s])|"
    rf"(?P<plain>[^\\()|\[])){_TIMES}",
    re.DOTALL,
)
"""One token of a pattern, of what the patterns here are written with."""
_Need = frozenset[str]
_Token = re.Match[str]
_Pieces = Callable[[str], list[_Need]]
"""The needs of letters that stand in a row."""


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
    return _choice(_tokens(pattern), _split_needs)[0]


def sequences(pattern: str) -> _Need:
    """The longest pieces with blanks of which every match holds one; empty if few texts lack them."""
    found = _choice(_tokens(pattern), _whole)[0]
    best = max(found, key=_rate_need, default=frozenset[str]())
    return best if len(best) <= MOST_SEQUENCES and any(" " in each.strip() for each in best) else frozenset()


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


def _choice(tokens: Iterator[_Token], pieces: _Pieces) -> tuple[list[_Need], _Token | None]:
    """Literals that every branch of a group needs, and the token that ends it."""
    ways: list[list[_Need]] = [[]]
    run = ""
    for token in tokens:
        char = token["plain"] or token["escaped"]
        if char and not _may_miss(token):
            run += char
        if char and not token["times"]:
            continue
        ways[-1] += pieces(run)
        run = ""
        if token["open"]:
            ways[-1] += _group(token, tokens, pieces)
        elif token["bar"]:
            ways.append([])
        elif token["close"]:
            return _merge_branches(ways), token
    ways[-1] += pieces(run)
    return _merge_branches(ways), None


def _group(start: _Token, tokens: Iterator[_Token], pieces: _Pieces) -> list[_Need]:
    found, end = _choice(tokens, pieces)
    return [] if start["kind"] in ("!", "<!") or end is None or _may_miss(end) else found


def _may_miss(token: _Token) -> bool:
    """Whether a pattern matches without what this token stands for."""
    return (token["times"] or "").startswith(("?", "*", "{0", "{,"))


def _split_needs(run: str) -> list[_Need]:
    return [frozenset([piece]) for piece in run.split() if len(piece) >= LEAST_CHARS or not is_plain(piece)]


def _whole(run: str) -> list[_Need]:
    return [frozenset([run])] if len(run.strip()) >= LEAST_CHARS else []


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
