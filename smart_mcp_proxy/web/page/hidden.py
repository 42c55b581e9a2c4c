"""Text of servers as a person may safely see it: hidden characters named, nothing taken as markup."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from smart_mcp_proxy.invisible.characters import INVISIBLE

TEXT_CHARS: Final = 4_000
"""Characters shown of a text in a page; the rest is counted."""
_SHOWN_RUN: Final = 4
"""Hidden characters in a row that are named one by one."""
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\n]+")
_HIDING: Final = frozenset({"Cc", "Cn", "Zl", "Zp", "Zs"})
"""Categories of characters that look like none or like others, beside the invisible ones."""
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_TAGS: Final = (0xE0020, 0xE007E)
"""Invisible copies of the printable ASCII characters. Source: https://www.unicode.org/charts/PDF/UE0000.pdf"""
_SPELLED: Final = re.compile(r"\\(\\|n|t|u[0-9a-f]{4}|U[0-9a-f]{8})")


def visible(text: object, limit: int = TEXT_CHARS) -> Markup:
    """A text as HTML, cut after `limit` characters, with every hidden character named."""
    whole = str(text)
    shown = whole[:limit]
    parts: list[Markup | str] = []
    end = 0
    for match in _SUSPECT.finditer(shown):
        parts += [escape(shown[end : match.start()]), _mark_hidden_chars(match[0])]
        end = match.end()
    parts.append(escape(shown[end:]))
    if len(whole) > limit:
        parts.append(Markup(' <span class="cut">and {:,} more characters</span>').format(len(whole) - limit))
    return Markup("").join(parts)


def has_hidden(text: str) -> bool:
    """Whether a text has characters that are not seen as they are."""
    return any(_is_hidden(char) for match in _SUSPECT.finditer(text) for char in match[0])


def render_rest_text(text: str, limit: int = TEXT_CHARS) -> Markup:
    """Render text whose special characters REST has escaped.

    Line ends are line ends again.
    """
    shown = text[:limit]
    plain = _SPELLED.sub(_decode_escape, shown)
    more = Markup(' <span class="cut">and {:,} more characters</span>').format(len(text) - limit)
    return visible(plain, len(plain)) + (more if len(text) > limit else "")


def _decode_escape(match: re.Match[str]) -> str:
    word = match[1]
    return {"\\": "\\", "n": "\n", "t": "\t"}.get(word) or chr(min(int(word[1:], 16), 0x10FFFF))


def _mark_hidden_chars(run: str) -> Markup:
    """A run of characters beyond plain ASCII, those that are hidden named."""
    parts: list[Markup | str] = []
    hidden = ""
    for char in [*run, ""]:
        if char and _is_hidden(char):
            hidden += char
            continue
        if hidden:
            parts.append(_render_hidden_run(hidden))
            hidden = ""
        parts.append(escape(char))
    return Markup("").join(parts)


def _render_hidden_run(run: str) -> Markup:
    if len(run) <= _SHOWN_RUN:
        return Markup("").join(
            Markup('<span class="hid" title="{}">{}</span>').format(_name_char(char), _spell(char)) for char in run
        )
    said = "".join(chr(ord(char) - 0xE0000) for char in run if _TAGS[0] <= ord(char) <= _TAGS[1])
    words = f"{len(run):,} hidden characters" + (f" that say: {said[:200]}" if said else "")
    return Markup('<span class="hid" title="{} to {}">{}</span>').format(_spell(run[0]), _spell(run[-1]), words)


@lru_cache(4_096)
def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDING or _INVISIBLE.match(char) is not None


def _spell(char: str) -> str:
    return f"U+{ord(char):04X}"


def _name_char(char: str) -> str:
    return unicodedata.name(char, "character without a name").lower()
