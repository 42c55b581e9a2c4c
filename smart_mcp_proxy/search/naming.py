"""Tools by name: exact names inside a query, and the nearest names to one that does not exist."""

import re
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from smart_mcp_proxy.models import Document, ToolKey
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS

__all__ = ["NameTable"]

_NAME_LIMIT_CHARS = 256
"""What is compared of a name; the longest that a client lists has 128."""

_CANDIDATES = 32
"""Names compared letter by letter, after a rough choice by shared letter pairs."""

_LEAST_RATIO = 0.5
"""Below this share of common letters a name is another name, not a slip."""

_QUERY_PIECE = re.compile(r"""[^\s,;'"`()\[\]{}<>]+""")
_TRAILING = ".:!?"
_LOOKS_LIKE_NAME = re.compile(r"[a-z0-9][A-Z]|\w[_:./-]\w|_")
_WORD = re.compile(r"[^\W_]+")
_SERVER_WORDS = 4
"""A server's name is looked for in a query as up to this many words in a row."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """All names of the indexed tools. Immutable: `changed` returns the next one.

    Attributes:
        ids_of: Ids by canonical, listed and bare name, as written.
        folded: The same by lower-cased name.
        letters: By id, the letter pairs of the lower-cased canonical name as a set of bits.
        servers: Server names by their lower-cased words.
    """

    ids_of: Mapping[str, tuple[int, ...]]
    folded: Mapping[str, tuple[int, ...]]
    letters: Mapping[int, int]
    servers: Mapping[str, frozenset[str]]

    @classmethod
    def empty(cls) -> "NameTable":
        """The table of no tools."""
        return cls({}, {}, {}, {})

    def changed(self, gone: Iterable[Document], new: Iterable[Document], servers: Iterable[str]) -> "NameTable":
        """The table without `gone`, with `new`; `servers` are all that have a tool then."""
        ids_of, folded, letters = dict(self.ids_of), dict(self.folded), dict(self.letters)
        for document in gone:
            letters.pop(document.id, None)
            for name in _names(document):
                _forget(ids_of, name, document.id)
                _forget(folded, name.lower(), document.id)
        for document in new:
            letters[document.id] = _pairs(str(ToolKey(document.server, document.name)))
            for name in _names(document):
                _remember(ids_of, name, document.id)
                _remember(folded, name.lower(), document.id)
        by_words: dict[str, frozenset[str]] = {}
        for server in servers:
            words = _spaced(server)
            by_words[words] = by_words.get(words, frozenset()) | {server}
        return NameTable(ids_of, folded, letters, by_words)

    def exact(self, query: str, allowed: Container[int] | None) -> dict[int, str]:
        """Ids whose name the query is or contains, with the name as the query wrote it.

        The whole query may be any name. A part of it must look like one (`read_file`, `readFile`, `github:search`):
        a tool called `search` is not meant whenever the word is used. Other letter case counts only where no name
        is written that way.
        """
        whole = query[:QUERY_LIMIT_CHARS].strip()
        pieces = (piece.rstrip(_TRAILING) for piece in _QUERY_PIECE.findall(whole))
        found: dict[int, str] = {}
        for name in (whole, *(piece for piece in pieces if _LOOKS_LIKE_NAME.search(piece))):
            for table, key in ((self.ids_of, name), (self.folded, name.lower())):
                ids = [id for id in table.get(key, ()) if allowed is None or id in allowed]
                found |= {id: name for id in ids if id not in found}
                if ids:
                    break
        return found

    def servers_in(self, query: str) -> set[str]:
        """The servers that the query names, whatever the case and the separators between the words."""
        words = _spaced(query[:QUERY_LIMIT_CHARS]).split()
        named: set[str] = set()
        for length in range(1, _SERVER_WORDS + 1):
            for start in range(len(words) - length + 1):
                named |= self.servers.get(" ".join(words[start : start + length]), frozenset())
        return named

    def nearest(self, name: str, n: int, documents: Mapping[int, Document], allowed: Set[int] | None) -> list[int]:
        """Up to `n` ids whose canonical, listed or bare name is closest to `name`, best first."""
        wanted = name[:_NAME_LIMIT_CHARS].lower()
        letters = _pairs(wanted)
        shared = (
            ((letters & bits).bit_count() / (1 + letters.bit_count() + bits.bit_count()), id)
            for id, bits in self.letters.items()
            if allowed is None or id in allowed
        )
        near = sorted(shared, key=lambda pair: (-pair[0], pair[1]))[:_CANDIDATES]
        ratios = [(max(_ratio(wanted, form) for form in _names(documents[id])), id) for _, id in near]
        return [id for ratio, id in sorted(ratios, key=lambda pair: (-pair[0], pair[1])) if ratio >= _LEAST_RATIO][:n]


def _names(document: Document) -> set[str]:
    """The forms in which an agent may write a tool's exact name."""
    return {str(ToolKey(document.server, document.name)), document.name, document.listed_name} - {""}


def _remember(table: dict[str, tuple[int, ...]], name: str, id: int) -> None:
    if id not in (ids := table.get(name, ())):
        table[name] = (*ids, id)


def _forget(table: dict[str, tuple[int, ...]], name: str, id: int) -> None:
    if left := tuple(other for other in table.get(name, ()) if other != id):
        table[name] = left
    else:
        table.pop(name, None)


def _spaced(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _pairs(name: str) -> int:
    """The letter pairs of a name as a set of 256 bits."""
    bits = 0
    for a, b in pairwise(name[:_NAME_LIMIT_CHARS].lower()):
        bits |= 1 << ((ord(a) * 31 + ord(b)) & 255)
    return bits


def _ratio(a: str, b: str) -> float:
    """How alike two names are, in [0, 1]."""
    return SequenceMatcher(None, a, b[:_NAME_LIMIT_CHARS].lower(), autojunk=False).ratio()
