"""Tokenizer for tool definitions and queries, bounded and safe for any input."""

import re
import threading
import unicodedata
from collections.abc import Set
from functools import lru_cache
from itertools import pairwise

import snowballstemmer

QUERY_LIMIT_CHARS = 4_000
"""Characters that are read of a query: about 600 words, several times the longest task an agent was seen to send."""

_RUN_LIMIT_CHARS = 64
"""Longer runs of letters are data (base64, hashes); their head is enough to find them again."""

_CACHE_LIMIT = 50_000
"""Distinct words remembered, about 15 MB; 5,000 real tools use 16,000."""

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about all an and any are as at be been but by can could do does for from had has have how i if in into is
    it its me my need of on or our please should so some that the their them then there these they this those to us
    want was we were what when where which who will with would you your""",
    )
)
"""English function words and the polite frame of a request; nothing here names a thing or an action."""

_ENDING = re.compile(r"(?<=[^\W\d_])(?:['\u2019](?:s|re|ll|ve|d|m)|n['\u2019]t)\b", re.IGNORECASE)
"""Endings that an apostrophe adds to a word; as terms of their own, the s of `what's` would meet S3."""

_LITERAL = re.compile(
    r"""
    "[^"\n]+" | \u201c[^\u201d\n]+\u201d | \u00ab[^\u00bb\n]+\u00bb | `[^`\n]+`   # quoted text
    | (?<!\w)['\u2018][^'\u2019\n]+['\u2019](?!\w)                            # single quotes, but no apostrophe
    | (?:\b[a-z][a-z\d+.-]{0,15}://|\bwww\.)[^\s"'<>]+                           # URL
    | (?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+                            # mail address
    | (?<![\w.~/])(?:~|\.{1,2})?(?:/[\w.@+-]+)+/? | \b[a-z]:\\[^\s"']*       # path
    | (?<![\w.-])[$\u20ac\u00a3]?\d[\d.,:/-]*%?(?![\w-])                     # number, amount, date, time
    | (?<![^\W_])(?:0x[\da-f]{4,}|(?=\w{6})\w*(?:\d\w*){4}|(?=\w{6})\w*\d[a-z]+\d\w*)(?:-\w+)*   # id
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Text that a query hands to a tool and does not ask for."""

_IN_LITERALS = re.compile(r"[\"\u201c\u00ab`'\u2018\d@/\\]")
"""Characters of which every literal but a bare `www.` has one: most queries have none, and are read faster so."""

_WORD = re.compile(r"[\w'\u2019-]+")
_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_OTHER_PART = rf"[{_CJK}]+|\d+|[^\W\d_{_CJK}]+"
_IS_CJK = f"[{_CJK}]"

_STEM_LETTERS = 2
"""Last letters of a stem that may be none of its word's: possibl, hope for hoping."""

_stem = snowballstemmer.stemmer("english").stemWord
_stem_lock = threading.Lock()  # the stemmer works on its own attributes


def terms(text: str, limit_chars: int = QUERY_LIMIT_CHARS) -> list[str]:
    """The search terms of `text` in order, repeats included; empty if it holds no word.

    Words are split at case changes, underscores, hyphens and digits (`readFile2` gives read, file, 2, and readfile2
    as a whole), freed of `'s` and the like, folded, stemmed as English; Chinese, Japanese and Korean runs become
    overlapping pairs of characters.

    Args:
        text: Anything, lone surrogates and control characters included.
        limit_chars: The rest of a longer text is not read.
    """
    # Cut twice: compatibility forms can be 18 times as long as the character they replace.
    folded = unicodedata.normalize("NFKC", text[:limit_chars])[:limit_chars]
    if "'" in folded or "\u2019" in folded:
        folded = _ENDING.sub("", folded)
    found: list[str] = []
    for run in _RUN.findall(folded):
        found += _terms_of_run(run[:_RUN_LIMIT_CHARS])
    return found


def has_terms(text: str, wanted: Set[str]) -> bool:
    """Whether all of these terms are in `text`."""
    if text.isascii():
        lowered = text.lower()
        # A stem is what a word begins with, but for the last two letters: most texts are told apart by that.
        if not all([(term[:-_STEM_LETTERS] if term.isascii() else term) in lowered for term in wanted]):  # noqa: C419  (a generator is dearer)
            return False
    return wanted <= set(terms(text))


def split_literals(text: str) -> tuple[str, str]:
    """The part of a query that says what is needed, and its literals, which only say for what.

    Literals are quoted text, ids, URLs, mail addresses, paths and numbers. Of a longer text the first 4,000 characters
    are read.
    """
    text = text[:QUERY_LIMIT_CHARS]
    if not _IN_LITERALS.search(text) and "www." not in text.lower():
        return text, ""
    literals: list[str] = []

    def cut(match: re.Match[str]) -> str:
        literals.append(match[0])
        return " "

    return _LITERAL.sub(cut, text), " ".join(literals)


def content_words(text: str) -> str:
    """The words of a query that name a thing or an action, as they are written; empty if there are none."""
    words = _WORD.findall(text[:QUERY_LIMIT_CHARS])
    return " ".join(word for word in words if word.lower() not in _STOP_WORDS)


def is_one_slip(a: str, b: str) -> bool:
    """Whether one letter inserted, left out, changed, or swapped with its neighbour turns `a` into `b`."""
    if len(a) > len(b):
        a, b = b, a
    # A slip leaves what is before the middle, or what is behind it, as it was: most words are told apart by that.
    start = max(0, (len(a) + 1) // 2 - 1)
    if a[:start] != b[:start]:
        if a[start + 1 :] != b[len(b) - len(a) + start + 1 :]:
            return False
        start = 0
    for x, y in zip(a[start:], b[start:], strict=False):
        if x != y:
            break
        start += 1
    if len(a) < len(b):
        return len(b) - len(a) == 1 and a[start:] == b[start + 1 :]
    if a[start + 1 :] == b[start + 1 :]:
        return True
    return a[start : start + 2] == b[start : start + 2][::-1] and a[start + 2 :] == b[start + 2 :]


@lru_cache(maxsize=_CACHE_LIMIT)
def _terms_of_run(run: str) -> tuple[str, ...]:
    if not run.isascii():
        return tuple(term for part in re.findall(_OTHER_PART, run) for term in _terms_of_other(part))
    parts = _PART.findall(run)
    if len(parts) > 1:
        parts.append(run)  # GitHub must meet github, S3 must meet s3
    return tuple(_stem_word(word) for part in parts if (word := part.lower()) not in _STOP_WORDS)


def _terms_of_other(part: str) -> list[str]:
    if not re.match(_IS_CJK, part):
        return [_stem_word(part.casefold())]
    return [a + b for a, b in pairwise(part)] or [part]


def _stem_word(word: str) -> str:
    with _stem_lock:
        return str(_stem(word))
