"""Results as their servers wrote them: passed on unread where possible, else read once."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec
import numpy as np

from smart_mcp_proxy.escapes import are_harmless

__all__ = ["DEEPEST_LEVELS", "OUTLINE_BYTES", "RawResult", "is_clean", "is_nested_deeper", "outline_of", "refuse_deep"]

OUTLINE_BYTES = 64
"""Of a member's value: enough for a flag, a word, or to see what kind of value it is."""
_QUOTES = 32
"""So many are looked for, those of a text in front of a picture, say; short strings are read faster than looked for."""
_FIRST_PRINTABLE = ord(" ")
_DELETE = b"\x7f"
_ESCAPE = b"\\"
DEEPEST_LEVELS: Final = 1_000
"""As deep as Python 3.11 reads. What is deeper breaks the parsers of clients, which would wait for their answer."""
_READS_ANY_DEPTH: Final = sys.version_info >= (3, 14)
"""Earlier ones count levels and stop at some thousands; this one measures the stack, which holds 100,000."""
_CASE_BIT: Final = 0x20
"""The bit in which a bracket differs from a brace."""
_OPENING = b"{"
_QUOTE = b'"'
_STEP_BIT: Final = 0x02
"""The bit that what opens has and what closes has not."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_clean(pieces: Sequence[bytes]) -> bool:
    """Return whether a text certainly needs no cleaning: printable ASCII, harmless escapes.

    False proves nothing. Looked for at memory speed, which is several times that of reading the text.
    """
    for piece in pieces:
        codes = np.frombuffer(piece, np.int8)  # as a signed number, a byte beyond ASCII is below zero
        if not piece or codes.min() < _FIRST_PRINTABLE or _DELETE in piece:
            return False
    if not any(_ESCAPE in piece for piece in pieces):
        return True
    return are_harmless(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def refuse_deep(text: bytes) -> None:
    """Do nothing for text that may be read.

    Raises:
        RecursionError: It is nested too deep, and this interpreter would read it all the same.
    """
    if _READS_ANY_DEPTH and is_nested_deeper(text, DEEPEST_LEVELS):
        raise RecursionError(f"it is nested deeper than {DEEPEST_LEVELS:,} levels")


def is_nested_deeper(text: bytes, levels: int) -> bool:
    """Whether arrays and objects stand in each other more than `levels` deep.

    Most texts have not so many of them at all, which is seen at memory speed.

    Args:
        text: JSON; of a text that is none, this says nothing.
        levels: At least one.
    """
    if len(text) <= 2 * levels or np.count_nonzero(np.frombuffer(text, np.uint8) | _CASE_BIT == _OPENING[0]) <= levels:
        return False
    outside = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(_QUOTE)[::2])
    brackets = np.frombuffer(outside.translate(None, _NO_BRACKETS), np.int8)
    steps = (brackets & _STEP_BIT) - 1
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)) > levels


def outline_of(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object by name, of each value the first 64 bytes.

    Not the values themselves: they would refer to the text that refers to them, and live until a collection.

    Raises:
        msgspec.MsgspecError: It is no object.
    """
    members = _members.decode(text)
    return {name: bytes(memoryview(members[name])[:OUTLINE_BYTES]) for name in members}


class RawResult:
    """A result's JSON text in the pieces in which it came: a long one is passed on without being copied.

    However many ask what is in it, it is looked through once.

    Args:
        pieces: The text, at least one piece.
        is_clean: Whether the text is known to be clean; see `is_clean`.
        outline: Its members, where they are known; see `outline_of`.
    """

    __slots__ = ("_outline", "is_clean", "pieces")

    def __init__(self, *pieces: bytes, is_clean: bool = False, outline: Mapping[str, bytes] | None = None) -> None:
        self.pieces = pieces
        self.is_clean = is_clean
        self._outline = outline

    @classmethod
    def read(cls, *pieces: bytes, is_clean: bool) -> Self:
        """One that is looked through now.

        Raises:
            msgspec.MsgspecError: It is no object.
            RecursionError: It is nested too deep.
        """
        is_plain = is_clean and not any(_ESCAPE in piece for piece in pieces)
        text = _without_long_strings(pieces) if is_plain else b"".join(pieces)
        refuse_deep(text)
        outline = outline_of(text)
        return cls(*pieces, is_clean=is_clean, outline=outline)

    def __repr__(self) -> str:
        return f"<RawResult of {self.size_bytes:,} bytes>"

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return sum(map(len, self.pieces))

    @property
    def text(self) -> bytes:
        """The text in one piece."""
        if len(self.pieces) > 1:
            self.pieces = (b"".join(self.pieces),)
        return self.pieces[0]

    @property
    def outline(self) -> Mapping[str, bytes]:
        """Its members; see `outline_of`."""
        if self._outline is None:
            self._outline = outline_of(self.text)
        return self._outline


def _without_long_strings(pieces: Iterable[bytes]) -> bytes:
    """A clean text with long strings cut to their beginnings: JSON if the text is.

    Whatever is left out of a string could neither end it nor be wrong in it. The outline is the same, but for what
    names of more than 64 characters end in.
    """
    kept: list[bytes] = []
    is_inside, left, quotes = False, 0, _QUOTES
    for piece in pieces:
        start = kept_from = 0
        while quotes:
            quote = piece.find(b'"', start)
            end = len(piece) if quote < 0 else quote
            if is_inside and end - start > left:
                kept.append(piece[kept_from : start + left])
                kept_from = end
            if quote < 0:
                left = max(0, left - (end - start))
                break
            is_inside, left, quotes = not is_inside, OUTLINE_BYTES, quotes - 1
            start = quote + 1
        kept.append(piece[kept_from:])
    return b"".join(kept)
