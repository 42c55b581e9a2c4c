"""Wordpieces: the parts of words that a static encoder has a vector for."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

TEXT_PIECES = 256
"""Pieces that are read of a text, as many as MiniLM reads; what matters stands first."""
_TEXT_CHARS = 4_000
_WORD_CHARS = 40
"""A longer run of letters is no word; looking for its pieces takes time by the square of its length."""
_CACHED_WORDS = 4_096
_CONTINUED = "##"
"""Stands before a piece that begins inside a word."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+|[^\s\w]")


class Wordpieces:
    """Cuts a text into the longest pieces that a vocabulary has, without case and accents.

    Args:
        pieces: The vocabulary; the place of a piece is its number.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._numbers: Mapping[str, int] = {piece: number for number, piece in enumerate(pieces)}
        self._cut = lru_cache(_CACHED_WORDS)(self._cut_run)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<Wordpieces {len(self)}>"

    def __call__(self, text: str, limit: int = TEXT_PIECES) -> list[int]:
        """Number the first pieces of a text, at most `limit`; words that have none are left out.

        `getFileInfo` is three words. Any text is taken, lone surrogates too.
        """
        text = text[:_TEXT_CHARS]
        if not text.isascii():
            text = unicodedata.normalize("NFD", _CAMEL.sub(" ", text).lower())
            text = "".join(char for char in text if unicodedata.category(char) != "Mn")
        numbers: list[int] = []
        for run in _WORD.findall(text):
            numbers += self._cut(run) if len(run) <= _WORD_CHARS else self._cut_run(run)
            if len(numbers) >= limit:
                break
        return numbers[:limit]

    def _cut_run(self, run: str) -> tuple[int, ...]:
        """The pieces of a run of letters and digits, which may be several words."""
        words = _CAMEL.sub(" ", run).lower().split(" ")
        return tuple(number for word in words for number in self._cut_word(word[:_WORD_CHARS]))

    def _cut_word(self, word: str) -> tuple[int, ...]:
        numbers: list[int] = []
        start = 0
        while start < len(word):
            prefix = _CONTINUED if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._numbers), None)
            if end is None:
                return ()
            numbers.append(self._numbers[prefix + word[start:end]])
            start = end
        return tuple(numbers)
