"""A pattern is tried only where it can match, and finds there what it would find everywhere."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.policy.scanner.rules.prefilter import Searchable, Way, alternatives, may_match, needs, quick, ways
from smart_mcp_proxy.policy.scanner.rules.rule_files import RuleFile
from smart_mcp_proxy.policy.scanner.scanning import passages
from smart_mcp_proxy.policy.scanner.wording import Reading

SET = Path(__file__).parents[2] / "scanner_set"
PHRASES = ("orders", "secrecy", "steering", "consent", "side_steps", "languages")
WORDS = (
    ("private_data", "stores"),
    ("private_data", "private"),
    ("side_steps", "command"),
    ("side_steps", "store"),
    ("side_steps", "action"),
    ("private_data", "secret"),
    ("private_data", "ways_out"),
    ("agent_data", "agent_data"),
)
QUICKENED = re.compile(r"\(\?<=\\b\w\)")
"""What `quick` writes into a pattern, in terms that no text can be made from."""
PATTERNS = (
    r"\ba(?:b|c)?\b[^_]{0,3}\b(?:x|b) a",
    r"\b(?:a(?:b|c)|(?:bc|c)x|xa?)b|\bab",
    r"\b(?:a?b|c)d|e|\b(?:ab)?c",
    r"(?<!a )\bb[a-c]+(?= d)|\ba{2}b",
)
REACHING = {
    pattern: ways(pattern)
    for pattern in (
        r"\babc(?: \w+){0,2} xyz\b|\bxyz abc",
        r"\babc\b.{0,5}\bxyz\b|\babc$|(?<!\.)\bxyz",
        r"\babc\b[^.]{0,5}\bxyz\b|\bxyz(?! abc)",
        r"\babc\b[^_]{0,5}\bxyz\b|(?:^|[.\n] )xyz|\s_ abc",
        r"@xyz|\babc(?:@|_x)|abc\. ?xyz(?=\s)",
    )
}
"""Patterns that end at full stops, at line breaks, at neither and at both."""


def read_texts() -> list[str]:
    """What the scanner reads of every definition of the own set."""
    return [
        Reading(passages(json.loads(line)["definition"])[0]).text
        for name in ("malicious", "benign")
        for line in (SET / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@cache  # seconds of work, which a process that only collects this file must not do
def all_said() -> tuple[tuple[Way, ...], ...]:
    """The ways of saying each phrase and each word."""
    return (
        *(phrase.ways for name in PHRASES for phrase in RuleFile(name).phrases()),
        *(ways_ for name, group in WORDS for ways_ in RuleFile(name).words(group)),
    )


def all_ways() -> list[Way]:
    """The ways of saying anything."""
    return [way for said in all_said() for way in said]


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data(), st.deferred(lambda: st.sampled_from(all_ways())))
@pytest.mark.long  # many generated examples
def test_whatever_a_pattern_matches_holds_what_it_needs(data: st.DataObject, way: Way) -> None:
    """A text made from the pattern itself is never passed over unread."""
    text = data.draw(st.from_regex(re.compile(QUICKENED.sub("", way.pattern.pattern)), fullmatch=True))
    assume(way.pattern.search(text))
    (group,) = [said for said in all_said() if way in said]
    assert [*Searchable(text).find(group)]


@settings(max_examples=300)
@given(
    st.sampled_from([*REACHING]),
    st.lists(st.sampled_from(["abc", "xyz", "abcxyz", "xabc", "_", "@", ".", "\n", " ", ". ", " \n "]), max_size=24),
)
@pytest.mark.long  # many generated examples
def test_a_pattern_finds_in_the_parts_of_a_text_what_it_finds_in_the_whole(pattern: str, pieces: list[str]) -> None:
    """Sentences and lines without the words that it needs are not looked at, and nothing is lost."""
    text = "".join(pieces)
    found = Searchable(text).find(REACHING[pattern])
    assert [match.span() for match in found] == _spans(re.compile(pattern), text)


def test_a_text_of_many_words_of_a_kind_is_searched_as_a_whole() -> None:
    """More places than are worth a list lose nothing."""
    pattern = r"\babc(?: \w+){0,2} xyz\b|\bxyz abc"
    text = ". ".join(f"abc{number} abc xyz" for number in range(40))
    assert len([*Searchable(text).find(REACHING[pattern])]) == 40


@pytest.mark.parametrize(
    ("pattern", "stops", "breaks"),
    [
        (r"\bsend (?:\w+ ){0,3}it\b", False, False),
        (r"send.{0,9}it", True, False),
        (r"send[^.]{0,9}it", False, True),
        (r"send\s+it", False, True),
        (r"\.ssh", True, False),
        (r"send it$", True, True),
    ],
)
def test_what_a_match_may_reach_over_is_told_from_its_pattern(pattern: str, stops: bool, breaks: bool) -> None:
    """A class, a blank of any kind, and what asks for the end of the text."""
    assert (may_match(pattern, "."), may_match(pattern, "\n")) == (stops, breaks)


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


@pytest.mark.long  # much work for one test
def test_every_phrase_is_found_where_it_stands() -> None:
    """No way of saying something is left untried in a text that says it."""
    whole = [(said, re.compile("|".join(way.pattern.pattern for way in said))) for said in all_said()]
    count, texts = 0, read_texts()
    for text in texts:
        searchable = Searchable(text)
        for each, pattern in whole:
            wanted = _spans(pattern, text)
            assert [match.span() for match in searchable.find(each)] == wanted
            count += len(wanted)
    assert count > len(texts) / 2


@pytest.mark.long  # a third of a second of processor time
def test_no_phrase_is_found_in_nothing() -> None:
    """A match of no characters would be found again and again."""
    assert not [way for way in all_ways() if way.pattern.search("")]


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]
