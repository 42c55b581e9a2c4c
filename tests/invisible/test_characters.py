"""What shows nothing goes out of results, but for single characters that writing needs; one list says what that is."""

import json
from itertools import pairwise
from typing import Any

import pytest
from growth import assert_growth
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.results.cleaning import CLEANED_META_KEY, clean
from smart_mcp_proxy.gateway.results.results import may_need_cleaning
from smart_mcp_proxy.invisible.characters import INVISIBLE_RANGES
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.web.page.hidden import has_hidden

KINDS = {
    "variation selectors": "\ufe01\U000e0101\ufe0f",
    "zero width": "\u200b\u200c\u200d",
    "word joiner and invisible operators": "\u2060\u2061\u2062\u2063\u2064",
    "byte order mark": "\ufeff",
    "Hangul fillers": "\u115f\u1160\u3164\uffa0",
    "Khmer vowels and Braille blank": "\u17b4\u17b5\u2800",
    "soft hyphen": "\u00ad",
    "Mongolian vowel separator": "\u180e",
    "grapheme joiner": "\u034f",
    "annotations": "\ufff9\ufffa\ufffb",
    "private use": "\ue000\U000f0000\U00100000",
    "TAG characters": "\U000e0041\U000e0042",
    "direction marks": "\u200e\u200f\u061c",
    "musical and shorthand formats": "\U0001d173\U0001bca0",
}
NEEDED = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525 "
    "\U0001f3f3\ufe0f\u200d\U0001f308 1\ufe0f\u20e3",
    "\u2764\ufe0f \u2764\ufe0e \u2714\ufe0f \u203c\ufe0f \U0001f170\ufe0f",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200d",
    "\u845b\U000e0100 \u8fbb\ufe00",
    "\u05e9\u05dc\u05d5\u05dd\u200f (a)",
    "\u0e01\u200b\u0e02",
    "\u1820\u180b",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "a\u00a0b\u2003c\u3000d\u2028e\n",
    "\u4e2d\u6587\uff0c\u65e5\u672c\u8a9e\u3001\ud55c\uad6d\uc5b4 \u201equotes\u201c \u2013 \u20ac",
]
"""Emoji, texts of the world, blanks and ends of lines."""
PAD = "\u00e4\u4e2d" * 10_000


def result_of(text: str, *, ascii_only: bool) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}]}, ensure_ascii=ascii_only).encode()


def text_in(raw: bytes) -> Any:
    return json.loads(raw)["content"][0]["text"]


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize("hidden", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
def test_runs_of_characters_that_show_nothing_are_taken_out(hidden: str, ascii_only: bool, pad: str) -> None:
    """One of them between letters, and many in a row; the note counts them."""
    for run in (*hidden, hidden * 3, hidden[0] * 40):
        raw = result_of(f"{pad}see{run}this", ascii_only=ascii_only)
        assert may_need_cleaning(RawResult(raw)), ascii(run)
        once = clean(raw)
        assert text_in(once) == f"{pad}seethis", ascii(run)
        assert json.loads(once)["_meta"] == {CLEANED_META_KEY: {"removed_chars": len(run)}}


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize("text", NEEDED, ids=ascii)
def test_single_ones_that_writing_needs_stay(text: str, ascii_only: bool) -> None:
    """To the byte; a second one behind it goes with it."""
    for pad in ("", PAD):
        raw = result_of(pad + text, ascii_only=ascii_only)
        assert clean(raw) is raw


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
def test_a_long_text_with_emoji_is_told_clean_unread(ascii_only: bool) -> None:
    """Its joiners and selectors, and those of Persian, cost no reading."""
    raw = result_of(PAD + "".join(NEEDED[1:3]).replace("\u203c\ufe0f", ""), ascii_only=ascii_only)
    assert not may_need_cleaning(RawResult(raw))


PIECES = [
    *"ab \n\u00e4\u4e2d\u0645\u0915\u05d0\u2764\U0001f468\U0001f308\u20e31",
    *{*"".join([*KINDS.values(), *NEEDED])},
]


@pytest.mark.long  # a third of a second of processor time
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.booleans(), st.sampled_from(["", PAD]))
def test_the_quick_look_misses_nothing(text: str, ascii_only: bool, pad: str) -> None:
    """Nor does a second cleaning find anything that the first one left."""
    raw = result_of(pad + text, ascii_only=ascii_only)
    once = clean(raw)
    assert once is raw or may_need_cleaning(RawResult(raw))
    assert text_in(clean(once)) == text_in(once)


def test_the_page_and_the_cleaning_of_results_have_one_list() -> None:
    """Each of the list is marked on the page; where it stays in a result, something beside it needs it."""
    for first, last in INVISIBLE_RANGES:
        for code in {first, last, (first + last) // 2}:
            assert has_hidden(chr(code)), hex(code)
            if not 0xD800 <= code <= 0xDFFF:
                assert text_in(clean(result_of(f"a{chr(code)}b", ascii_only=False))) == "ab", hex(code)
    assert all(one[1] < two[0] for one, two in pairwise(INVISIBLE_RANGES))


@pytest.mark.long  # seconds of work
def test_hidden_text_is_taken_out_in_linear_time() -> None:
    """A megabyte of what goes out, and of what stays."""
    for piece in ("a\u200b", "\U0001f468\u200d\U0001f469 ", "\u2060", "\u0645\u200c"):
        raw = {size: result_of(piece * size, ascii_only=False) for size in (20_000, 80_000)}
        assert_growth(lambda size, raw=raw: clean(raw[size]), 20_000, 80_000, at_most=8)
