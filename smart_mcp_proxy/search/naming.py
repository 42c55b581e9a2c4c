"""Tools by name: exact names inside a query, and the nearest names to one that does not exist."""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Set
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.name_keys import NameKeys
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS
from smart_mcp_proxy.search.ties import compute_tie_break, name_order

NAME_LIMIT_CHARS = 128
"""Compared of a name: the longest one that the protocol recommends.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools"""

_PAIR_WORDS = 4
"""A name's letter pairs are a set of 256 bits: four 64-bit words; a usual name has 25 pairs."""

_WAITING = 256
"""Up to so many tools that came or left wait for the next look at the table: to bring it up to date copies it."""

WORD = re.compile(r"[^\W_]+")

_CANDIDATES = 16
"""Names compared letter by letter, after a rough choice by shared letter pairs."""

_LEAST_RATIO = 0.5
"""Below this share of common letters a name is another name, not a slip."""

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

_LOWERED = bytes(range(128)).lower() + bytes(128)
_SEPARATORS = bytes(code for code in range(128) if not chr(code).isalnum())
"""The same for ASCII, where it is all that a name is made of, several times as fast."""
_SERVER_WORDS = 4
"""A server's name is looked for in a query as up to this many words in a row."""


class LetterPairs(msgspec.Struct, frozen=True):
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
        # Mostly few, or none, and then without a part of numpy that takes 10 ms of a start to load.
        some = np.fromiter(gone, np.int64, len(gone))
        leaves = np.isin(self.ids, some, kind="sort") if gone else np.zeros(len(self.ids), np.bool_)
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
        ordered: list[int] = self.ids[at[np.lexsort((self.ties[at], -self.shares(name)[at]))]].tolist()
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


class NameTable(msgspec.Struct, frozen=True):
    """All names of the indexed tools. Immutable: `replace_documents` returns the next one.

    Attributes:
        keys: Ids by the letters and digits of bare, canonical and listed name, lower-cased.
        letters: What nearest names are found by.
        counts: Number of tools by server; one without a tool is not in it.
        by_words: Servers by their lower-cased words.
        first_words: The first one of each of these.
        asked: Ids of servers' tools that were asked for; a cache.
    """

    keys: NameKeys
    letters: LetterTable
    counts: Mapping[str, int]
    by_words: Mapping[str, frozenset[str]]
    first_words: Set[str]
    asked: dict[str, frozenset[int]] = msgspec.field(default_factory=dict)

    @classmethod
    def empty(cls) -> "NameTable":
        """The table of no tools."""
        return cls(NameKeys(), LetterTable(LetterPairs.of(())), {}, {}, frozenset())

    def replace_documents(self, gone: Collection[Document], new: Collection[Document]) -> "NameTable":
        """The table without `gone`, with `new`."""
        letters = self.letters.replace_documents({document.id for document in gone}, new)
        named = (
            (key, document.id) for document in new for key in {_join_name_words(name) for name in _names(document)}
        )
        return self._regroup_servers(self.keys.add_keys(named, lambda: letters.pairs().ids), letters, gone, new)

    def _regroup_servers(
        self, keys: NameKeys, letters: LetterTable, gone: Iterable[Document], new: Iterable[Document]
    ) -> "NameTable":
        counts = Counter(self.counts)
        counts.update(document.server for document in new)
        counts.subtract(document.server for document in gone)
        counts = +counts  # without those that have none left
        by_words = dict(self.by_words)
        for server in self.counts.keys() ^ counts.keys():
            words = space_words(server)
            if servers := by_words.pop(words, frozenset()) ^ {server}:
                by_words[words] = servers
        asked = self.asked.copy()  # in one step: a search may be adding to it
        for document in (*gone, *new):
            asked.pop(document.server, None)
        return NameTable(keys, letters, counts, by_words, {words.partition(" ")[0] for words in by_words}, asked)

    def dump_arrays(self) -> Arrays:
        """The table as arrays, for a file."""
        letters = self.letters.pairs()
        return {**letters.dump_arrays(), **self.keys.dump_arrays(letters.ids)}

    @classmethod
    def load_arrays(cls, arrays: Arrays, documents: Mapping[int, Document]) -> "NameTable":
        """The table that `dump_arrays` wrote, as far as it is about `documents`."""
        letters = LetterTable(LetterPairs.load_arrays(arrays, documents))
        return cls.empty()._regroup_servers(NameKeys.load_arrays(arrays), letters, (), documents.values())

    def find_server_ids(self, servers: Collection[str], documents: Mapping[int, Document]) -> frozenset[int]:
        """The ids of these servers' tools; those of each are looked for once until its tools change.

        Args:
            servers: Their names; one that has no tools has no ids.
            documents: All that the table is of.
        """
        known, asked = self.counts.keys() & servers, self.asked
        if unasked := known - asked.keys():
            found: dict[str, list[int]] = {server: [] for server in unasked}
            for id, document in documents.items():
                if document.server in found:
                    found[document.server].append(id)
            asked.update({server: frozenset(ids) for server, ids in found.items()})
        return frozenset().union(*[asked[server] for server in known])

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
        for name in dict.fromkeys(written) if whole else ():
            if not (ids := self._ids(_join_name_words(name), documents, allowed)):
                continue  # as nearly always
            as_written = [id for id in ids if name == documents[id].name or name in _names(documents[id])]
            lowered = name.lower()
            folded = as_written or [id for id in ids if lowered in map(str.lower, _names(documents[id]))]
            for id in _one_of_each_server(folded, documents):
                found.setdefault(id, name)
        return found

    def spelt_otherwise(self, query: str, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Ids of the tools that the whole query names, whatever case and separators, with or without server.

        One of each server, as in `exact`: many spellings of one name are no way to fill an answer.
        """
        wanted = _join_name_words(query)
        ids = [id for id in self._ids(wanted, documents, allowed) if _is_joined_name(wanted, documents[id])]
        return _one_of_each_server(ids, documents)

    def nearly_named(self, query: str, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Ids of tools whose name begins with the query, shortest first; else those one slip away from it.

        Tools of one name stand by whose they are, however many there are. Only for a query of a single word.
        """
        if len(query.split()) != 1 or len(wanted := _join_name_words(query)) < _SHORTEST_PART:
            return []
        if found := self._find_tools_by_prefix(wanted, documents, allowed):
            return found
        if len(wanted) < _SLIP_LETTERS:
            return []
        near = {
            id
            for name, id in self.keys.one_slip_from(wanted)
            if _is_among(id, documents, allowed) and _is_joined_name(name, documents[id])
        }
        spoken = normalize_name(query)
        if len(near) > _CANDIDATES:
            return self.letters.pairs().most_alike(spoken, near)[:_CANDIDATES]
        bits = pair_bits(spoken)  # as nearly always: looking for each in the table takes longer
        return sorted(near, key=lambda id: (-compute_pair_share(bits, documents[id]), compute_tie_break(documents[id])))

    def _find_tools_by_prefix(
        self, wanted: str, documents: Mapping[int, Document], allowed: Set[int] | None
    ) -> list[int]:
        """The first of the tools whose name begins so, each once."""
        found: dict[int, None] = {}
        for name, pairs in groupby(self.keys.find_by_prefix(wanted), key=itemgetter(0)):
            ids = [id for _, id in pairs if _is_among(id, documents, allowed) and _is_joined_name(name, documents[id])]
            ids.sort(key=lambda id: name_order(documents[id]))
            found.update(dict.fromkeys(ids))  # a known id keeps its place
            if len(found) >= _PREFIXED:
                break
        return list(found)[:_PREFIXED]

    def _ids(self, key: str, documents: Mapping[int, Document], allowed: Container[int] | None) -> list[int]:
        return [id for id in self.keys.find_ids(key) if _is_among(id, documents, allowed)]

    def find_named_servers(self, query: str) -> set[str]:
        """The servers that the query names, whatever the case and the separators between the words."""
        words = WORD.findall(query[:QUERY_LIMIT_CHARS].lower())
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
        wanted = normalize_name(name)
        matcher = SequenceMatcher(None, "", wanted, autojunk=False)
        found = [documents[id] for id in self._candidates(wanted, allowed) if id in documents]
        ratios = {each.id: max(_ratio(matcher, form) for form in normalize_names(each)) for each in found}
        found.sort(key=lambda each: (-ratios[each.id], *name_order(each)))
        return [each.id for each in found if ratios[each.id] >= _LEAST_RATIO][:n]

    def _candidates(self, wanted: str, allowed: Set[int] | None) -> list[int]:
        """The allowed ids with most letter pairs in common."""
        letters = self.letters.pairs()
        shares, count = letters.shares(wanted), len(letters.ids)
        reach = _CANDIDATES
        while True:
            least = np.partition(shares, count - reach)[count - reach] if reach < count else 0
            near = np.flatnonzero(shares >= max(least, np.finfo(np.float32).tiny))
            order = near[np.lexsort((letters.ties[near], -shares[near]))]
            found = [id for id in letters.ids[order].tolist() if allowed is None or id in allowed]
            if len(found) >= _CANDIDATES or reach >= count:
                return found[:_CANDIDATES]
            reach *= 8


def _names(document: Document) -> list[str]:
    """The forms in which an agent may write a tool's exact name."""
    names = (document.name, document.listed_name, f"{document.server}:{document.name}")
    return [name for name in names if name]


def _one_of_each_server(ids: Iterable[int], documents: Mapping[int, Document]) -> list[int]:
    """The tool of each server whose name is the first in order; and the first of each other kind."""
    first_of: dict[tuple[str, str], Document] = {}
    for id in ids:
        document = documents[id]
        first = first_of.setdefault((document.server, document.kind), document)
        if document.name < first.name:
            first_of[document.server, document.kind] = document
    return [document.id for document in first_of.values()]


def _is_among(id: int, documents: Mapping[int, Document], allowed: Container[int] | None) -> bool:
    return id in documents and (allowed is None or id in allowed)


def _is_joined_name(key: str, document: Document) -> bool:
    return bool(key) and (
        key == _join_name_words(document.name) or key == _join_name_words(f"{document.server}:{document.name}")
    )


def _join_name_words(name: str) -> str:
    """The letters and digits of a name, without case."""
    if name.isascii():
        return name[: 2 * NAME_LIMIT_CHARS].encode().translate(_LOWERED, _SEPARATORS).decode()
    return "".join(WORD.findall(name[: 2 * NAME_LIMIT_CHARS].lower()))


def _ratio(matcher: SequenceMatcher[str], form: str) -> float:
    """Similarity of the matcher's second text and a name, in [0, 1]; 0 by a quick look."""
    matcher.set_seq1(form)
    if matcher.real_quick_ratio() < _LEAST_RATIO or matcher.quick_ratio() < _LEAST_RATIO:
        return 0.0
    return matcher.ratio()
