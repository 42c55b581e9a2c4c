"""Sentences of a description that send its reader elsewhere: "Do not use this to delete (use `rm`)"."""

import re
from typing import Final

_MAY_SEND: Final = ("not ", "n't", "n\u2019t", "never", "instead", "(use", "(prefer")
"""Most descriptions have none of these, which is seen faster."""
_KIND: Final = r"(?:\s+(?:tool|command|function|endpoint|operation))?"
_NOT_FOR: Final = rf"""
    \b(?:(?:do\s+)?not|don['\u2019]?t|never)\s+use\s+(?:(?:this|it)\b{_KIND}|(?=(?:for|to|when|if)\b))
    | \bnot\s+(?:(?:meant|intended|suitable|designed|appropriate|useful)\s+)?for\b"""
_SENTENCE: Final = r"(?:[^.;!\n(]|\.(?=\w)|\([^()\n]*\))*"
"""The rest of one, with what stands in brackets."""
_SENT: Final = rf"""(?ix)
      \b(?:when\s+)?not\s+(?:to\s+use|for)\b[^\n:]{{0,30}}:[ \t]*(?:\n[ \t]*(?:[-*\u2022]|\d+[.)])[^\n]*)+   # a list
    | (?:{_NOT_FOR}){_SENTENCE}
    | \((?:use|prefer)\s[^()]{{1,120}}\)
    | (?<![^.;!\n])[^\S\n]*for\s[^.;!\n]{{1,160}}?\buse\s+(?!this\b|it\b)[^.;!\n]{{1,80}}?\binstead\b
    | \buse\s+(?!this\b|it\b)[`'"]?[\w./:-]+[`'"]?{_KIND}\s+instead\b(?!\s+of\b)
    """


def read_purpose(description: str) -> str:
    """The description without what it says the tool is not for, and which tool is.

    These words are those of other tools: searches for them should not find this one.
    """
    folded = description.lower()
    if not any([words in folded for words in _MAY_SEND]):  # noqa: C419  (a generator is dearer)
        return description
    return re.sub(_SENT, " ", description)
