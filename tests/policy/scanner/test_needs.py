"""A pattern is tried only where it can match, and finds there what it would find everywhere."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.policy.scanner.data_words import PRIVATE, SECRET, WAYS_OUT
from smart_mcp_proxy.policy.scanner.handover import AGENT_DATA
from smart_mcp_proxy.policy.scanner.languages import LANGUAGES
from smart_mcp_proxy.policy.scanner.needs import alternatives, needs, quick, sequences
from smart_mcp_proxy.policy.scanner.passages import passages
from smart_mcp_proxy.policy.scanner.phrases import Way, matches, pieces_in, ways
from smart_mcp_proxy.policy.scanner.wording import _PHRASES, read

SET = Path(__file__).parent.parent / "scanner_set"
TEXTS = [
    read(passages(json.loads(line)["definition"])[0]).text
    for name in ("malicious", "benign")
    for line in (SET / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
]
SAID = (*_PHRASES, *LANGUAGES, *PRIVATE, *SECRET, WAYS_OUT, *AGENT_DATA)
WAYS = [way for said in SAID for way in said.ways]
QUICKENED = re.compile(r"\(\?<=\\b\w\)")
"""What `quick` writes into a pattern, in terms that no text can be made from."""
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
        (r"(?:send it|post that) (?:to us|@home|~)", [{"send", "post"}]),
        (r"(?:every call|each tool call)\b.{2}@", [{"every", "each"}, {"call", "tool"}, {"@"}]),
    ],
)
def test_what_a_pattern_needs_is_what_all_its_ways_have(pattern: str, needed: list[set[str]]) -> None:
    """Optional parts, classes, and what must not stand there are needed by nothing."""
    assert needs(pattern) == needed


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"\b(?:is|are) not shown to the (?:user|person)\b", {" not shown to the "}),
        (r"\buse (?:as they are|as-is)(?: now)?", {"as they are", "as-is"}),
        (r"\buse(?: as they are)? it", set()),
    ],
)
def test_the_words_of_a_sequence_are_looked_for_as_they_stand(pattern: str, wanted: set[str]) -> None:
    """The longest letters in a row of each way, if any has a blank."""
    assert sequences(pattern) == wanted


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data(), st.sampled_from(WAYS))
def test_whatever_a_pattern_matches_holds_what_it_needs(data: st.DataObject, way: Way) -> None:
    """A text made from the pattern itself is never passed over unread."""
    text = data.draw(st.from_regex(re.compile(QUICKENED.sub("", way.pattern.pattern)), fullmatch=True))
    assume(way.pattern.search(text))
    assert [*matches([way], text, pieces_in(set(text.split(" "))))]


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
    found = matches(ways(pattern), text, ~0)
    assert [match.span() for match in found] == _spans(re.compile(pattern), text)


def test_every_phrase_is_found_where_it_stands() -> None:
    """No way of saying something is left untried in a text that says it."""
    whole = [(said.ways, re.compile("|".join(way.pattern.pattern for way in said.ways))) for said in SAID]
    count = 0
    for text in TEXTS:
        held = pieces_in(set(text.split(" ")))
        for each, pattern in whole:
            wanted = _spans(pattern, text)
            assert [match.span() for match in matches(each, text, held)] == wanted
            count += len(wanted)
    assert count > len(TEXTS) / 2


def test_no_phrase_is_found_in_nothing() -> None:
    """A match of no characters would be found again and again."""
    assert not [way for said in SAID for way in said.ways if way.pattern.search("")]


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]
