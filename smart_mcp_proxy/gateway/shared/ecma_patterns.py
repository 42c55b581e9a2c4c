"""Syntax of ECMAScript's regular expressions with the flag u, as TypeScript clients compile patterns."""

import re
from typing import Final

_CATEGORIES = (
    "L Lu Ll Lt LC Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn "
    "Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Cased_Letter Modifier_Letter Other_Letter Mark "
    "Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number digit Letter_Number Other_Number Punctuation "
    "punct Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation Initial_Punctuation "
    "Final_Punctuation Other_Punctuation Symbol Math_Symbol Currency_Symbol Modifier_Symbol Other_Symbol Separator "
    "Space_Separator Line_Separator Paragraph_Separator Other Control cntrl Format Surrogate Private_Use Unassigned"
)
_BINARY = (
    "ASCII ASCII_Hex_Digit AHex Alphabetic Alpha Any Assigned Cased Dash Emoji Emoji_Presentation EPres "
    "Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Component EComp Extended_Pictographic ExtPict Hex_Digit Hex "
    "ID_Continue IDC ID_Start IDS Ideographic Ideo Lowercase Lower Math Uppercase Upper White_Space space "
    "XID_Continue XIDC XID_Start XIDS Variation_Selector VS Regional_Indicator RI Diacritic Dia Unified_Ideograph"
)
_PROPERTIES: Final = frozenset(f"{_CATEGORIES} {_BINARY}".split())
"""Source: https://tc39.es/ecma262/#table-binary-unicode-properties;
https://tc39.es/ecma262/#table-unicode-general-category-values"""
_PROPERTY = re.compile(r"[pP]\{(?:(?P<key>gc|General_Category|sc|Script|scx|Script_Extensions)=)?(?P<value>\w+)\}")
_SET_ESCAPE = re.compile(r"[dDwWsS]")
_CHAR_ESCAPE = re.compile(
    r"[fnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]|0(?![0-9])|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{0*(?:10|[0-9A-Fa-f]?)[0-9A-Fa-f]{1,4}\}"
)
_BACKREFERENCE = re.compile(r"[1-9][0-9]*")
_NAMED_REFERENCE = re.compile(r"k<([^>]+)>")
_GROUP = re.compile(r"\((?:\?(?:(?P<look>[=!]|<[=!])|:|<(?P<name>[A-Za-z_$][\w$]*)>))?")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(?P<least>[0-9]{1,9})(?:,(?P<most>[0-9]{0,9}))?\})\??")


class _SyntaxError(Exception):
    """The pattern is none of ECMAScript's."""


def is_ecma_pattern(pattern: str) -> bool:
    """Whether `new RegExp(pattern, "u")` takes it; patterns of ES2018, which all clients have.

    Counts of more than nine digits are refused, too: Python has a limit for reading numbers.
    """
    reader = _Reader(pattern)
    try:
        reader.read()
    except _SyntaxError:
        return False
    return True


class _Reader:
    """Reads a pattern once from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[bool] = []
        """Of each group that is open, whether it looks around."""
        self._groups = 0
        self._names: list[str] = []
        self._references = 0
        self._named_references: list[str] = []

    def read(self) -> None:
        """Read it all.

        Raises:
            _SyntaxError: It is no pattern.
        """
        can_repeat = False
        while self._at < len(self._text):
            if quantifier := self._took(_QUANTIFIER):
                least, most = quantifier["least"], quantifier["most"]
                self._need(can_repeat and not (least and most and int(most) < int(least)))
                can_repeat = False
            else:
                can_repeat = self._atom()
        named = set(self._names)
        self._need(not self._open and len(named) == len(self._names))
        self._need(self._references <= self._groups and named.issuperset(self._named_references))

    def _atom(self) -> bool:
        """Read one element; whether it can be repeated."""
        char = self._text[self._at]
        if char == "(":
            return self._open_group()
        self._at += 1
        if char == ")":
            self._need(bool(self._open))
            return not self._open.pop()
        if char == "[":
            self._class()
        elif char == "\\":
            return self._escape()
        self._need(char not in "]{}*+?")
        return char not in "^$|"

    def _open_group(self) -> bool:
        group = self._took(_GROUP)
        assert group is not None
        self._need(not self._text.startswith("?", self._at))
        self._open.append(group["look"] is not None)
        if group["name"]:
            self._names.append(group["name"])
        self._groups += group[0] == "(" or group["name"] is not None
        return False

    def _escape(self) -> bool:
        """Read what stands behind a backslash outside of a class; whether it can be repeated."""
        if self._text[self._at : self._at + 1] in ("b", "B"):
            self._at += 1
            return False
        if reference := self._took(_BACKREFERENCE):
            self._references = max(self._references, int(reference[0][:6]))
        elif named := self._took(_NAMED_REFERENCE):
            self._named_references.append(named[1])
        else:
            self._need(self._took(_CHAR_ESCAPE) is not None or self._set())
        return True

    def _set(self) -> bool:
        """Take an escape that stands for many characters."""
        if self._took(_SET_ESCAPE):
            return True
        if (found := self._took(_PROPERTY)) is None:
            return False
        return found["key"] not in (None, "gc", "General_Category") or found["value"] in _PROPERTIES

    def _class(self) -> None:
        """Read a class in brackets, whose first bracket is read."""
        if self._text.startswith("^", self._at):
            self._at += 1
        start: int | None = None
        is_range = False
        while not self._text.startswith("]", self._at):
            self._need(self._at < len(self._text))
            is_dash = start is not None and not is_range and self._text.startswith("-", self._at)
            if is_dash and not self._text.startswith("]", self._at + 1):
                is_range = True
                self._at += 1
                continue
            char = self._class_atom()
            if is_range:
                self._need(start is not None and start >= 0 and char >= start)
                start, is_range = None, False
            else:
                start = char
        self._at += 1

    def _class_atom(self) -> int:
        """Read one element of a class: its character, -1 for many."""
        char = self._text[self._at]
        self._at += 1
        if char != "\\":
            return ord(char)
        begin = self._at
        if self._text[self._at : self._at + 1] in ("b", "-"):
            self._at += 1
        elif self._took(_CHAR_ESCAPE) is None:
            self._need(self._set())
            return -1
        return _code(self._text[begin : self._at])

    def _took(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _need(self, is_so: bool) -> None:
        if not is_so:
            raise _SyntaxError


_CONTROLS = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "b": 8, "0": 0}


def _code(escape: str) -> int:
    """The character that an escape stands for."""
    if escape in _CONTROLS:
        return _CONTROLS[escape]
    if escape[0] in "xu" and len(escape) > 1:
        return int(escape[1:].strip("{}"), 16)
    return ord(escape[1]) % 32 if escape[0] == "c" and len(escape) > 1 else ord(escape[0])
