"""Letter pairs of names in one table: which names are nearest to one that does not exist."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.ties import compute_tie_break

NAME_LIMIT_CHARS = 128
"""Compared of a name: the longest one that the protocol recommends.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools"""

_PAIR_WORDS = 4
"""A name's letter pairs are a set of 256 bits: four 64-bit words; a usual name has 25 pairs."""

_WAITING = 256
"""Up to so many tools that came or left wait for the next look at the table: to bring it up to date copies it."""

WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class LetterPairs:
    """The letter pairs of all names, column by column: column i belongs to `ids[i]`.

    Attributes:
        ids: int64, shape (n,).
        ties: What decides between equal ones, int64, shape (n,).
        pairs: Sets of bits, uint64, shape (2, 4, n): of the tool's own name and of the canonical one.
        sizes: How many bits are set, float32, shape (2, n).
    """

    ids: NDArray[np.int64]
    ties: NDArray[np.int64]
    pairs: NDArray[np.uint64]
    sizes: NDArray[np.float32]

    @classmethod
    def of(cls, documents: Collection[Document]) -> "LetterPairs":
        """The table of some tools."""
        count = len(documents)
        bits = b"".join(_as_bytes(each) for document in documents for each in _both_sets(document))
        pairs = np.frombuffer(bits, "<u8").reshape(count, 2, _PAIR_WORDS).transpose(1, 2, 0)
        return cls.over(documents, pairs)

    @classmethod
    def over(cls, documents: Collection[Document], pairs: NDArray[np.uint64]) -> "LetterPairs":
        """The table of these tools' sets."""
        ids = np.fromiter((document.id for document in documents), np.int64, len(documents))
        ties = np.fromiter(map(compute_tie_break, documents), np.int64, len(documents))
        return cls(ids, ties, pairs, np.bitwise_count(pairs).sum(axis=1, dtype=np.float32))

    @classmethod
    def load_arrays(cls, arrays: Arrays, documents: Mapping[int, Document]) -> "LetterPairs":
        """The table that `dump_arrays` wrote, as far as it is about `documents`."""
        ids = arrays["pair_ids"]
        pairs = arrays["pairs"].reshape(2, _PAIR_WORDS, len(ids))
        known = np.isin(ids, np.fromiter(documents, np.int64, len(documents)))
        return cls.over([documents[id] for id in ids[known].tolist()], pairs[:, :, known])

    def dump_arrays(self) -> Arrays:
        """The table as arrays, for a file."""
        return {"pair_ids": self.ids, "pairs": self.pairs.ravel()}

    def replace_documents(self, gone: Collection[int], new: Collection[Document]) -> "LetterPairs":
        """The table without `gone`, with `new`: columns at the end fill the gaps."""
        leaves = np.isin(self.ids, np.fromiter(gone, np.int64, len(gone)), kind="sort")  # mostly few, or none
        kept = len(leaves) - np.count_nonzero(leaves)
        gaps, moved, more = leaves[:kept].nonzero()[0], kept + (~leaves[kept:]).nonzero()[0], LetterPairs.of(new)

        def fill_gaps(old: NDArray[Any], entered: NDArray[Any]) -> NDArray[Any]:
            table = np.concatenate((old[..., :kept], entered), axis=-1)
            table[..., gaps] = old[..., moved]
            return table

        return LetterPairs(
            fill_gaps(self.ids, more.ids),
            fill_gaps(self.ties, more.ties),
            fill_gaps(self.pairs, more.pairs),
            fill_gaps(self.sizes, more.sizes),
        )

    def most_alike(self, name: str, some: Collection[int]) -> list[int]:
        """These of the ids, most letter pairs in common with `name` first."""
        at = np.isin(self.ids, np.fromiter(some, np.int64, len(some))).nonzero()[0]
        wanted = np.frombuffer(_as_bytes(pair_bits(name)), "<u8")
        common = np.bitwise_count(self.pairs[:, :, at] & wanted[:, np.newaxis]).sum(axis=1)
        shares = (common / (1 + self.sizes[:, at] + np.bitwise_count(wanted).sum())).max(axis=0)
        ordered: list[int] = self.ids[at[np.lexsort((self.ties[at], -shares))]].tolist()
        return ordered

    def shares(self, name: str) -> NDArray[np.float32]:
        """The letter pairs that each tool has in common with `name`, as a share of both; float32, shape (n,)."""
        wanted = np.frombuffer(_as_bytes(pair_bits(name)), "<u8")
        common = np.zeros(self.sizes.shape, np.float32)
        for word in range(_PAIR_WORDS):
            common += np.bitwise_count(self.pairs[:, word] & wanted[word])
        shares: NDArray[np.float32] = (common / (1 + self.sizes + np.bitwise_count(wanted).sum())).max(axis=0)
        return shares


class LetterTable:
    """The letter pairs of all names as of now, made when they are first asked for: few searches do.

    Safe for threads: two that ask at once make the same.

    Args:
        made: Of the tools that there were.
        gone: Ids that left since.
        new: Tools that came since.
    """

    __slots__ = ("_pending",)

    def __init__(self, made: LetterPairs, gone: frozenset[int] = frozenset(), new: Iterable[Document] = ()) -> None:
        self._pending = (made, gone, {document.id: document for document in new})

    def replace_documents(self, gone: Collection[int], new: Iterable[Document]) -> "LetterTable":
        """The table without `gone`, with `new`."""
        made, left, entered = self._pending
        stay = [document for id, document in entered.items() if id not in gone]
        following = LetterTable(made, left.union(gone), (*stay, *new))
        _, all_gone, all_new = following._pending
        if len(all_gone) + len(all_new) > _WAITING:
            following.pairs()
        return following

    def pairs(self) -> LetterPairs:
        """The table; it must not be changed."""
        made, gone, new = self._pending
        if gone or new:
            made = made.replace_documents(gone, new.values())
            self._pending = (made, frozenset(), {})
        return made


def normalize_names(document: Document) -> tuple[str, str]:
    """A tool's own name and its canonical one, as nearest names are compared."""
    return normalize_name(document.name), normalize_name(f"{document.server} {document.name}")


def normalize_name(name: str) -> str:
    """A name without letter case, whatever stands between its words: `a:b`, `a__b` and `A.b` are one."""
    return space_words(name[: 2 * NAME_LIMIT_CHARS])[:NAME_LIMIT_CHARS]


def space_words(text: str) -> str:
    """The words of a text without letter case, a space between any two."""
    return " ".join(WORD.findall(text.lower()))


def _as_bytes(bits: int) -> bytes:
    return bits.to_bytes(8 * _PAIR_WORDS, "little")


@lru_cache(maxsize=256)
def pair_bits(name: str) -> int:
    """The letter pairs of a name as a set of 256 bits; many servers have tools of one name."""
    bits = 0
    for a, b in pairwise(map(ord, name)):
        bits |= 1 << (a * 31 + b & 64 * _PAIR_WORDS - 1)
    return bits


def _both_sets(document: Document) -> tuple[int, int]:
    """Letter pairs of both spoken names; of the canonical one its parts', unless it is cut short."""
    own, server = normalize_name(document.name), normalize_name(document.server)
    bits = pair_bits(own)
    longest = max(len(own) + len(server), len(document.name), len(document.server))
    if longest >= NAME_LIMIT_CHARS or not own or not server:
        return bits, pair_bits(normalize_names(document)[1])
    return bits, bits | pair_bits(server) | pair_bits(f"{server[-1]} {own[0]}")


def compute_pair_share(wanted: int, document: Document) -> float:
    """The same for one tool as `LetterPairs.shares` for all."""
    own, canonical = _both_sets(document)
    size = 1 + wanted.bit_count()
    return max(
        (own & wanted).bit_count() / (size + own.bit_count()),
        (canonical & wanted).bit_count() / (size + canonical.bit_count()),
    )
