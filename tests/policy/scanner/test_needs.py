"""A pattern is tried only where it can match, and finds there what it would find everywhere."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.policy.scanner.data_words import PRIVATE, SECRET, WAYS_OUT
from smart_mcp_proxy.policy.scanner.handover import AGENT_DATA
from smart_mcp_proxy.policy.scanner.languages import LANGUAGES
from smart_mcp_proxy.policy.scanner.needs import alternatives, needs, quick
from smart_mcp_proxy.policy.scanner.passages import passages
from smart_mcp_proxy.policy.scanner.phrases import Anchors, matches, pieces_in, ways
from smart_mcp_proxy.policy.scanner.wording import _PHRASES, read

SET = Path(__file__).parent.parent / "scanner_set"
TEXTS = [
    read(passages(json.loads(line)["definition"])[0]).text
    for name in ("malicious", "benign")
    for line in (SET / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
]
SAID = (*_PHRASES, *LANGUAGES, *PRIVATE, *SECRET, WAYS_OUT, *AGENT_DATA)
ANYWHERE = Anchors(0, ((0, ""),))
PATTERNS = (
    r"\ba(?:b|c)?\b[^_]{0,3}\b(?:x|b) a",
    r"\b(?:a(?:b|c)|(?:bc|c)x|xa?)b|\bab",
    r"\b(?:a?b|c)d|e|\b(?:ab)?c",
    r"(?<!a )\bb[a-c]+(?= d)|\ba{2}b",
)


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\bsend(?:ing)? (?:the )?files?\b", [{"send"}, {"file"}]),
        (r"(?:call|use) this", [{"call", "use"}, {"this"}]),
        (r"(?:call|[a-z]+) it", []),
        (r"(?!never)(?<!not )call{0,2}er(?=.*tool)", [{"cal"}, {"tool"}]),
        (r"setup\.sh|(?:curl|curling) it", [{"setup.sh", "curl"}]),
    ],
)
def test_what_a_pattern_needs_is_what_all_its_ways_have(pattern: str, needed: list[set[str]]) -> None:
    """Optional parts, classes, and what must not stand there are needed by nothing."""
    assert needs(pattern) == needed


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    """An unknown escape could be taken for letters, and findings would be lost unseen."""
    with pytest.raises(ValueError, match=r"cannot be read from '\\\\x41"):
        needs(r"send\x41")


def test_a_pattern_falls_apart_at_its_outermost_bars() -> None:
    """Bars in groups, in classes and behind a backslash hold it together."""
    assert alternatives(r"a(?:b|c)|[|]d|\|e") == ["a(?:b|c)", "[|]d", r"\|e"]


@given(st.sampled_from(PATTERNS), st.text(alphabet="abcx _", max_size=12))
def test_a_quick_pattern_finds_the_same(pattern: str, text: str) -> None:
    """Whatever the text, and wherever it begins."""
    for each in alternatives(pattern):
        assert _spans(re.compile(quick(each)), text) == _spans(re.compile(each), text)


@given(st.sampled_from(PATTERNS), st.text(alphabet="abcx _", max_size=12))
def test_the_ways_of_a_pattern_find_what_the_whole_pattern_finds(pattern: str, text: str) -> None:
    """The same places in the same order, with the first way where two begin at one place."""
    found = matches(ways(pattern), ANYWHERE, text, ~0)
    assert [match.span() for match in found] == _spans(re.compile(pattern), text)


def test_every_phrase_is_found_where_it_stands() -> None:
    """No way of saying something is left untried in a text that says it."""
    whole = [(said.ways, re.compile("|".join(way.pattern.pattern for way in said.ways))) for said in SAID]
    count = 0
    for text in TEXTS:
        held = pieces_in(set(text.split(" ")))
        for each, pattern in whole:
            wanted = _spans(pattern, text)
            assert [match.span() for match in matches(each, ANYWHERE, text, held)] == wanted
            count += len(wanted)
    assert count > len(TEXTS) / 2


def test_no_phrase_is_found_in_nothing() -> None:
    """A match of no characters would be found again and again."""
    assert not [way for said in SAID for way in said.ways if way.pattern.search("")]


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]
