"""Text in another alphabet or backwards: moved letters, the mirrored alphabet, reversed words."""

import string
from collections import Counter
from collections.abc import Callable, Iterator

_COMMON = (
    "the",
    "and",
    "you",
    "this",
    "that",
    "with",
    "user",
    "tool",
    "file",
    "must",
    "always",
    "before",
    "send",
    "from",
)
_TELLING = (
    "ignore", "disregard", "instructions", "instruction", "previous", "password", "passwords", "credentials",
    "execute", "upload", "secret", "secrets", "reveal", "forward", "system",
)  # fmt: skip
_TOGETHER = 2
"""Words of which each alone may be a word of another language or a name."""

Decode = Callable[[str], str]


def find_ciphers(text: str) -> list[tuple[str, Decode]]:
    """Name and decoder of each cipher in which some words of the text say something."""
    words = text.lower().split()
    if _WORDS.isdisjoint(words):
        return []
    found = Counter[str]()
    for word in _WORDS.intersection(words):
        for name, weight in _BETRAYING[word]:
            found[name] += weight
    return [(name, decode) for name, decode in _CIPHERS if found[name] >= _TOGETHER]


def _build_shift(by: int) -> Decode:
    return _build_substitution(string.ascii_lowercase[by:] + string.ascii_lowercase[:by])


def _build_substitution(alphabet: str) -> Decode:
    table = str.maketrans(string.ascii_letters, alphabet + alphabet.upper())
    return lambda text: text.translate(table)


def _words_reversed(text: str) -> str:
    return " ".join(word[::-1] for word in text.split())


def _ciphers() -> Iterator[tuple[str, Decode]]:
    for by in range(1, len(string.ascii_lowercase)):
        yield "rot13" if by == 13 else f"letters moved by {by}", _build_shift(by)
    yield "a mirrored alphabet", _build_substitution(string.ascii_lowercase[::-1])
    yield "reversed writing", lambda text: text[::-1]
    yield "reversed words", _words_reversed


_CIPHERS = tuple(_ciphers())


def _index_cipher_words() -> dict[str, list[tuple[str, int]]]:
    """Words that betray a cipher, with the cipher and how surely."""
    words: dict[str, list[tuple[str, int]]] = {}
    for place, (name, _) in enumerate(_CIPHERS):
        moves = len(string.ascii_lowercase) - 1
        write = _CIPHERS[moves - 1 - place][1] if place < moves else _CIPHERS[place][1]
        for word in (*_COMMON, *_TELLING):
            words.setdefault(write(word), []).append((name, _TOGETHER if word in _TELLING else 1))
    return words


_BETRAYING = _index_cipher_words()
_WORDS = frozenset(_BETRAYING)
