"""Lengths and letters of sorted keys: which of them one slip of the pen may lead to."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_AT_A_TIME = 1 << 16
"""Keys that are read at a time: what that takes is several times as much as what is kept."""

_END = 10


class _Table(NamedTuple):
    """The keys by rising length.

    Attributes:
        places: Numbers of the keys, int32.
        sets: Of their characters with their end, uint32, see `_bits`.
        firsts: By length in characters, where those begin that are as long or longer; the last is for all above.
        is_ascii: Whether all of them are ASCII.
    """

    places: NDArray[np.int32]
    sets: NDArray[np.uint32]
    firsts: list[int]
    is_ascii: bool


@dataclass(slots=True)
class KeyShapes:
    """Shapes of keys; read when they are first asked for: 40 ms for 200,000 keys.

    Attributes:
        text: The keys one after another, each ended by a line end, as UTF-8.
        starts: Where each begins, and the end, int64.
    """

    text: bytes
    starts: Any
    _table: _Table | None = None
    longest: int = field(init=False)
    """Bytes of the longest key; it has as many characters at most."""

    def __post_init__(self) -> None:
        self.longest = int(np.diff(np.asarray(self.starts)).max(initial=1)) - 1

    def near(self, key: str) -> list[int]:
        """Numbers of the keys that one slip may lead to; some are further away."""
        table = self._table = self._table or self._read()
        # One slip changes the length by at most one and the set of letters by at most two.
        firsts, above = table.firsts, len(table.firsts) - 1
        first, last = firsts[min(len(key) - 1, above)], firsts[min(len(key) + 2, above)]
        if first == last or (table.is_ascii and len(key.encode("ascii", "ignore")) < len(key) - 1):
            return []
        own = 1 << _END
        for letter in key:
            own |= 1 << (ord(letter) & 31)
        is_near = np.bitwise_count(table.sets[first:last] ^ np.uint32(own)) <= 2
        near: list[int] = table.places[first:last][is_near].tolist()
        return near

    def _read(self) -> _Table:
        starts = np.asarray(self.starts)
        sets, lengths = [np.empty(0, np.uint32)], [np.empty(0, np.int32)]
        for at in range(0, len(starts) - 1, _AT_A_TIME):
            last = min(at + _AT_A_TIME, len(starts) - 1)
            bits, ends = _bits(self.text[starts[at] : starts[last]].decode("utf-8", "surrogatepass"))
            begins = np.concatenate(([0], ends[:-1] + 1))
            sets.append(np.bitwise_or.reduceat(bits, begins))
            lengths.append((ends - begins).astype(np.int32))
        sizes = np.concatenate(lengths)
        places = np.argsort(sizes, kind="stable").astype(np.int32)
        firsts = np.searchsorted(sizes[places], np.arange(sizes.max(initial=0) + 2)).tolist()
        return _Table(places, np.concatenate(sets)[places], firsts, self.text.isascii())


def _bits(text: str) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
    """A bit for each character, and where the line ends are."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.left_shift(np.uint32(1), codes & np.uint32(31)), np.flatnonzero(codes == _END)
