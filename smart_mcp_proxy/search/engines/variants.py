"""Variants of query words in a catalog: synonyms, compounds, slips of the pen."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from copy import copy
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.engines.thesaurus import same_in_meaning
from smart_mcp_proxy.search.text import is_one_slip

_SYNONYM = 0.5
"""What a match by synonym counts: half, so that the tool that says the very word comes first."""

SYNONYM_TERMS = 8
"""Queries of more terms are not met by synonyms: a long request has other words that tell its tool apart, and meets
synonyms by chance. Against half as much with each doubling of the terms, recall@5 of three query sets gained 0.003 to
0.006."""

COMPOUND = 0.8
"""What `file system` counts for `filesystem` and the other way round: nearly the same, but not always."""

_SLIP = 0.5
"""What a word counts that differs in one letter: it may be another word."""

_FEW = 16
"""Terms that are looked up one by one among all with their first letter, which takes a fraction of a look at each."""
_SLIP_LETTERS = 5
"""Shorter words have too many neighbours at one letter's distance."""

_SHAPE_BITS = 32

_PART_LETTERS = 3
"""The shortest part of a compound."""


class Variant(NamedTuple):
    """Known terms that together replace a term, and the weight of a match, in (0, 1)."""

    terms: tuple[str, ...]
    factor: float


class _Letters(NamedTuple):
    """Terms of one first letter, and the shape of each, see `_shape`."""

    terms: list[str]
    shapes: NDArray[np.uint64]


class Vocabulary:
    """The terms of a catalog for fuzzy look-up. Immutable: `replace_terms` returns the next one.

    Args:
        known: Terms by which tools can be found; must not change any more.
    """

    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = known
        self._by_initial = _with_terms({}, known)

    def replace_terms(self, known: Mapping[str, object], touched: Collection[str]) -> "Vocabulary":
        """The vocabulary of `known`, for the cost of what is new or gone in it.

        Args:
            known: Terms as before, likewise.
            touched: Each once: all that may be new or gone.
        """
        following = copy(self)
        following._known = known
        kept = _without_terms(self._by_initial, {term for term in touched if term in self._known and term not in known})
        following._by_initial = _with_terms(kept, (term for term in touched if term not in self._known))
        return following

    def variants(self, term: str, *, has_synonyms: bool = True) -> list[Variant]:
        """Variants of `term`: synonyms if wanted; parts of a compound, else a slip, if it is unknown."""
        others = same_in_meaning(term) if has_synonyms else ()
        found = [Variant((other,), _SYNONYM) for other in others if other in self._known]
        if term not in self._known:
            found += [Variant(parts, COMPOUND) for parts in _parts(term, self._known)]
            found = found or [Variant((other,), _SLIP) for other in self._one_slip_away(term)]
        return found

    def _one_slip_away(self, term: str) -> Iterable[str]:
        """Known terms with the same first letter and one letter more, less, changed, or swapped."""
        if len(term) < _SLIP_LETTERS or not _is_word(term) or (near := self._by_initial.get(term[0])) is None:
            return []
        # One slip changes the set of letters by at most two; by one, where it changes the length by one.
        is_near = np.bitwise_count(near.shapes ^ np.uint64(_shape(term))) <= 2
        return [other for at in is_near.nonzero()[0].tolist() if is_one_slip(term, other := near.terms[at])]


def find_compounds(words: Sequence[str], known: Container[str]) -> dict[str, list[str]]:
    """The words of a query that make a known compound with their neighbour, with these compounds."""
    found: dict[str, list[str]] = {}
    for pair in pairwise(words):
        if (compound := "".join(pair)) not in known and not compound.endswith("e"):
            continue  # as nearly always
        for compound in form_compounds(*pair):
            if compound in known:
                for term in pair:
                    found.setdefault(term, []).append(compound)
    return found


def form_compounds(first: str, second: str) -> tuple[str, ...]:
    """Terms that two neighbours may form as one word, `web` and `page` for example webpage."""
    compound = first + second
    # The stemmer drops a final e from longer words only.
    return (compound, compound[:-1]) if compound.endswith("e") else (compound,)


def _parts(term: str, known: Container[str]) -> Iterable[tuple[str, str]]:
    cuts = range(_PART_LETTERS, len(term) - _PART_LETTERS + 1)
    return [(term[:at], term[at:]) for at in cuts if term[:at] in known and term[at:] in known]


def _is_word(term: str) -> bool:
    return term.isascii() and term.isalpha()


def _by_initials(terms: Iterable[str]) -> dict[str, list[str]]:
    """Group the terms that a slip may lead to by first letter."""
    words: dict[str, list[str]] = {}
    for term in terms:
        if len(term) >= _SLIP_LETTERS - 1 and _is_word(term):
            words.setdefault(term[0], []).append(term)
    return words


def _with_terms(by_initial: Mapping[str, _Letters], new: Iterable[str]) -> dict[str, _Letters]:
    """The table with more terms; 20 ms for 30,000 of them."""
    table = dict(by_initial)
    for initial, terms in _by_initials(new).items():
        more = _Letters(terms, np.fromiter(map(_shape, terms), np.uint64, len(terms)))
        if (old := table.get(initial)) is not None:
            more = _Letters([*old.terms, *terms], np.concatenate((old.shapes, more.shapes)))
        table[initial] = more
    return table


def _without_terms(by_initial: Mapping[str, _Letters], gone: Set[str]) -> dict[str, _Letters]:
    """The table with fewer terms."""
    table = dict(by_initial)
    for initial, leaving in _by_initials(gone).items():
        old = table.pop(initial)
        if len(leaving) <= _FEW:
            places = [old.terms.index(term) for term in leaving]
        else:
            places = [at for at, term in enumerate(old.terms) if term in gone]
        if len(places) < len(old.terms):
            terms = old.terms.copy()
            for at in sorted(places, reverse=True):
                del terms[at]
            table[initial] = _Letters(terms, np.delete(old.shapes, places))
    return table


def _shape(term: str) -> int:
    """A bit for each letter in a term, and as many further ones as it has letters, up to 32."""
    bits = (1 << min(len(term), _SHAPE_BITS)) - 1 << _SHAPE_BITS
    for letter in term:
        bits |= 1 << (ord(letter) & _SHAPE_BITS - 1)
    return bits
