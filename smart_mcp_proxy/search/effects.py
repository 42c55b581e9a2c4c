"""Whether a request asks to see something or to change it, and which of both the name of a tool says."""

import re
from functools import lru_cache
from typing import Final

from smart_mcp_proxy.search.negation import CHANGING, REMOVING

_SEEING: Final = frozenset(
    re.findall(
        r"\w+",
        """analyse analyze browse check compare count describe display explain explore fetch find get inspect list look
        lookup query read retrieve search see show view""",
    )
)
_ASKING: Final = frozenset(re.findall(r"\w+", "are did do does how is what when where which who whose why"))
_EFFECTS: Final = frozenset((*REMOVING, *CHANGING, *re.findall(r"\w+", "append draft generate make register set")))
_FRAME: Final = frozenset(
    re.findall(
        r"\w+",
        "a also an can could help i let like me my need now please t tell the then to us want we will would you your",
    )
)
"""Words before the verb of a request: "could you please"."""
_ARTICLES: Final = ("a", "an")
_WORD: Final = re.compile(r"[a-z]+", re.IGNORECASE)
_NAME_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LOOKED_AT: Final = 12
"""Words of a request."""
_NAME_WORDS: Final = 4
"""Before a tool's verb may stand its server and what it is about; the verb may also be the last word."""
_NAMES_LIMIT: Final = 8_192


def asks_for_effect(query: str) -> bool | None:
    """Whether an English request is to change something; None where its beginning does not tell."""
    words = [word.lower() for word in _WORD.findall(query[:400])[:_LOOKED_AT]]
    if words[:2] in (["how", "do"], ["how", "can"], ["how", "to"]):
        words = words[2:]
    place = next((place for place, word in enumerate(words) if word not in _FRAME), None)
    if place is None:
        return None
    if words[place] == "open":  # what is opened with an article is new
        return True if words[place + 1 : place + 2] in ([each] for each in _ARTICLES) else None
    return False if words[place] in _ASKING else _has_effect(words[place])


@lru_cache(maxsize=_NAMES_LIMIT)
def names_effect(name: str) -> bool | None:
    """Whether a tool of this name changes something; None where the name has no verb that tells."""
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    return next((said for word in (*words[:_NAME_WORDS], *words[-1:]) if (said := _has_effect(word)) is not None), None)


def _has_effect(verb: str) -> bool | None:
    return True if verb in _EFFECTS else False if verb in _SEEING else None
