"""Characters that show nothing, in one list, and where writing needs them.

The scanner of definitions, the cleaning of results and the page take them from here.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

INVISIBLE: Final = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff\U0001107f\U000110bd\U000110cd\U00013430-\U00013440\U00016fe4"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
"""For brackets of a pattern: format characters (Cf), default ignorable code points, fillers, private and surrogate
code points, noncharacters of the first plane. Blanks and ends of lines are seen as the room that they take.
Source: https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt;
https://www.unicode.org/Public/UCD/latest/ucd/UnicodeData.txt"""
INVISIBLE_RANGES: Final = [
    (ord(first), ord(last or first)) for first, last in re.findall("(.)(?:-(.))?", INVISIBLE, re.DOTALL)
]
"""The same as numbers, the last one included."""
FLAG: Final = (
    "\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|"
    "\U000e0077\U000e006c\U000e0073)\U000e007f)"
)
"""England, Scotland, Wales: the only emoji made of TAG characters. Source: https://www.unicode.org/reports/tr51/"""
_SUSPECTS: Final = re.compile(f"[{INVISIBLE}\\x80-\\x9f]+")
PICTURE_RANGES: Final = [(0x2190, 0x2BFF), (0x1F000, 0x1FBFF)]
"""Blocks of arrows, symbols and emoji, those of later versions of the standard included."""
JOINING_RANGES: Final = [
    *((0x0600, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x18AF), (0x1B00, 0x1B7F), (0xA8E0, 0xA8FF), (0xA980, 0xA9FF)),
    *((0xAA60, 0xAA7F), (0xFB50, 0xFDCF), (0xFDF0, 0xFDFF), (0xFE70, 0xFEFC), (0x1E900, 0x1E95F)),
]
"""Blocks of scripts whose letters are written differently around a joiner: chapters 9, 12 and 23 of the standard.

Source: https://www.unicode.org/versions/latest/"""
_RTL = re.compile(
    "[\u0590-\u05ff\u0606-\u061b\u061d-\u088f\u0892-\u08e1\u08e3-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc]"
)
"""Letters, without the invisible marks among them."""
_UNSPACED = ["THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "CJK", "HIRAGANA", "KATAKANA"]
"""Scripts without spaces between words: a zero width space shows where a line may end."""


def has_unneeded(text: str) -> bool:
    """Whether a text has an invisible character that no writing needs, or a control beyond ASCII."""
    return any(not is_at_home(text, match) for match in _SUSPECTS.finditer(text))


def is_at_home(text: str, match: re.Match[str]) -> bool:
    """Whether a run of invisible characters is what correct writing has at this place."""
    run, before, after = match[0], text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if len(run) == 2 and run[0] == "\ufe0f" and run[1] == "\u200d":  # a heart on fire: emoji, selector, joiner, emoji
        return _is_symbol(before) and _is_symbol(after)
    if _BRAILLE_BLANK in run and not run.strip(_BRAILLE_BLANK):
        return _has_script(["BRAILLE"], before) or _has_script(["BRAILLE"], after)
    rule = _HOMES.get(run)
    return rule is not None and rule(text, match.start())


def _is_symbol(char: str) -> bool:
    """Whether a picture may be made of it.

    Source: https://www.unicode.org/Public/UCD/latest/ucd/emoji/emoji-variation-sequences.txt
    """
    if unicodedata.category(char or " ") in ("So", "Sk", "Sm") or char in _PICTURES:
        return True
    return _is_in(PICTURE_RANGES, char)


def _is_in(ranges: Sequence[tuple[int, int]], char: str) -> bool:
    return any(first <= ord(char or " ") <= last for first, last in ranges)


def _has_script(scripts: Collection[str], char: str) -> bool:
    return bool(char) and unicodedata.name(char, "").split(" ")[0].split("-")[0] in scripts


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    is_emoji = _is_symbol(before) and _is_symbol(after) and not before.isascii()
    return is_emoji or _is_in(JOINING_RANGES, before)


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
_RULES: tuple[tuple[Iterable[str], Callable[[str, int], bool]], ...] = (
    ("\u200c\u200d", _joins),
    ("\ufe0e\ufe0f", _selects_picture),
    (map(chr, [*range(0xFE00, 0xFE03), *range(0xE0100, 0xE0121)]), _selects_ideograph),
    ("\u200e\u200f\u061c\u2066\u2067\u2068\u2069\u202a\u202b\u202c", _is_right_to_left),
    ("\u200b", _breaks_line),
    ("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2", _counts),
    ("\ufeff", _begins_text),
    (
        "\u070f\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\U0001107f\U000110bd\U000110cd\U00016fe4"
        + "".join(map(chr, [*range(0x13430, 0x13441), *range(0x1BCA0, 0x1BCA4)])),
        _is_among_its_own,
    ),
)
"""Invisible characters that some writing needs, and where. All others are at home nowhere."""
_HOMES = {char: rule for chars, rule in _RULES for char in chars}
