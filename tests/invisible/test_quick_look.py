"""Escapes are told harmless only where neither reading nor cleaning a text would change anything."""

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.results.cleaning import clean
from smart_mcp_proxy.gateway.results.results import may_need_cleaning
from smart_mcp_proxy.invisible import quick_look
from smart_mcp_proxy.invisible.quick_look import are_harmless, is_clean
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.protocol import codec
from smart_mcp_proxy.upstream.protocol.codec import BrokenMessage, clean_line, decode_messages

BLOCK_BYTES = 1 << 16
LONG = 20_000
PIECES = [
    *("plain words ", "\\n", "\\t", '\\"', "\\\\", "\\/", "\\r\\n", "\\r", "\\b", "\\f", "\\x", "\\"),
    *(r"\u00e4", r"\u00E4", r"\u0000", r"\u001b[31m", r"\u001B", r"\u0009", r"\u000d", r"\u007f", r"\u009b", r"\u00a0"),
    *(r"\u043f\u0440", r"\u4e2d", r"\ud55c", r"\u2019", r"\u202e", r"\u202E", r"\u2066", r"\u206f", r"\u200b"),
    *(r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud83d", r"\ude00", r"\ud83dx\ude00", r"\ude00\ud83d", r"\ud83d\ud83d\ude00"),
    *(r"\udb40\udc41", r"\udb41\udc41", r"\udb40", r"\\ud83d\ude00", r"\\\ud83d\ude00", r"\\u202e", r"\\\u202e"),
    *(r"\u005cu202e", r"\u00", r"\u20", r"\ud8", r"\u00zz", r"\ud83d\u", "é", "中", "\x7f", "\x1b", "\u202e", "\n"),
]
"""Some of what a server may write inside a string, well or badly."""


def line_of(text: str) -> bytes:
    """A reply that holds this text, as it is written."""
    return b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"%b"}]}}' % text.encode()


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text("\\u0289dDbB4fce", max_size=8)), max_size=12).map("".join)


@pytest.mark.long  # a third of a second of processor time
@given(texts, st.integers(0, 14))
def test_what_is_told_harmless_would_not_be_changed(text: str, before: int) -> None:
    """Neither by reading nor by cleaning, on whatever side of a block's end it stands."""
    for pad in (before, BLOCK_BYTES - len(line_of("")) - before):
        line = line_of("x" * pad + text)
        if is_clean((line,)) and is_json(line):  # what is none is refused, however it is cleaned
            assert clean_line(line) == line
            raw = RawResult(line)
            assert not may_need_cleaning(raw)
            assert clean(line) == line


@pytest.mark.long  # a third of a second of processor time
@given(texts, st.sets(st.integers(0, LONG + 200), max_size=4))
def test_a_long_text_is_read_as_it_was_before_it_was_looked_through(text: str, cuts: set[int]) -> None:
    """In pieces, cut anywhere: the same messages, results and need for cleaning as by the patterns alone."""
    line = line_of("y" * LONG + text)
    places = sorted({0, len(line), *(cut for cut in cuts if cut < len(line))})
    pieces = [line[start:end] for start, end in pairwise(places)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "is_clean", lambda pieces: False)
        expected = decode_messages(*pieces)
    got = decode_messages(*pieces)
    if not isinstance(expected, list) or not isinstance(got, list):
        assert type(got) is type(expected)
        assert not isinstance(got, BrokenMessage) or got == expected
        return
    [message], [before] = got, expected
    result, result_before = message.read_result(), before.read_result()
    assert result is not None and result_before is not None
    assert (message.request_id, result.text) == (before.request_id, result_before.text)
    assert may_need_cleaning(result) == may_need_cleaning(RawResult(result.text))


@pytest.mark.long  # thousands of numbers
@pytest.mark.parametrize("stride", [53, pytest.param(1, marks=pytest.mark.soak)])
def test_every_number_of_an_escape_is_judged_as_the_patterns_judge_it(stride: int) -> None:
    """Surrogates stand in pairs; a lonely one, and the first half of a TAG character, are not harmless."""
    judged = {*range(0, 0x10000, stride), *range(0x300), *range(0x2000, 0x2070), *range(0xD7F0, 0xE010)}
    for number in judged:
        for spelled in (rf"\u{number:04x}", rf"\u{number:04X}"):
            is_surrogate = 0xD800 <= number < 0xE000
            text = spelled + r"\udc41" if 0xD800 <= number < 0xDC00 else spelled
            line = line_of(text)
            is_wanted = not may_need_cleaning(RawResult(line)) and not (is_surrogate and number >= 0xDC00)
            assert are_harmless(line) == is_wanted, spelled


@pytest.mark.parametrize(
    "text",
    ["привет, мир — как дела?", "Größe: 5 µm ", "漢字仮名交じり文", "한국어 텍스트", "😀🎉👩‍👩‍👧 ", "a\r\nb\tc\n"],
)
def test_text_of_the_world_is_told_harmless(text: str) -> None:
    """As Python's `json.dumps` writes it, long enough for several blocks, wherever those end."""
    for shift in range(12):
        line = line_of("x" * shift + json.dumps(text * (3 * BLOCK_BYTES // len(text) // 6))[1:-1])
        assert is_clean((line,))
        assert is_clean((line[:1000], line[1000:]))


@pytest.mark.long  # a third of a second of processor time
def test_what_hides_in_a_long_text_is_found_wherever_it_stands() -> None:
    """At the ends of blocks, too, and in the second piece of an escape."""
    lottery = random.Random(7)
    good = json.dumps("漢字" * 40_000)[1:-1]
    places = [BLOCK_BYTES + offset for offset in range(-14, 3)] + [lottery.randrange(len(good)) for _ in range(40)]
    for bad in (r"\u202e", r"\ud83d", r"\udb40\udc41", r"\u001b", r"\b"):
        for place in places:
            cut = place // 6 * 6
            line = line_of(good[:cut] + bad + good[cut:])
            assert not is_clean((line,)), (bad, cut)
            assert not is_clean((line[:place], line[place:])), (bad, cut)


def test_a_clean_text_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces it came in."""
    seen: list[int] = []
    monkeypatch.setattr(quick_look, "are_harmless", lambda text: not seen.append(len(text)))
    line = line_of(json.dumps("漢字" * 4_000)[1:-1])
    decode_messages(line[:9_000], line[9_000:20_000], line[20_000:])
    assert seen == [len(line)]


def test_a_lonely_carriage_return_is_taken_out_however_it_is_spelled() -> None:
    """It lets what follows overwrite a line of a terminal; one that ends a line stays."""
    for lonely in (r"safe\rEVIL", r"safe\u000dEVIL", r"safe\u000DEVIL"):
        assert may_need_cleaning(RawResult(line_of(lonely)))
        assert b"safeEVIL" in clean(line_of(lonely))
    for paired in (r"one\r\ntwo", r"one\u000d\u000atwo"):
        assert clean(line_of(paired)) == line_of(paired)


@pytest.mark.parametrize("size", [0, LONG])
@pytest.mark.parametrize("mark", ["\u202a", "\u202b", "\u202c", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"])
def test_direction_marks_beside_letters_from_right_to_left_need_cleaning_too(mark: str, size: int) -> None:
    """They are at home there, and go all the same."""
    line = line_of(f"\u05d0\u05d1{mark}\u05d2" + "\u05d3" * size)
    assert quick_look.may_hold_hidden(line) and clean(line) != line
