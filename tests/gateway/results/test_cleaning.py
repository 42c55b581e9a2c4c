"""Results made safe to show: what is taken out, what stays to the byte, and the fence around text of others."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.results.cleaning import CLEANED_META_KEY, clean, fence, fence_text
from smart_mcp_proxy.gateway.results.results import may_need_cleaning
from smart_mcp_proxy.raw_result import RawResult

UNWANTED = [
    *(chr(code) for code in range(0x20) if chr(code) not in "\n\t"),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]),
    *map(chr, range(0xE0000, 0xE0080)),
]
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
TEXTS = st.text(st.sampled_from([*'abc [];\\"u001b2m\n\t{}:,<>/-', *UNWANTED]) | st.characters(), max_size=60)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def result_of(text: str, *, ascii_only: bool = True, **members: Any) -> bytes:
    value = {"content": [{"type": "text", "text": text}]} | members
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def cleaned(raw: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(clean(raw))
    return value


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
def test_every_control_direction_and_tag_character_is_taken_out(ascii_only: bool) -> None:
    """Written as an escape or as itself, and the note counts them."""
    for char in UNWANTED:
        raw = result_of(f"before{char}after", ascii_only=ascii_only)
        assert may_need_cleaning(RawResult(raw)), ascii(char)
        result = cleaned(raw)
        assert result["content"][0]["text"] == "beforeafter", ascii(char)
        assert result["_meta"] == {CLEANED_META_KEY: {"removed_chars": 1}}


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\shown", "shown"),
        ("\x1b]never closed", "]never closed"),
        ("10 %\r20 %", "10 %20 %"),
        ("half\ud800 of\x00 a pair", "half of a pair"),
    ],
)
def test_a_command_to_a_terminal_goes_as_a_whole(dirty: str, expected: str) -> None:
    """Its parameters would be noise without it; one that does not end loses what makes it a command."""
    assert cleaned(result_of(dirty))["content"][0]["text"] == expected


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "lines\r\nof a\r\nWindows file",
        "C:\\bin\\run\\u001b\\fonts",
        "emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 and " + SCOTLAND,
        "שלום עולם, نص عربي, 漢字, “quotes” — dashes…",
        '{"newly_registered": ["a:b"], "tools": [{"name": "x"}]}',
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
def test_what_needs_no_cleaning_comes_byte_for_byte(text: str, ascii_only: bool) -> None:
    """Line ends of Windows, paths, emoji, every script, and JSON that imitates the gateway's own answers."""
    raw = result_of(text, ascii_only=ascii_only, structuredContent={"text": text, "n": 1e22})
    assert clean(raw) == raw


@pytest.mark.long  # a third of a second of processor time
@given(value=VALUES)
@settings(max_examples=150, deadline=None)
def test_text_and_structured_content_that_said_the_same_still_do(value: Any) -> None:
    """Escapes inside JSON that is sent as text are cleaned like the strings that they stand for."""
    wrapped = {"value": value}
    raw = result_of(json.dumps(wrapped), structuredContent=wrapped)
    result = cleaned(raw)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_nothing_unwanted_is_left_and_nothing_certain_is_missed(text: str) -> None:
    """What the quick look lets pass is clean; cleaning twice changes nothing more."""
    raw = result_of(text.encode("utf-8", "ignore").decode())  # without halves of surrogate pairs
    once = clean(raw)
    shown = json.loads(once)["content"][0]["text"].replace("\r\n", "\n").replace(SCOTLAND, "")
    assert not set(shown) & set(UNWANTED)
    assert may_need_cleaning(RawResult(raw)) or once == raw
    assert clean(once) == once


def test_keys_links_and_other_members_are_cleaned_and_kept() -> None:
    """Every string that an agent sees; numbers, order and `_meta` of others stay."""
    raw = (
        b'{"content":[{"type":"resource_link","uri":"file:///a","name":"a\\u202eb"},{"type":"text","text":"ok"}],'
        b'"structuredContent":{"k\\u0007":12345678901234567890123},"isError":true,"_meta":{"a/b":[1]}}'
    )
    result = cleaned(raw)
    assert result["content"][0] == {"type": "resource_link", "uri": "file:///a", "name": "ab"}
    assert (result["structuredContent"], result["isError"]) == ({"k": 12345678901234567890123}, True)
    assert result["_meta"] == {"a/b": [1], CLEANED_META_KEY: {"removed_chars": 2}}


@pytest.mark.long  # half a second of work and more
def test_a_long_result_is_cleaned_in_linear_time() -> None:
    """A megabyte of colours, and a megabyte of commands that never end."""
    for piece in ("\x1b[31mred\x1b[0m ", "\x1b]", "\x1bP", "\x1b[0;"):
        text = piece * (1_000_000 // len(piece))
        assert "\x1b" not in cleaned(result_of(text))["content"][0]["text"]


def texts_of(raw: bytes) -> list[str]:
    return [block["text"] for block in json.loads(raw)["content"] if "text" in block]


LINE = re.compile(r"<\s*/?\s*untrusted-output", re.IGNORECASE)


@pytest.mark.long  # a third of a second of processor time
@given(
    text=st.lists(st.sampled_from([*"</>- \n", "untrusted-output", "UNTRUSTED-OUTPUT", "0a1b", "é"])).map("".join)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_out_of_its_fence(text: str) -> None:
    """The first and the last line are the only ones that look like a fence, and they belong together."""
    (shown,) = texts_of(fence(result_of(text)))
    first, *_, last = shown.split("\n")
    assert re.fullmatch("<untrusted-output-[0-9a-f]{16}>", first)
    assert last == first.replace("<", "</")
    assert len(LINE.findall(shown)) == 2


def test_each_result_has_a_fence_of_its_own() -> None:
    """Nobody can prepare a text for a number that is drawn later."""
    assert len({fence_text("same") for _ in range(50)}) == 50


def test_structured_content_does_not_go_around_the_fence() -> None:
    """It is left out where the text says it, and fenced as text where it does not; images stay."""
    value = {"rows": [1, 2]}
    said = json.loads(fence(result_of(json.dumps(value), structuredContent=value, isError=True)))
    assert "structuredContent" not in said and said["isError"]
    assert len(said["content"]) == 1
    (summary, rows) = texts_of(fence(result_of("2 rows", structuredContent=value)))
    assert "2 rows" in summary
    assert json.loads(rows.split("\n")[1]) == value
    pixel = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    file = {"type": "resource", "resource": {"uri": "file:///a", "text": "content"}}
    image, resource = json.loads(fence(json.dumps({"content": [pixel, file]}).encode()))["content"]
    assert image == pixel
    assert LINE.match(resource["resource"]["text"])
