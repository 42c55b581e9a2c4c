"""Escapes in JSON text, searched at memory speed for those never shown to agents.

Most of the world's text is nothing but escapes where a server writes JSON as Python's `json.dumps` does by default.
"""

from typing import Final

import numpy as np

_Codes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
_Places = np.ndarray[tuple[int], np.dtype[np.intp]]

_BLOCK_BYTES: Final = 1 << 16
"""Looked through in one go: with all that is found out about it, it stays in the processor's cache."""
_AHEAD_BYTES: Final = 8
"""Behind a block, so that an escape that begins in it is seen whole."""
_BACKSLASH: Final = ord("\\")
_U: Final = ord("u")
_ZERO: Final = ord("0")
_FOUR: Final = ord("4")
_EIGHT: Final = ord("8")
_NINE: Final = ord("9")
_B: Final = ord("b")
_C: Final = ord("c")
_D: Final = ord("d")
_N: Final = ord("n")
_R: Final = ord("r")
_SMALL: Final = 0x20
"""The bit that small letters have and capital ones have not; all digits have it."""
_NOT_TWO: Final = 0xFD
"""All bits but the one in which 2 differs from 0."""
_ESCAPE_CHARS: Final = len(rb"\u0000")
_SHOWN = np.isin(np.arange(256), list(b'"\\/nt'))
"""By code, whether a backslash and this letter stand for a character that may be shown."""
_HIDDEN_NUMBERS = np.array(
    [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
"""Of characters below the surrogates, those that cleaning takes out; what is in the same rows is told by two bytes."""
_DIGITS = np.zeros(256, np.int32)
_DIGITS[list(b"0123456789abcdef")] = range(16)
_DIGITS[list(b"ABCDEF")] = range(10, 16)
_IS_HIDDEN = np.zeros(1 << 16, np.bool_)
_IS_HIDDEN[_HIDDEN_NUMBERS] = True


def are_harmless(text: bytes) -> bool:
    """Whether no escape in `text` stands for a character that is taken out or replaced.

    False proves nothing. An escape that is none counts as harmless: it is for whoever reads the text to find.

    Args:
        text: JSON, whole.
    """
    codes = np.frombuffer(text, np.uint8)
    surrogates: list[_Places] = []
    for start in range(0, len(codes), _BLOCK_BYTES):
        block = codes[start : start + _BLOCK_BYTES + _AHEAD_BYTES]
        if len(block) < _BLOCK_BYTES + _AHEAD_BYTES:
            block = np.concatenate((block, np.zeros(_AHEAD_BYTES, np.uint8)))
        escapes = block[:-_AHEAD_BYTES] == _BACKSLASH
        if not (count := np.count_nonzero(escapes)):
            continue
        numbered = escapes & (_after(block, 1) == _U)
        rest = count - np.count_nonzero(numbered)
        if rest and not _are_short_ones_harmless(block, np.flatnonzero(escapes & ~numbered)):
            return False
        if rest < count:
            if not _are_low_ones_harmless(block, numbered):
                return False
            is_surrogate = ((_after(block, 2) | _SMALL) == _D) & (_after(block, 3) >= _EIGHT) & numbered
            surrogates.append(np.flatnonzero(is_surrogate) + start)
    return not surrogates or _are_paired(codes, np.concatenate(surrogates))


def _after(block: _Codes, count: int) -> _Codes:
    """For each byte of a block the one that stands so far behind it."""
    return block[count : len(block) - _AHEAD_BYTES + count]


def _are_short_ones_harmless(block: _Codes, places: _Places) -> bool:
    """Return whether one-letter escapes there may be shown; a carriage return before a line feed may."""
    places = places[~_SHOWN[block[places + 1]]]
    ends_line = (block[places + 1] == _R) & (block[places + 2] == _BACKSLASH) & (block[places + 3] == _N)
    return bool(ends_line.all())


def _are_low_ones_harmless(block: _Codes, numbered: _Flags) -> bool:
    r"""Return whether no \u0000-like escape is a hidden character, beyond surrogates."""
    # All that is hidden is among \u00.., \u02.., \u20.. and \u22.., and its next digit is no letter.
    suspects = ((_after(block, 2) & _NOT_TWO) == _ZERO) & ((_after(block, 3) & _NOT_TWO) == _ZERO) & numbered
    if not suspects.any():
        return True
    places = np.flatnonzero(suspects & (_after(block, 4) <= _NINE))
    number = _DIGITS[block[places + 2]]
    for digit in range(3, _ESCAPE_CHARS):
        number = number << 4 | _DIGITS[block[places + digit]]
    return not _IS_HIDDEN[number].any()


def _are_paired(codes: _Codes, places: _Places) -> bool:
    """Whether the surrogates whose escapes begin there are pairs, and none of those a TAG character."""
    highs, lows = places[::2], places[1::2]
    if len(highs) != len(lows) or (lows != highs + _ESCAPE_CHARS).any():
        return False
    seconds = codes[places + 3] | _SMALL
    if (seconds[::2] >= _C).any() or (seconds[1::2] < _C).any():
        return False
    tags = highs[seconds[::2] == _B]
    if ((codes[tags + 4] == _FOUR) & (codes[tags + 5] == _ZERO)).any():
        return False
    # A backslash before one may make of it text that only looks like an escape.
    return not (codes[highs - 1] == _BACKSLASH).any()
