"""Text that a person does not see and a model reads: invisible characters, direction marks, terminal commands."""

import re
import unicodedata
from collections.abc import Callable, Iterator

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, escaped, excerpt

__all__ = ["FLAG", "hidden_text"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROL.match(chr(code)))
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff"
    "\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-"
    "\U0010ffff]+"
)
FLAG = (
    "\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|"
    "\U000e0077\U000e006c\U000e0073)\U000e007f)"
)
"""England, Scotland, Wales: the only emoji made of TAG characters. Source: Unicode TR51, annex C.1."""
_FLAGS = re.compile(FLAG)
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PUSHED = re.compile(r"(?:[ \t\u00a0\u3000]{100}|(?:\n[ \t\r]*){20})[ \t\u00a0\u3000\s]*(?=\S)")
"""White space that moves what follows out of every window. No real definition of 4,975 has so much before text."""
_JOINING = [
    "ARABIC",
    "SYRIAC",
    "MANDAIC",
    "MONGOLIAN",
    "DEVANAGARI",
    "BENGALI",
    "GURMUKHI",
    "GUJARATI",
    "ORIYA",
    "TAMIL",
    "TELUGU",
    "KANNADA",
    "MALAYALAM",
    "SINHALA",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "BALINESE",
    "JAVANESE",
]
"""Scripts whose letters are written differently around a joiner. Source: Unicode Standard, sections 9, 12 and 23.2."""
_UNSPACED = ["THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "CJK", "HIRAGANA", "KATAKANA"]
"""Scripts without spaces between words: a zero width space shows where a line may end."""
_TAG_BASE = 0xE0000


def hidden_text(passages: tuple[Passage, ...]) -> Iterator[Evidence]:
    """Evidence of everything in the passages that is there for the model alone."""
    whole = "\n".join(passage.text for passage in passages)
    if whole.isascii() and not _has_control(whole) and not _may_push(whole, len(passages)):
        return
    for passage in passages:
        text = passage.text
        for match in _CONTROL.finditer(text):
            has_escape = "\x1b" in match[0] or "\x9b" in match[0]
            what = "commands to a terminal" if has_escape else "control characters"
            yield _evidence(passage, match, f"The text holds {what}.", "terminal_control")
        if (pushed := _PUSHED.search(text.rstrip())) is not None:
            reason = f"{pushed.end() - pushed.start()} blank characters push the rest of the text out of sight."
            shown = escaped(text[pushed.end() : pushed.end() + 60])
            yield Evidence("pushed_out_of_sight", DECISIVE, passage.place, reason, shown)
        if not text.isascii():
            yield from _invisible(passage)


def _has_control(text: str) -> bool:
    """Whether ASCII text holds control characters; faster than the pattern."""
    return len(text.encode("ascii").translate(None, _ASCII_CONTROLS)) != len(text)


def _may_push(whole: str, lines: int) -> bool:
    """A quick look whether one of so many ASCII texts may hold so many blanks; true for all that do."""
    return whole.count("\n") - lines >= 19 or "\t" in whole or " " * 100 in whole


def _invisible(passage: Passage) -> Iterator[Evidence]:
    text = _FLAGS.sub("\U0001f3f4", passage.text)
    for match in _INVISIBLE.finditer(text):
        if not _is_at_home(text, match):
            yield _evidence(Passage(passage.place, text), match, _reason(match[0]), "hidden_text")


def _reason(run: str) -> str:
    if said := "".join(chr(ord(char) - _TAG_BASE) for char in run if 0x20 <= ord(char) - _TAG_BASE < 0x7F):
        return f'Invisible TAG characters spell "{escaped(said)[:200]}".'
    if len(run) > 1 and (said := _bytes_of(run)):
        return f'Variation selectors carry {len(run)} bytes of hidden text: "{escaped(said)[:200]}".'
    names = sorted({_name(char) for char in run})
    return f"The text holds characters that a reader does not see: {', '.join(names[:4])}."


def _bytes_of(run: str) -> str:
    """The text that a run of variation selectors stands for, one byte each; empty if it is none."""
    codes = [ord(char) for char in run]
    if not all(0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF for code in codes):
        return ""
    return bytes(code - 0xFE00 if code <= 0xFE0F else code - 0xE0100 + 16 for code in codes).decode("utf-8", "replace")


def _name(char: str) -> str:
    code = ord(char)
    if unicodedata.category(char) == "Co":
        return f"private use U+{code:04X}"
    return f"{unicodedata.name(char, 'unnamed').lower()} U+{code:04X}"


def _evidence(passage: Passage, match: re.Match[str], reason: str, check: str) -> Evidence:
    return Evidence(check, DECISIVE, passage.place, reason, excerpt(passage.text, match.start(), match.end()))


def _is_at_home(text: str, match: re.Match[str]) -> bool:
    """Whether a run of invisible characters is what correct writing has at this place."""
    run, before, after = match[0], text[: match.start()][-1:], text[match.end() :][:1]
    if len(run) == 2 and run[0] == "\ufe0f" and run[1] == "\u200d":  # a heart on fire: emoji, selector, joiner, emoji
        return _is_symbol(before) and _is_symbol(after)
    if len(run) > 1:
        return False
    rule = next((rule for chars, rule in _HOMES if run in chars), None)
    return rule is not None and rule(text, before, after)


def _is_symbol(char: str) -> bool:
    return bool(char) and (unicodedata.category(char) in ("So", "Sk", "Sm", "Po", "Nd") or char in "\u3030\u303d")


def _is_of(scripts: list[str], char: str) -> bool:
    return bool(char) and unicodedata.name(char, "").split(" ")[0].split("-")[0] in scripts


def _joins(_: str, before: str, after: str) -> bool:
    is_emoji = _is_symbol(before) and _is_symbol(after) and not before.isascii()
    return is_emoji or _is_of(_JOINING, before)


def _selects_picture(_: str, before: str, __: str) -> bool:
    return _is_symbol(before)


def _selects_ideograph(_: str, before: str, __: str) -> bool:
    return _is_of(["CJK"], before)


def _is_right_to_left(text: str, _: str, __: str) -> bool:
    return _RTL.search(text) is not None


def _breaks_line(_: str, before: str, after: str) -> bool:
    return _is_of(_UNSPACED, before) and _is_of(_UNSPACED, after)


_HOMES: tuple[tuple[frozenset[str], Callable[[str, str, str], bool]], ...] = (
    (frozenset("\u200c\u200d"), _joins),
    (frozenset("\ufe0e\ufe0f"), _selects_picture),
    (frozenset(map(chr, [*range(0xFE00, 0xFE03), *range(0xE0100, 0xE01F0)])), _selects_ideograph),
    (frozenset("\u200e\u200f\u061c\u2066\u2067\u2068\u2069\u202a\u202b\u202c"), _is_right_to_left),
    (frozenset("\u200b"), _breaks_line),
    (frozenset("\u180b\u180c\u180d\u180e\u180f"), lambda _, before, __: _is_of(["MONGOLIAN"], before)),
)
"""Invisible characters that some writing needs, and where. All others are at home nowhere in a definition."""
