"""Findings of the scanner about one place of a definition."""

import re
from typing import Literal, NamedTuple

import msgspec

Severity = Literal["review", "note"]

DECISIVE = 1.0
"""The weight of all evidence together from which a person should look before the tool is used."""
EXCERPT_CHARS = 120
_AROUND_CHARS = 24
_UNSAFE = r"[^\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u0900-\u1fff\u3001-\ud7ff]|\\"
"""Parts that an excerpt spells out: all outside scripts that are read from left to right and show what they hold."""
_QUOTATION = r"""(?s)(?:^|(?<=[\s(]))(['"]).*\1(?=[\s).,:;]|$)"""
"""From the first quotation mark of a reason to the last: what is quoted may hold such marks itself."""
_PART = r"\$\.(name|title|description|inputSchema|outputSchema|annotations|icons|_meta)(?![\w$-])"
"""Members that the protocol names; every other step of a path may be the server's own words."""


class Finding(msgspec.Struct, frozen=True):
    """A reason to look at a tool's definition.

    Attributes:
        check: Which check found it, for example `hidden_text`.
        severity: review: a person should read the definition before the tool is used; note: worth knowing.
        place: Where, as a JSON path into the definition, for example `$.inputSchema.properties.note.description`.
        reason: What is wrong there, one sentence.
        excerpt: The text there, escaped for a terminal, at most 120 characters.
    """

    check: str
    severity: Severity
    place: str
    reason: str
    excerpt: str

    @property
    def summary(self) -> str:
        """The part of the definition and the reason, free of words of the definition: an agent may read it."""
        part = re.match(_PART, self.place)
        reason = re.sub(_QUOTATION, r"\1…\1", self.reason)
        return f"{part[1]}: {reason}" if part else reason


class Passage(NamedTuple):
    """A string of a definition that an agent can see.

    Attributes:
        place: JSON path.
        text: As the server sent it.
    """

    place: str
    text: str


class Evidence(NamedTuple):
    """Evidence of one check, before all evidence is weighed together.

    Attributes:
        check: The check.
        weight: How much it speaks for an attack; `DECISIVE` alone is enough.
        place: JSON path.
        reason: One sentence.
        excerpt: Escaped and bounded.
    """

    check: str
    weight: float
    place: str
    reason: str
    excerpt: str


def escape_unsafe(text: str) -> str:
    """`text` with everything spelled out that a terminal or an eye could take for something else."""
    return re.sub(_UNSAFE, _escape_char, text)


def excerpt(text: str, start: int, end: int) -> str:
    """The text from `start` to `end` with a few characters around it, escaped and bounded."""
    first = max(0, start - _AROUND_CHARS)
    shown = escape_unsafe(text[first : min(end + _AROUND_CHARS, first + EXCERPT_CHARS)])
    return shown if len(shown) <= EXCERPT_CHARS else shown[: EXCERPT_CHARS - 3] + "..."


def _escape_char(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in "\n\t\\":
        return {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}[match[0]]
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
