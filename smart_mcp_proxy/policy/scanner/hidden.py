"""Hidden text that models read: invisible characters, direction marks, terminal commands."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

from smart_mcp_proxy.invisible.characters import FLAG, INVISIBLE, is_at_home
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, escape_unsafe, excerpt

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROL.match(chr(code)))
_NONCHARACTERS = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0xF0000, 0x10000))
_INVISIBLE = re.compile(f"[{INVISIBLE}{_NONCHARACTERS}\u2028\u2029]+|[\u1680\u2000-\u200a\u202f\u205f]{{3,}}")
"""And what no text should hold: separators of lines and paragraphs, and rows of blanks that only printing needs."""
_FLAGS = re.compile(FLAG)
_PUSHED = re.compile(r"(?:[ \t\u00a0\u3000]{100}|(?:\n[ \t\r]*){20})[ \t\u00a0\u3000\s]*(?=\S)")
"""White space that moves what follows out of every window. No real definition of 4,975 has so much before text."""
_TAG_BASE = 0xE0000
_MOST_SHOWN = 20
"""Most hidden runs of one string: more are neither read nor told apart."""


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
    odd = (match for match in _INVISIBLE.finditer(text) if not is_at_home(text, match))
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
