"""A quick look through long texts for what cleaning may take out of them, at memory speed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import numpy as np

from smart_mcp_proxy.invisible.characters import INVISIBLE_RANGES, JOINING_RANGES, PICTURE_RANGES, has_unneeded

_Codes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_Numbers = np.ndarray[tuple[int], np.dtype[np.uint16]]
_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
_Places = np.ndarray[tuple[int], np.dtype[np.intp]]

_BLOCK_BYTES: Final = 1 << 16
"""Looked through in one go: with all that is found out about it, it stays in the processor's cache."""
_AHEAD_BYTES: Final = 8
"""Behind a block, so that an escape that begins in it is seen whole."""
_BACKSLASH: Final = ord("\\")
_U: Final = ord("u")
_ZERO: Final = ord("0")
_ONE: Final = ord("1")
_TWO: Final = ord("2")
_THREE: Final = ord("3")
_FOUR: Final = ord("4")
_EIGHT: Final = ord("8")
_B: Final = ord("b")
_C: Final = ord("c")
_D: Final = ord("d")
_E: Final = ord("e")
_N: Final = ord("n")
_R: Final = ord("r")
_SMALL: Final = 0x20
"""The bit that small letters have and capital ones have not; all digits have it."""
_EVEN: Final = 0xFE
"""All bits but the one in which 5 differs from 4."""
_NOT_EIGHT: Final = 0xF7
"""All bits but the one in which 8 differs from 0."""
_ESCAPE_CHARS: Final = len(rb"\u0000")
_SHOWN = np.isin(np.arange(256), list(b'"\\/nt'))
"""By code, whether a backslash and this letter stand for a character that may be shown."""
_HIDDEN, _PICTURE, _JOINING = 1, 2, 3
"""Kinds of UTF-16 units: of what may have to be taken out, of pictures, of letters that are joined."""
_KINDS = np.zeros(1 << 16, np.uint8)
_PAIRS = np.zeros(1 << 16, np.uint8)
"""By two bytes, the number that they are as hexadecimal digits."""
_TWO_BYTES: Final = 0xC2
_THREE_BYTES: Final = 0xE0
_FOUR_BYTES: Final = 0xF0
"""Lowest bytes with which characters of so many begin in UTF-8."""
_SURROGATES: Final = (0xD800, 0xDFFF)
_LOWS: Final = 0xDC00
_SELECTORS: Final = (0xFE0E, 0xFE0F)
_JOINERS: Final = (0x200C, 0x200D)
_EITHER: Final = 0xFFFE
"""All bits but the one in which the two of such a pair differ."""


def _fill_tables() -> dict[bytes, list[tuple[int, int]]]:
    """Fill both tables; returns by a hidden character's first byte the ranges of its second one."""
    controls = [(0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x7F), (0x80, 0x9F)]
    hidden = [*controls, *(each for each in INVISIBLE_RANGES if each != _SURROGATES)]
    leads = defaultdict[int, _Flags](lambda: np.zeros(256, np.bool_))
    for kind, ranges in ((_PICTURE, PICTURE_RANGES), (_JOINING, JOINING_RANGES), (_HIDDEN, hidden)):
        for ends in ranges:
            low, high = (int.from_bytes(chr(end).encode("utf-16-be")[:2], "big") for end in ends)
            _KINDS[low : high + 1] = kind
    for first, last in hidden[len(controls) - 1 :]:
        low_lead, low_next, high_lead, high_next = *chr(first).encode()[:2], *chr(last).encode()[:2]
        for lead in range(low_lead, high_lead + 1):
            leads[lead][low_next if lead == low_lead else 0 : (high_next if lead == high_lead else 0xFF) + 1] = True
    digits = [(char, int(char, 16)) for char in "0123456789abcdefABCDEF"]
    for one, high in digits:
        for two, low in digits:
            _PAIRS[int.from_bytes(f"{one}{two}".encode(), "little")] = high << 4 | low
    edges = {lead: np.flatnonzero(np.diff(follows, prepend=False, append=False)) for lead, follows in leads.items()}
    return {
        bytes([lead]): [*zip(edge[::2].tolist(), (edge[1::2] - 1).tolist(), strict=True)]
        for lead, edge in edges.items()
    }


_LEADS: Final = _fill_tables()
_FIRST_PRINTABLE: Final = ord(" ")
_DELETE: Final = b"\x7f"
_ESCAPE: Final = b"\\"
_DIRECTIONS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Never needed in a result, wherever they stand."""
_SHORT_BYTES: Final = 4_096
"""Up to here a pattern takes less time."""


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


def are_harmless(text: bytes) -> bool:
    """Whether no escape in `text` stands for a character that is taken out or replaced.

    False proves nothing. An escape that is none counts as harmless: it is for whoever reads the text to find.

    Args:
        text: JSON, whole.
    """
    codes = np.frombuffer(text, np.uint8)
    surrogates: list[_Places] = []
    hidden: list[_Places] = []
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
            hidden.append(_find_hidden(block, numbered) + start)
            is_surrogate = ((_after(block, 2) | _SMALL) == _D) & (_after(block, 3) >= _EIGHT) & numbered
            surrogates.append(np.flatnonzero(is_surrogate) + start)
    if surrogates and not _are_paired(codes, np.concatenate(surrogates)):
        return False
    return not hidden or _are_escapes_needed(codes, np.concatenate(hidden))


def _after(block: _Codes, count: int) -> _Codes:
    """For each byte of a block the one that stands so far behind it."""
    return block[count : len(block) - _AHEAD_BYTES + count]


def _are_short_ones_harmless(block: _Codes, places: _Places) -> bool:
    """Return whether one-letter escapes there may be shown; a carriage return before a line feed may."""
    places = places[~_SHOWN[block[places + 1]]]
    ends_line = (block[places + 1] == _R) & (block[places + 2] == _BACKSLASH) & (block[places + 3] == _N)
    return bool(ends_line.all())


def _find_hidden(block: _Codes, numbered: _Flags) -> _Places:
    r"""The places of \u0000-like escapes of characters that may have to be taken out, surrogates beside."""
    # Nearly all letters are elsewhere: what is hidden is in the rows 00, 03, 06 to 08, 11 to 18, 20, 28, 31, e0 to ff.
    first, second, third = _after(block, 2) | _SMALL, _after(block, 3), _after(block, 4) | _SMALL
    suspects = (first == _ZERO) & (second & _EVEN != _FOUR) & ((second != _ZERO) | (third < _B))
    suspects |= (first == _ONE) | (first >= _E) | (first == _THREE) & (second == _ONE)
    suspects |= (first == _TWO) & (second & _NOT_EIGHT == _ZERO)
    places = np.flatnonzero(suspects & numbered)
    kept: _Places = places[_KINDS[_read_numbers(block, places)] == _HIDDEN]
    return kept


def _read_numbers(codes: _Codes, places: _Places) -> _Numbers:
    """The numbers of escapes there; of what is none, any."""
    pairs = np.ndarray((len(codes) - 1,), "<u2", codes, strides=(1,))
    high, low = (_PAIRS[pairs[np.minimum(places + ahead, len(pairs) - 1)]].astype(np.uint16) for ahead in (2, 4))
    numbers: _Numbers = high << 8 | low
    return numbers


def _are_paired(codes: _Codes, places: _Places) -> bool:
    """Whether the surrogates whose escapes begin there are pairs, and none of those a hidden character."""
    highs, lows = places[::2], places[1::2]
    if len(highs) != len(lows) or (lows != highs + _ESCAPE_CHARS).any():
        return False
    seconds = codes[places + 3] | _SMALL
    if (seconds[::2] >= _C).any() or (seconds[1::2] < _C).any():
        return False
    if (_KINDS[_read_numbers(codes, highs)] == _HIDDEN).any():
        return False
    # A backslash before one may make of it text that only looks like an escape.
    return not (codes[highs - 1] == _BACKSLASH).any()


def _are_escapes_needed(codes: _Codes, places: _Places) -> bool:
    """Whether the hidden characters whose escapes begin there are certainly needed; see `_are_needed`."""

    def read(steps: int) -> _Numbers:
        there = places + steps * _ESCAPE_CHARS
        start = [codes.take(there + ahead, mode="clip") for ahead in (-1, 0, 1)]
        is_escape = (start[0] != _BACKSLASH) & (start[1] == _BACKSLASH) & (start[2] == _U)
        return np.where(is_escape, _read_numbers(codes, there), 0)

    before = read(-1)
    is_low = (before >= _LOWS) & (before <= _SURROGATES[1])
    return _are_needed(read(0), np.where(is_low, read(-2), before), read(1))


def _are_needed(units: _Numbers, before: _Numbers, after: _Numbers) -> bool:
    """Whether hidden characters are certainly such as writing needs, each by itself.

    A variation selector behind a picture, a joiner between two, or behind a letter that is joined. Not all that
    `is_at_home` of `smart_mcp_proxy/invisible/characters.py` lets stay.

    Args:
        units: First UTF-16 units of the characters.
        before: Of those before each.
        after: Of those behind each.
    """
    is_behind = _KINDS[before] == _PICTURE
    is_drawn = (before == _SELECTORS[1]) & (units == _JOINERS[1])
    is_between = (is_behind | is_drawn) & (_KINDS[after] == _PICTURE)
    is_inside = (_KINDS[before] == _JOINING) & (_KINDS[after] != _HIDDEN)
    is_selector, is_joiner = units & _EITHER == _SELECTORS[0], units & _EITHER == _JOINERS[0]
    return bool((is_selector & is_behind | is_joiner & (is_between | is_inside)).all())


def may_hold_hidden(text: bytes) -> bool:
    """Whether characters of a text, not written as escapes, may have to be taken out; False is certain.

    Args:
        text: UTF-8.
    """
    present = [(lead[0], ranges) for lead, ranges in _LEADS.items() if lead in text]
    if not present:
        return False
    if len(text) <= _SHORT_BYTES:
        shown = text.decode("utf-8", "replace")
        return has_unneeded(shown) or _DIRECTIONS.search(shown) is not None
    codes = np.frombuffer(text, np.uint8)
    blocks = range(0, len(codes), _BLOCK_BYTES)
    found = [_find_pairs(codes[at : at + _BLOCK_BYTES + 1], present) + at for at in blocks]
    places = np.concatenate(found)
    places = places[_KINDS[_read_units(codes, places)] == _HIDDEN]
    if not len(places):
        return False
    lengths = np.where(codes.take(places - 3, mode="clip") < _THREE_BYTES, 2, 3)
    lengths[codes.take(places - 4, mode="clip") >= _FOUR_BYTES] = 4
    units, before, after = (_read_units(codes, places + step) for step in (0, -lengths, 3))
    return not _are_needed(units, before, after)


def _find_pairs(block: _Codes, present: Sequence[tuple[int, Iterable[tuple[int, int]]]]) -> _Places:
    """The places in a block where a byte and the next one are such as begin a hidden character."""
    first, second = block[:-1], block[1:]
    found = np.zeros(len(first), np.bool_)
    for lead, ranges in present:
        follows = [second == low if low == high else second - np.uint8(low) <= high - low for low, high in ranges]
        found |= reduce(np.bitwise_or, follows) & (first == lead)
    return np.flatnonzero(found)


def _read_units(codes: _Codes, places: _Places) -> _Numbers:
    """The first UTF-16 units of the characters that begin there; 0 of what is ASCII or no beginning."""
    first, second, third = (codes.take(places + ahead, mode="clip").astype(np.uint16) for ahead in range(3))
    two = (first & 0x1F) << 6 | second & 0x3F
    three = first << 12 | (second & 0x3F) << 6 | third & 0x3F
    four = _SURROGATES[0] - 0x40 + ((first & 7) << 8 | (second & 0x3F) << 2 | third >> 4 & 3)
    long = np.where(first < _FOUR_BYTES, three, four)
    return np.where(first < _THREE_BYTES, np.where(first < _TWO_BYTES, 0, two), long)
