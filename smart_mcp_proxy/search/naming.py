"""Tools by name: exact names inside a query, and the nearest names to one that does not exist."""

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.name_keys import NameKeys
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS, is_one_slip
from smart_mcp_proxy.search.ties import name_order, tie_of

__all__ = ["NameTable"]

_NAME_LIMIT_CHARS = 128
"""What is compared of a name. Source: the longest name that the protocol recommends."""

_CANDIDATES = 16
"""Names compared letter by letter, after a rough choice by shared letter pairs."""

_LEAST_RATIO = 0.5
"""Below this share of common letters a name is another name, not a slip."""

_PAIR_WORDS = 4
"""A name's letter pairs are a set of 256 bits: four 64-bit words; a usual name has 25 pairs."""

_QUERY_PIECE = re.compile(r"""[^\s,;'"`()\[\]{}<>]+""")
_TRAILING = ".:!?"
_LOOKS_LIKE_NAME = re.compile(r"_|[A-Z](?<=[a-z0-9].)|[:./-](?<=\w.)(?=\w)")
"""Each way begins with the rare character: the words of a sentence are passed over at once."""

_SHORTEST_PART = 4
"""Fewer letters are the beginning of too many names."""
_PREFIXED = 24
"""Most tools that are found by the beginning of their names, the shortest first."""
_SLIP_LETTERS = 5
"""Shorter names have too many neighbours at one letter's distance."""

_WORD = re.compile(r"[^\W_]+")
_LOWERED = bytes(range(128)).lower() + bytes(128)
_SEPARATORS = bytes(code for code in range(128) if not chr(code).isalnum())
"""The same for ASCII, where it is all that a name is made of, several times as fast."""
_SERVER_WORDS = 4
"""A server's name is looked for in a query as up to this many words in a row."""


@dataclass(frozen=True, slots=True)
class _Letters:
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
    def of(cls, documents: Collection[Document]) -> "_Letters":
        """The table of some tools."""
        count = len(documents)
        bits = b"".join(_pairs(form) for document in documents for form in _spoken(document))
        pairs = np.frombuffer(bits, "<u8").reshape(count, 2, _PAIR_WORDS).transpose(1, 2, 0)
        return cls.over(documents, pairs)

    @classmethod
    def over(cls, documents: Collection[Document], pairs: NDArray[np.uint64]) -> "_Letters":
        """The table of these tools' sets."""
        ids = np.fromiter((document.id for document in documents), np.int64, len(documents))
        ties = np.fromiter(map(tie_of, documents), np.int64, len(documents))
        return cls(ids, ties, pairs, np.bitwise_count(pairs).sum(axis=1, dtype=np.float32))

    def changed(self, gone: Collection[int], new: Collection[Document]) -> "_Letters":
        """The table without `gone`, with `new`: columns at the end fill the gaps."""
        leaves = np.isin(self.ids, np.fromiter(gone, np.int64, len(gone)), kind="sort")  # mostly few, or none
        kept = len(leaves) - np.count_nonzero(leaves)
        gaps, moved, more = leaves[:kept].nonzero()[0], kept + (~leaves[kept:]).nonzero()[0], _Letters.of(new)

        def joined(old: NDArray[Any], entered: NDArray[Any]) -> NDArray[Any]:
            table = np.concatenate((old[..., :kept], entered), axis=-1)
            table[..., gaps] = old[..., moved]
            return table

        return _Letters(
            joined(self.ids, more.ids),
            joined(self.ties, more.ties),
            joined(self.pairs, more.pairs),
            joined(self.sizes, more.sizes),
        )

    def most_alike(self, name: str, some: Collection[int]) -> list[int]:
        """These of the ids, most letter pairs in common with `name` first."""
        at = np.isin(self.ids, np.fromiter(some, np.int64, len(some))).nonzero()[0]
        wanted = np.frombuffer(_pairs(name), "<u8")
        common = np.bitwise_count(self.pairs[:, :, at] & wanted[:, np.newaxis]).sum(axis=1)
        shares = (common / (1 + self.sizes[:, at] + np.bitwise_count(wanted).sum())).max(axis=0)
        ordered: list[int] = self.ids[at[np.lexsort((self.ties[at], -shares))]].tolist()
        return ordered

    def shares(self, name: str) -> NDArray[np.float32]:
        """The letter pairs that each tool has in common with `name`, as a share of both; float32, shape (n,)."""
        wanted = np.frombuffer(_pairs(name), "<u8")
        common = np.zeros(self.sizes.shape, np.float32)
        for word in range(_PAIR_WORDS):
            common += np.bitwise_count(self.pairs[:, word] & wanted[word])
        shares: NDArray[np.float32] = (common / (1 + self.sizes + np.bitwise_count(wanted).sum())).max(axis=0)
        return shares


@dataclass(frozen=True, slots=True)
class NameTable:
    """All names of the indexed tools. Immutable: `changed` returns the next one.

    Attributes:
        keys: Ids by the letters and digits of bare, canonical and listed name, lower-cased.
        letters: What nearest names are found by.
        ids_of: Ids by server.
        by_words: Servers by their lower-cased words.
        first_words: The first one of each of these.
    """

    keys: NameKeys
    letters: _Letters
    ids_of: Mapping[str, frozenset[int]]
    by_words: Mapping[str, frozenset[str]]
    first_words: Set[str]

    @classmethod
    def empty(cls) -> "NameTable":
        """The table of no tools."""
        return cls(NameKeys(), _Letters.of(()), {}, {}, frozenset())

    def changed(self, gone: Collection[Document], new: Collection[Document]) -> "NameTable":
        """The table without `gone`, with `new`."""
        letters = self.letters.changed([document.id for document in gone], new)
        named = ((key, document.id) for document in new for key in {_joined(name) for name in _names(document)})
        return self._regrouped(self.keys.changed(named, letters.ids), letters, gone, new)

    def _regrouped(
        self, keys: NameKeys, letters: _Letters, gone: Iterable[Document], new: Iterable[Document]
    ) -> "NameTable":
        ids_of = _regrouped(self.ids_of, gone, new)
        by_words = dict(self.by_words)
        for server in self.ids_of.keys() ^ ids_of.keys():
            words = _spaced(server)
            if servers := by_words.pop(words, frozenset()) ^ {server}:
                by_words[words] = servers
        return NameTable(keys, letters, ids_of, by_words, {words.partition(" ")[0] for words in by_words})

    def stored(self) -> Arrays:
        """The table as arrays, for a file."""
        letters = self.letters
        return {"pair_ids": letters.ids, "pairs": letters.pairs.ravel(), **self.keys.stored(letters.ids)}

    @classmethod
    def restored(cls, arrays: Arrays, documents: Mapping[int, Document]) -> "NameTable":
        """The table that `stored` wrote, as far as it is about `documents`."""
        ids = arrays["pair_ids"]
        pairs = arrays["pairs"].reshape(2, _PAIR_WORDS, len(ids))
        known = np.isin(ids, np.fromiter(documents, np.int64, len(documents)))
        letters = _Letters.over([documents[id] for id in ids[known].tolist()], pairs[:, :, known])
        return cls.empty()._regrouped(NameKeys.restored(arrays), letters, (), documents.values())

    def exact(self, query: str, documents: Mapping[int, Document], allowed: Container[int] | None) -> dict[int, str]:
        """Ids whose name the query is or contains, with the name as the query wrote it.

        The whole query may be any name. A part of it must look like one (`read_file`, `readFile`, `github:search`):
        a tool called `search` is not meant whenever the word is used. Other letter case counts only where no name
        is written that way. One name means one tool of a server at most, the first in order: spellings that differ
        in case alone are no way to be asked for fifty times.
        """
        whole = query[:QUERY_LIMIT_CHARS].strip()
        found: dict[int, str] = {}
        written = [whole]
        if _LOOKS_LIKE_NAME.search(whole):  # most queries hold nothing that does: one look at all of it tells
            pieces = [piece.rstrip(_TRAILING) for piece in _QUERY_PIECE.findall(whole)]
            written += [piece for piece in pieces if _LOOKS_LIKE_NAME.search(piece)]
        for name in dict.fromkeys(written):
            if not (ids := self._ids(_joined(name), documents, allowed)):
                continue  # as nearly always
            forms = {id: _names(documents[id]) for id in ids}
            lowered = name.lower()
            as_written = [id for id, names in forms.items() if name in names]
            folded = as_written or [id for id, names in forms.items() if lowered in map(str.lower, names)]
            for id in _one_of_each_server(folded, documents):
                found.setdefault(id, name)
        return found

    def spelt_otherwise(self, query: str, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Ids of the tools that the whole query names, whatever case and separators, with or without server.

        One of each server, as in `exact`: many spellings of one name are no way to fill an answer.
        """
        wanted = _joined(query)
        ids = [id for id in self._ids(wanted, documents, allowed) if _is_joined_name(wanted, documents[id])]
        return _one_of_each_server(ids, documents)

    def nearly_named(self, query: str, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Ids of tools whose name begins with the query, shortest first; else those one slip away from it.

        Tools of one name stand by whose they are, however many there are. Only for a query of a single word.
        """
        if len(query.split()) != 1 or len(wanted := _joined(query)) < _SHORTEST_PART:
            return []
        beginning = chain.from_iterable(
            sorted(
                [id for _, id in pairs if _is_among(id, documents, allowed) and _is_joined_name(name, documents[id])],
                key=lambda id: name_order(documents[id]),
            )
            for name, pairs in groupby(self.keys.beginning(wanted), key=itemgetter(0))
        )
        if found := list(islice(_once(beginning), _PREFIXED)):
            return found
        if len(wanted) < _SLIP_LETTERS:
            return []
        near = {
            id
            for id in self.keys.one_slip_from(wanted)
            if _is_among(id, documents, allowed)
            and any(is_one_slip(wanted, name) for name in _joined_names(documents[id]))
        }
        spoken = _spoken_form(query)
        if len(near) > _CANDIDATES:
            return self.letters.most_alike(spoken, near)[:_CANDIDATES]
        bits = _pair_bits(spoken)  # as nearly always: looking for each in the table takes longer
        return sorted(near, key=lambda id: (-_share(bits, documents[id]), tie_of(documents[id]))) if near else []

    def _ids(self, key: str, documents: Mapping[int, Document], allowed: Container[int] | None) -> list[int]:
        return [id for id in self.keys.ids_of(key) if _is_among(id, documents, allowed)]

    def servers_in(self, query: str) -> set[str]:
        """The servers that the query names, whatever the case and the separators between the words."""
        words = _WORD.findall(query[:QUERY_LIMIT_CHARS].lower())
        named: set[str] = set()
        if self.first_words.isdisjoint(words):
            return named
        for start, word in enumerate(words):
            if word in self.first_words:
                for end in range(start + 1, min(start + _SERVER_WORDS, len(words)) + 1):
                    named |= self.by_words.get(" ".join(words[start:end]), frozenset())
        return named

    def nearest(self, name: str, n: int, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Up to `n` ids whose own, canonical or listed name is closest to `name`, best first."""
        wanted = _spoken_form(name)
        matcher = SequenceMatcher(None, "", wanted, autojunk=False)
        found = [documents[id] for id in self._candidates(wanted, allowed) if id in documents]
        ratios = {each.id: max(_ratio(matcher, form) for form in _spoken(each)) for each in found}
        found.sort(key=lambda each: (-ratios[each.id], *name_order(each)))
        return [each.id for each in found if ratios[each.id] >= _LEAST_RATIO][:n]

    def _candidates(self, wanted: str, allowed: Set[int] | None) -> list[int]:
        """The allowed ids with most letter pairs in common."""
        shares, count = self.letters.shares(wanted), len(self.letters.ids)
        reach = _CANDIDATES
        while True:
            least = np.partition(shares, count - reach)[count - reach] if reach < count else 0
            near = np.flatnonzero(shares >= max(least, np.finfo(np.float32).tiny))
            order = near[np.lexsort((self.letters.ties[near], -shares[near]))]
            found = [id for id in self.letters.ids[order].tolist() if allowed is None or id in allowed]
            if len(found) >= _CANDIDATES or reach >= count:
                return found[:_CANDIDATES]
            reach *= 8


def _names(document: Document) -> list[str]:
    """The forms in which an agent may write a tool's exact name."""
    names = (document.name, document.listed_name, f"{document.server}:{document.name}")
    return [name for name in names if name]


def _one_of_each_server(ids: Iterable[int], documents: Mapping[int, Document]) -> list[int]:
    """The tool of each server whose name is the first in order; and the first of each other kind."""
    first_of: dict[tuple[str, str], int] = {}
    for id in sorted(ids, key=lambda id: documents[id].name):
        first_of.setdefault((documents[id].server, documents[id].kind), id)
    return list(first_of.values())


def _is_among(id: int, documents: Mapping[int, Document], allowed: Container[int] | None) -> bool:
    return id in documents and (allowed is None or id in allowed)


def _once(ids: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for id in ids:
        if id not in seen:
            seen.add(id)
            yield id


def _joined_names(document: Document) -> tuple[str, str]:
    return _joined(document.name), _joined(f"{document.server}:{document.name}")


def _is_joined_name(key: str, document: Document) -> bool:
    return bool(key) and (key == _joined(document.name) or key == _joined(f"{document.server}:{document.name}"))


def _joined(name: str) -> str:
    """The letters and digits of a name, without case."""
    if name.isascii():
        return name[: 2 * _NAME_LIMIT_CHARS].encode().translate(_LOWERED, _SEPARATORS).decode()
    return "".join(_WORD.findall(name[: 2 * _NAME_LIMIT_CHARS].lower()))


def _spoken(document: Document) -> tuple[str, str]:
    """A tool's own name and its canonical one, as nearest names are compared."""
    return _spoken_form(document.name), _spoken_form(f"{document.server} {document.name}")


def _spoken_form(name: str) -> str:
    """A name without letter case, whatever stands between its words: `a:b`, `a__b` and `A.b` are one."""
    return _spaced(name[: 2 * _NAME_LIMIT_CHARS])[:_NAME_LIMIT_CHARS]


def _regrouped(
    ids_of: Mapping[str, frozenset[int]], gone: Iterable[Document], new: Iterable[Document]
) -> dict[str, frozenset[int]]:
    """Ids by server after a change; a server without a tool is not in it."""
    regrouped = dict(ids_of)
    for documents, changed in ((gone, frozenset[int].difference), (new, frozenset[int].union)):
        its_ids = defaultdict[str, set[int]](set)
        for document in documents:
            its_ids[document.server].add(document.id)
        for server, ids in its_ids.items():  # each at once: a server may have thousands
            regrouped[server] = changed(regrouped.get(server, frozenset()), ids)
    return {server: ids for server, ids in regrouped.items() if ids}


def _spaced(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _pairs(name: str) -> bytes:
    return _pair_bits(name).to_bytes(8 * _PAIR_WORDS, "little")


@lru_cache(maxsize=256)
def _pair_bits(name: str) -> int:
    """The letter pairs of a name as a set of 256 bits; many servers have tools of one name."""
    bits = 0
    for a, b in pairwise(map(ord, name)):
        bits |= 1 << (a * 31 + b & 64 * _PAIR_WORDS - 1)
    return bits


def _share(wanted: int, document: Document) -> float:
    """The same for one tool as `_Letters.shares` for all."""
    forms = [_pair_bits(form) for form in _spoken(document)]
    return max((bits & wanted).bit_count() / (1 + bits.bit_count() + wanted.bit_count()) for bits in forms)


def _ratio(matcher: SequenceMatcher[str], form: str) -> float:
    """Similarity of the matcher's second text and a name, in [0, 1]; 0 by a quick look."""
    matcher.set_seq1(form)
    if matcher.real_quick_ratio() < _LEAST_RATIO or matcher.quick_ratio() < _LEAST_RATIO:
        return 0.0
    return matcher.ratio()
