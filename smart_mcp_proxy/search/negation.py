"""Operations that a query forbids in English, as in "list the files, do not delete anything"."""

import re
from functools import cache
from typing import Final, NamedTuple

_REMOVING: Final = re.findall(
    r"\w+",
    """clear delete destroy discard drop erase kill overwrite purge remove reset revoke terminate trash truncate
    uninstall wipe""",
)
_CHANGING: Final = re.findall(
    r"\w+",
    """add alter archive buy cancel change close commit create deploy disable edit execute insert install merge modify
    move pay post publish push rename replace restart run save send start stop submit update upload write""",
)
"""Verbs of tools that have effects. That a tool waits, filters or shows nothing is how to do it, and stays in."""


def _forms(verbs: list[str], endings: str) -> str:
    """A pattern of verbs with one of these endings; a final e or y is dropped for it."""
    return "|".join(
        rf"{verb[:-1]}(?:{endings})" if verb.endswith(("e", "y")) else rf"{verb}{verb[-1]}?(?:{endings})"
        for verb in verbs
    )


_ALL: Final = [*_REMOVING, *_CHANGING]
_BASE: Final = "|".join(_ALL)
_DOING: Final = _forms(_ALL, "y?ing")
_DONE: Final = _forms(_ALL, "i?ed|t?en") + "|sent"
_REMOVAL: Final = _forms(_REMOVING, "ing|ions?|als?|e?s")
_ADVERBS: Final = (
    r"(?:(?:accidentally|actually|also|ever|even|just|permanently|please|first|under\s+any\s+circumstances)\s+)*"
)
_SUBJECT: Final = r"(?<!\bi\s)(?<!\bit\s)(?<!\bwe\s)(?<!\bwho\s)(?<!\bwhy\s)(?<!\bthey\s)(?<!\bthat\s)(?<!\bwhich\s)"
"""Absence of what makes a statement or a question of an imperative: "files that do not change", "why do I not"."""


def _build_list_pattern(forms: str) -> str:
    """A pattern of one or more of these verbs: "delete, move or rename"."""
    return rf"(?:{forms})\b(?:\s*(?:,\s*(?:or|nor|and)?|/|\bor\b|\bnor\b|\band\b)\s*(?:{forms})\b)*"


_MAY_FORBID: Final = re.compile(
    r"\b(?:no|not|nothing|never|without|avoid|instead|rather|dont)\b|n['\u2019]t\b", re.IGNORECASE
)
_IN_FORBIDDING: Final = ("no", "n't", "never", "without", "avoid", "instead", "rather", "dont")
"""The same for texts of ASCII: most have none of these, which is seen faster so."""


class _Patterns(NamedTuple):
    """Patterns of a forbidden operation in a query, and of its kind.

    Attributes:
        forbidding: An operation that is forbidden.
        asking_for_removal: A word by which something is to go.
        destructive: An operation that removes or overwrites something.
    """

    forbidding: re.Pattern[str]
    asking_for_removal: re.Pattern[str]
    destructive: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Compiled for the first query that may forbid something: up to 50 ms that no start pays."""
    forbidding = re.compile(
        rf"""{_SUBJECT}(?:
          (?:\bdo\s+not|\bdon['\u2019]?t|\bnever|\b(?:must|should|may)(?:\s+not|n['\u2019]t)|\bnot\s+to|[,;]\s*(?:and\s+|but\s+)?not)
            \s+{_ADVERBS}{_build_list_pattern(_BASE)}
        | \b(?:must|should|may|can)(?:not|\s+not|n['\u2019]t)\s+be\s+{_ADVERBS}{_build_list_pattern(_DONE)}
        | \bnothing\s+(?:(?:must|should|may|is|gets)\s+)?(?:to\s+)?(?:be\s+)?{_build_list_pattern(_DONE)}
        | \b(?:without|avoid|instead\s+of|rather\s+than)\s+{_ADVERBS}{_build_list_pattern(_DOING)}
        | \bno\s+{_build_list_pattern(_REMOVAL)}
        )(?:\s+(?:anything|everything|something|any|it|them)\b)?""",
        re.IGNORECASE | re.VERBOSE,
    )
    asking_for_removal = re.compile(
        rf"\b(?:{'|'.join(_REMOVING)}|{_REMOVAL}|{_forms(_REMOVING, 'ed|t?en')})\b", re.IGNORECASE
    )
    overwriting = ["alter", "change", "edit", "modify", "replace", "update", "write"]
    destructive = re.compile(rf"\b(?:{_forms([*_REMOVING, *overwriting], r'[a-z]*')})\b", re.IGNORECASE)
    return _Patterns(forbidding, asking_for_removal, destructive)


class ParsedQuery(NamedTuple):
    """The part of a query that says what is wanted.

    Attributes:
        text: The query without the operations that it forbids.
        forbids_destruction: Whether these remove or overwrite something, and nothing else in it asks for that.
    """

    text: str
    forbids_destruction: bool = False


def read_request(query: str) -> ParsedQuery:
    """The query without what it forbids; as it is where nothing else is in it, or nothing is forbidden.

    Of what is forbidden only the operation is taken out: "do not delete the filters, only list them" is about filters.
    """
    if query.isascii():
        folded = query.lower()
        if not any([part in folded for part in _IN_FORBIDDING]):  # noqa: C419  (a generator is dearer)
            return ParsedQuery(query)
    if not _MAY_FORBID.search(query):
        return ParsedQuery(query)
    forbidden: list[str] = []

    def cut(match: re.Match[str]) -> str:
        forbidden.append(match[0])
        return " "

    patterns = _patterns()
    wanted = patterns.forbidding.sub(cut, query)
    if not forbidden or not re.search(r"\w", wanted):
        return ParsedQuery(query)
    is_destructive = any(map(patterns.destructive.search, forbidden))
    return ParsedQuery(wanted, is_destructive and not patterns.asking_for_removal.search(wanted))
