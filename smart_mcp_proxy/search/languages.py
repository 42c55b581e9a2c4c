"""The language of queries and definitions, as far as scripts and function words tell it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

_READ_CHARS: Final = 1_000
_SCRIPTS: Final = (
    ("Japanese", r"[\u3040-\u30ff]"),
    ("Korean", r"[\uac00-\ud7af\u1100-\u11ff]"),
    ("Chinese", r"[\u4e00-\u9fff]"),
    ("Russian or another language in Cyrillic", r"[\u0400-\u04ff]"),
    ("Greek", r"[\u0370-\u03ff]"),
    ("Arabic or another language in its script", r"[\u0600-\u06ff]"),
    ("Hebrew", r"[\u0590-\u05ff]"),
    ("Hindi or another language in Devanagari", r"[\u0900-\u097f]"),
    ("Thai", r"[\u0e00-\u0e7f]"),
)
"""Japanese first: it has Chinese characters, too."""

_FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the of to and is are not do with for from that this which by be my an in on it what how can all as",
        "German": "der die das und ist nicht mit f\u00fcr von den dem ein eine einen einer mir ich im zum zur alle auf",
        "French": "le la les des est et une un pour dans avec sur du mes moi aux que qui ce cette tous toutes",
        "Spanish": "el la los las una un y de del en para con por que mis todos todas este esta al como",
        "Italian": "il lo gli le una di e del della nel per con che mi tutti tutte questo dei delle un",
        "Portuguese": "os uma um e da dos das na para com por que meu minha todos todas este em",
        "Dutch": "de het een en van met voor op mijn alle dat die naar zijn aan uit bij ook",
    }.items()
}
"""Frequent words that name nothing. Some are in several languages: what counts is which has the most."""

OTHER_EUROPEAN: Final = _FUNCTION_WORDS.keys() - {"English"}
"""Languages that share their letters with English."""

_LANGUAGES_OF: Final = {
    word: tuple(name for name, words in _FUNCTION_WORDS.items() if word in words)
    for word in frozenset().union(*_FUNCTION_WORDS.values())
}

_WORD: Final = re.compile(r"[^\W\d_]+")
_TELLING_CHARS: Final = 3
"""Shorter words, as "in", are in languages that have no list here."""
_LEAST_WORDS: Final = 2
"""Least function words that tell a language: a single one may be a name, a unit or a slip."""


def detect_language(texts: Iterable[str]) -> str | None:
    """The English name of the language that most of the texts are in; None where nothing tells it.

    Args:
        texts: Of each, the first 1,000 characters are read.
    """
    found = [name for text in texts if (name := _language(text[:_READ_CHARS]))]
    return Counter(found).most_common(1)[0][0] if found else None


def has_word_of(language: str, text: str) -> bool:
    """Whether a text has a word of this language alone; less than it takes to detect the language."""
    words = (word.lower() for word in _WORD.findall(text[:_READ_CHARS]))
    return any(_LANGUAGES_OF.get(word) == (language,) for word in words if len(word) >= _TELLING_CHARS)


def _language(text: str) -> str | None:
    found = _WORD.findall(text)
    if not text.isascii() and (script := _script(text, sum(map(len, found)))):
        return script
    told = [names for word in found if (names := _LANGUAGES_OF.get(word.lower()))]
    if len(told) < _LEAST_WORDS:  # as most queries of a few words
        return None
    counts = Counter(chain.from_iterable(told))
    best = max(counts.values())
    leading = [name for name, count in counts.items() if count == best]
    return leading[0] if best >= _LEAST_WORDS and len(leading) == 1 else None


def _script(text: str, letters: int) -> str | None:
    """The language or languages of a script that a third of the letters are in."""
    for name, script in _SCRIPTS:
        found = len(re.findall(script, text))
        if found and 3 * found >= letters:
            return name
    return None
