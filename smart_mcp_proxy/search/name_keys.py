"""Names in order: ids by a key, by the beginning of a key, in few bytes."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.text import is_one_slip

_AT_A_TIME = 1 << 16
"""Keys that are read at a time: what that takes is several times as much as what is kept."""

_FRESH = 512
_FRESH_SHARE = 1 / 4
"""Keys, or the share of all keys, that wait in a dictionary before they are sorted in."""

_HEAD_BYTES = 8
_ASKED = 256
"""Keys whose ids are remembered until the next change."""

_SORTED_BY_HAND = 64
"""Most keys that are sorted faster without arrays."""

_END = b"\n"
"""Below every character of a key, which is made of letters and digits: so texts sort as keys do."""


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


class KeyShapes(msgspec.Struct):
    """Shapes of keys; read when they are first asked for: 40 ms for 200,000 keys.

    Attributes:
        text: The keys one after another, each ended by a line end, as UTF-8.
        starts: Where each begins, and the end, int64.
    """

    text: bytes
    starts: Any
    _table: _Table | None = None
    longest: int = 0
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
        own = 1 << _END[0]
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
    return np.left_shift(np.uint32(1), codes & np.uint32(31)), np.flatnonzero(codes == _END[0])


class NameKeys(msgspec.Struct, frozen=True):
    """Pairs of key and id. Immutable: `add_keys` returns the next one.

    What is gone stays in it until the next sorting: those who look up compare with the names that there are.

    Attributes:
        text: All keys in order, each ended by a line end, as UTF-8.
        starts: Where each begins, and the end, int64.
        ids: Whose, int64.
        heads: The first 8 bytes of each as a number, which is faster looked for; uint64.
        fresh: Ids by key, of what was added since.
        asked: Ids by key that was looked up: each query is several times; a cache.
        shapes: Of the keys in `text`.
    """

    text: bytes = b""
    starts: memoryview = msgspec.field(default_factory=lambda: np.zeros(1, np.int64).data)
    ids: memoryview = msgspec.field(default_factory=lambda: np.empty(0, np.int64).data)
    heads: memoryview = msgspec.field(default_factory=lambda: np.empty(0, np.uint64).data)
    fresh: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    asked: dict[str, list[int]] = msgspec.field(default_factory=dict)
    shapes: KeyShapes = msgspec.field(default_factory=lambda: KeyShapes(b"", np.zeros(1, np.int64)))

    def add_keys(self, new: Iterable[tuple[str, int]], known: Callable[[], NDArray[np.int64]]) -> "NameKeys":
        """The table with `new`; of the rest only the ids that `known` gives need to stay."""
        fresh = dict(self.fresh)
        for key, id in new:
            fresh[key] = (*fresh.get(key, ()), id)
        following = NameKeys(self.text, self.starts, self.ids, self.heads, fresh, shapes=self.shapes)
        return following._merge_fresh(known()) if len(fresh) > max(_FRESH, _FRESH_SHARE * len(self.ids)) else following

    def _merge_fresh(self, known: NDArray[np.int64]) -> "NameKeys":
        """The same with all of it in order."""
        kept = np.isin(self.ids, known).tolist()
        pairs = {(key, id) for key, id, is_kept in zip(self._keys(), self.ids, kept, strict=True) if is_kept}
        standing = set(known.tolist())
        pairs |= {(_encode_key(key), id) for key, ids in self.fresh.items() for id in ids if id in standing}
        ordered = sorted(pairs)
        return self._of(
            b"".join([key + _END for key, _ in ordered]), np.array([id for _, id in ordered], np.int64), len(ordered)
        )

    @classmethod
    def _of(cls, text: bytes, ids: NDArray[np.int64], count: int) -> "NameKeys":
        starts = np.zeros(count + 1, np.int64)
        codes = np.frombuffer(text, np.uint8)
        starts[1:] = np.flatnonzero(codes == _END[0]) + 1
        heads = np.zeros(count, np.uint64)
        for at in range(_HEAD_BYTES):
            places = starts[:-1] + at
            heads <<= np.uint64(8)
            heads |= np.where(places < starts[1:], codes.take(places, mode="clip"), 0) if count else heads
        return cls(text, starts.data, ids.data, heads.data, shapes=KeyShapes(text, starts))

    def _keys(self) -> list[bytes]:
        return self.text.split(_END)[:-1]

    def find_ids(self, key: str) -> list[int]:
        """The ids of a key, rising, each once; some may have other names by now."""
        if len(key) > self.shapes.longest:  # as most queries are
            return sorted(set(self.fresh.get(key, ())))
        if (known := self.asked.get(key)) is None:
            if len(self.asked) >= _ASKED:
                self.asked.clear()
            known = self.asked[key] = self._look_up(key)
        return known

    def _look_up(self, key: str) -> list[int]:
        found = set(self.fresh.get(key, ()))
        wanted = _encode_key(key) + _END
        place, end = self._between(wanted, b"\0", b"\0")
        if place < end:  # for few queries
            place = bisect_left(range(end), wanted, place, end, key=self._key)
        while place < end and self._key(place) == wanted:
            found.add(self.ids[place])
            place += 1
        return sorted(found)

    def _between(self, key: bytes, lowest: bytes, highest: bytes) -> tuple[int, int]:
        """The range of keys that begin like this one, its head filled up with one byte and the other."""
        head = key[:_HEAD_BYTES]
        start = bisect_left(self.heads, int.from_bytes(head.ljust(_HEAD_BYTES, lowest)))
        last = int.from_bytes(head.ljust(_HEAD_BYTES, highest))
        if start == len(self.heads) or self.heads[start] > last:  # as nearly always: no second look at all of them
            return start, start
        return start, bisect_right(self.heads, last, start)

    def _key(self, place: int) -> bytes:
        """A key with its end."""
        return self.text[self.starts[place] : self.starts[place + 1]]

    def find_by_prefix(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The keys that begin so with the id of each, the shortest first; some may have other names by now."""
        begun = _encode_key(prefix)
        start, end = self._between(begun, b"\0", b"\xff")
        if len(begun) > _HEAD_BYTES and start < end:
            start = bisect_left(range(len(self.ids)), begun, start, end, key=self._key)
            end = bisect_left(range(len(self.ids)), begun + b"\xff", start, end, key=self._key)
        fresh = {(key, id) for key, ids in self.fresh.items() if key.startswith(prefix) for id in ids}
        if start == end and not fresh:
            return
        text = self.text[self.starts[start] : self.starts[end]].decode("utf-8", "surrogatepass")
        if fresh or end - start <= _SORTED_BY_HAND or not text.isascii():
            found = list(zip(text.split(_END.decode())[:-1], self.ids[start:end], strict=True))
            if fresh:
                found = sorted(fresh.union(found))
            yield from sorted(found, key=lambda pair: len(pair[0]))
            return
        # As they lie they are in order, each once, and few of the shortest are asked for.
        ends = np.asarray(self.starts)[start : end + 1] - self.starts[start]
        for at in np.argsort(np.diff(ends), kind="stable").tolist():
            yield text[ends[at] : ends[at + 1] - 1], self.ids[start + at]

    def one_slip_from(self, key: str) -> list[tuple[str, int]]:
        """The keys that one slip turns into `key` with the id of each; some may have other names by now."""
        places: dict[bytes, list[int]] = {}
        for place in self.shapes.near(key) if len(self.ids) else ():
            places.setdefault(self._key(place), []).append(place)  # many servers have tools of one name
        found: list[tuple[str, int]] = []
        for encoded, alike in places.items():
            if is_one_slip(key, other := encoded[:-1].decode("utf-8", "surrogatepass")):
                found += [(other, self.ids[place]) for place in alike]
        for other, ids in self.fresh.items():
            if abs(len(other) - len(key)) <= 1 and is_one_slip(key, other):
                found += [(other, id) for id in ids]
        return found

    def dump_arrays(self, known: NDArray[np.int64]) -> Arrays:
        """The table as arrays, for a file."""
        whole = self._merge_fresh(known)
        return {"names": np.frombuffer(whole.text, np.uint8), "name_ids": np.asarray(whole.ids)}

    @classmethod
    def load_arrays(cls, arrays: Arrays) -> "NameKeys":
        """The table that `dump_arrays` wrote; ids of it may be gone."""
        return cls._of(arrays["names"].tobytes(), arrays["name_ids"], len(arrays["name_ids"]))


def _encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
