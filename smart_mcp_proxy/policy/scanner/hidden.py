"""Hidden text that models read: invisible characters, direction marks, terminal commands."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, escape_unsafe, excerpt

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROL.match(chr(code)))
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc"
    "\ufffe\uffff\U0001107f\U000110bd\U000110cd\U00013430-\U00013440\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0xF0000, 0x10000))
    + "]+|[\u1680\u2000-\u200a\u202f\u205f]{3,}"
)
"""What shows nothing or nothing of its own: format characters (Cf), line and paragraph separators, default ignorable
code points, fillers, private and surrogate code points, noncharacters, and rows of blanks that only printing needs.
Source: https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt;
https://www.unicode.org/Public/UCD/latest/ucd/UnicodeData.txt"""
FLAG = (
    "\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|"
    "\U000e0077\U000e006c\U000e0073)\U000e007f)"
)
"""England, Scotland, Wales: the only emoji made of TAG characters. Source: https://www.unicode.org/reports/tr51/"""
_FLAGS = re.compile(FLAG)
_RTL = re.compile(
    "[\u0590-\u05ff\u0606-\u061b\u061d-\u088f\u0892-\u08e1\u08e3-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc]"
)
"""Letters, without the invisible marks among them."""
_PUSHED = re.compile(r"(?:[ \t\u00a0\u3000]{100}|(?:\n[ \t\r]*){20})[ \t\u00a0\u3000\s]*(?=\S)")
"""White space that moves what follows out of every window. No real definition of 4,975 has so much before text."""
_JOINING = re.findall(
    r"\w+",
    """ARABIC SYRIAC NKO ADLAM MANDAIC MONGOLIAN DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA
        MALAYALAM SINHALA KHMER MYANMAR TIBETAN BALINESE JAVANESE""",
)
"""Scripts whose letters are written differently around a joiner: chapters 9, 12 and 23 of the standard.

Source: https://www.unicode.org/versions/latest/"""
_UNSPACED = ["THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "CJK", "HIRAGANA", "KATAKANA"]
"""Scripts without spaces between words: a zero width space shows where a line may end."""
_TAG_BASE = 0xE0000
_MOST_SHOWN = 20
"""Of one string: more are neither read nor told apart."""


def find_hidden_text(passages: tuple[Passage, ...]) -> Iterator[Evidence]:
    """Evidence of everything in the passages that is there for the model alone."""
    if _is_plain("\n".join([passage.text for passage in passages])):
        return
    for passage in passages:
        text = passage.text
        if _is_plain(text):
            continue
        for match in _CONTROL.finditer(text):
            has_escape = "\x1b" in match[0] or "\x9b" in match[0]
            what = "commands to a terminal" if has_escape else "control characters"
            yield _evidence(passage, match, f"The text holds {what}.", "terminal_control")
        if (pushed := _PUSHED.search(text.rstrip())) is not None:
            reason = f"{pushed.end() - pushed.start()} blank characters push the rest of the text out of sight."
            shown = escape_unsafe(text[pushed.end() : pushed.end() + 60])
            yield Evidence("pushed_out_of_sight", DECISIVE, passage.place, reason, shown)
        if not text.isascii():
            yield from _invisible(passage)


def _is_plain(text: str) -> bool:
    """A quick look whether a text hides nothing; false for all that do."""
    if not text.isascii():
        return False
    data = text.encode("ascii")
    has_control = len(data.translate(None, _ASCII_CONTROLS)) != len(data)
    return not (has_control or b" " * 100 in data.replace(b"\t", b" ") or b"\n" * 20 in data.translate(None, b" \t\r"))


def _invisible(passage: Passage) -> Iterator[Evidence]:
    text = _FLAGS.sub("\U0001f3f4", passage.text)
    odd = (match for match in _INVISIBLE.finditer(text) if not _is_at_home(text, match))
    for match in islice(odd, _MOST_SHOWN):
        yield _evidence(Passage(passage.place, text), match, _reason(match[0]), "hidden_text")


def _reason(run: str) -> str:
    if said := "".join(chr(ord(char) - _TAG_BASE) for char in run if 0x20 <= ord(char) - _TAG_BASE < 0x7F):
        return f'Invisible TAG characters spell "{escape_unsafe(said)[:200]}".'
    if len(run) > 1 and (said := _decode_selectors(run)):
        return f'Variation selectors carry {len(run)} bytes of hidden text: "{escape_unsafe(said)[:200]}".'
    names = sorted({_name(char) for char in run})
    return f"The text holds characters that a reader does not see: {', '.join(names[:4])}."


def _decode_selectors(run: str) -> str:
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
    run, before, after = match[0], text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if len(run) == 2 and run[0] == "\ufe0f" and run[1] == "\u200d":  # a heart on fire: emoji, selector, joiner, emoji
        return _is_symbol(before) and _is_symbol(after)
    if set(run) == {_BRAILLE_BLANK}:
        return _has_script(["BRAILLE"], before) or _has_script(["BRAILLE"], after)
    if len(run) > 1:
        return False
    rule = next((rule for chars, rule in _HOMES if run in chars), None)
    return rule is not None and rule(text, match.start())


def _is_symbol(char: str) -> bool:
    """Whether a picture may be made of it.

    Source: https://www.unicode.org/Public/UCD/latest/ucd/emoji/emoji-variation-sequences.txt
    """
    return bool(char) and (unicodedata.category(char) in ("So", "Sk", "Sm") or char in _PICTURES)


def _has_script(scripts: Collection[str], char: str) -> bool:
    return bool(char) and unicodedata.name(char, "").split(" ")[0].split("-")[0] in scripts


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    is_emoji = _is_symbol(before) and _is_symbol(after) and not before.isascii()
    return is_emoji or _has_script(_JOINING, before)


def _selects_picture(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    return text[at + 1 : at + 2] == _KEYCAP if before.isascii() else _is_symbol(before)


def _selects_ideograph(text: str, at: int) -> bool:
    return _has_script(["CJK"], text[at - 1 : at])


def _is_right_to_left(text: str, at: int) -> bool:
    return _RTL.search(text, max(0, at - _MARK_CHARS), at + _MARK_CHARS) is not None


def _breaks_line(text: str, at: int) -> bool:
    return _has_script(_UNSPACED, text[at - 1 : at]) and _has_script(_UNSPACED, text[at + 1 : at + 2])


def _is_among_its_own(text: str, at: int) -> bool:
    """Whether a letter of the script for which it is made stands beside it."""
    script = _SCRIPTS.get(text[at], unicodedata.name(text[at], "").split(" ")[0])
    return any(_has_script([script], beside) for beside in (text[at - 1 : at], text[at + 1 : at + 2]))


def _counts(text: str, at: int) -> bool:
    """Return whether a sign over a number or verse has digits or letters of its script."""
    return text[at + 1 : at + 2].isdigit() and any(_has_script(_ARABIC, char) for char in text[max(0, at - 9) : at])


def _begins_text(text: str, at: int) -> bool:
    """Whether a byte order mark stands where it does in files; a name has none."""
    return at == 0 and " " in text


_BRAILLE_BLANK = "\u2800"
_KEYCAP = "\u20e3"
_PICTURES = frozenset("\u203c\u2049\u2139\u3030\u303d")
_MARK_CHARS = 40
"""As far from a letter written from right to left as a mark of direction has a use."""
_ARABIC = ("ARABIC",)
_SCRIPTS = {chr(code): "DUPLOYAN" for code in range(0x1BCA0, 0x1BCA4)}
"""Whose script is not the first word of their name."""
_HOMES: tuple[tuple[frozenset[str], Callable[[str, int], bool]], ...] = (
    (frozenset("\u200c\u200d"), _joins),
    (frozenset("\ufe0e\ufe0f"), _selects_picture),
    (frozenset(map(chr, [*range(0xFE00, 0xFE03), *range(0xE0100, 0xE0121)])), _selects_ideograph),
    (frozenset("\u200e\u200f\u061c\u2066\u2067\u2068\u2069\u202a\u202b\u202c"), _is_right_to_left),
    (frozenset("\u200b"), _breaks_line),
    (frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2"), _counts),
    (frozenset("\ufeff"), _begins_text),
    (
        frozenset("\u070f\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\U0001107f\U000110bd\U000110cd\U00016fe4")
        | frozenset(map(chr, [*range(0x13430, 0x13441), *range(0x1BCA0, 0x1BCA4)])),
        _is_among_its_own,
    ),
)
"""Invisible characters that some writing needs, and where. All others are at home nowhere in a definition."""
