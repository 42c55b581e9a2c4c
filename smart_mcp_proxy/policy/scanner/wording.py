"""What a definition's words ask for: phrases of attacks, and data of the user's that is asked for or sent away."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from smart_mcp_proxy.policy.scanner.astray import ASTRAY
from smart_mcp_proxy.policy.scanner.data_words import ASKED_NAMES, PRIVATE, SECRET, WAYS_OUT, Words
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, excerpt
from smart_mcp_proxy.policy.scanner.lookalikes import LOOKALIKES
from smart_mcp_proxy.policy.scanner.orders import ORDERS
from smart_mcp_proxy.policy.scanner.phrases import MARKS, PLAIN_PURPOSE, Anchors, stands
from smart_mcp_proxy.policy.scanner.secrecy import SECRECY

__all__ = ["Reading", "read", "wording"]

LEAK_WEIGHT, SECRET_LEAK_WEIGHT, MISMATCH_WEIGHT, ASKED_WEIGHT, PRIVATE_WEIGHT = 1.0, 1.0, 0.6, 0.6, 0.4
TALKED_ABOUT = 0.4
"""Of its weight a phrase keeps that is quoted or given as an example."""
NEAR_CHARS = 140
"""Data and where it goes belong together within about a sentence."""
MARK_CHARS = 90
_PURPOSE_CHARS = 160
_HONEST_NAME = re.compile(
    r"key|secret|pass|token|cred|wallet|auth|cert|ssl|mnemonic|prompt|message|context|session|identity|history|"
    r"conversation"
)
"""Parts of a parameter's name that say what it wants."""
_OUT_OF_REACH = re.compile(r"[/*.]|id_|conversation|system|clipboard|history")
LONG_WORD_CHARS = 200
"""Longer words are read in pieces: patterns that look for an end in them would take the square of their length."""
_BLANK = re.compile(r"\s+")
_ODD_BLANK = re.compile(r"[^\S ]|  ")
"""Where there is none, blanks are as they are to be."""
_LONG_WORD = re.compile(rf"\S{{{LONG_WORD_CHARS}}}")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_QUOTED = re.compile(r"(?<!`)['\"`\u2018\u201c\u00ab]\s*$")
_MIXED = re.compile(
    "(?<![^\\W\\d_])(?:[a-z]+[\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff]+[a-z])[^\\W\\d_]*"
)


_PHRASES = (*ORDERS, *SECRECY, *ASTRAY)


class Reading:
    """A definition's passages as one text, in the form in which words are compared.

    Attributes:
        text: Lower case, compatibility forms and look-alike letters unified, without invisible characters.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        parts = [_plain(passage.text) for passage in passages]
        self.text = " \n ".join(parts)
        self._words = " ".join(set(self.text.split(" ")))
        """Each once, in any order."""
        self.passages = passages
        self._starts = [0]
        for part in parts[:-1]:
            self._starts.append(self._starts[-1] + len(part) + 3)

    def has(self, anchors: Anchors) -> bool:
        """Whether any of the anchors stands in the text."""
        return stands(self._words, anchors.words) or stands(self.text, anchors.sequences)

    def place(self, at: int) -> str:
        """The JSON path of the passage that holds the character at `at`."""
        return self.passages[bisect_right(self._starts, at) - 1].place if self.passages else "$"

    def evidence(self, check: str, weight: float, start: int, end: int, reason: str) -> Evidence:
        """Evidence of the characters from `start` to `end`."""
        return Evidence(check, weight, self.place(start), reason, excerpt(self.text, start, end))


def read(passages: Sequence[Passage]) -> Reading:
    """The passages as one text to look for words in."""
    return Reading(passages)


def wording(reading: Reading) -> Iterator[Evidence]:
    """Evidence of what the words say."""
    text = reading.text
    for phrase in _PHRASES:
        if reading.has(phrase.anchors):
            for match in phrase.pattern.finditer(text):
                weight = phrase.weight * (TALKED_ABOUT if _is_talked_about(text, match.start()) else 1)
                yield reading.evidence(phrase.check, weight, match.start(), match.end(), phrase.reason)
    yield from _data(reading)
    yield from _asked(reading.passages)
    yield from _mixed(reading.passages)


def _data(reading: Reading) -> Iterator[Evidence]:
    """Evidence of data that is not the tool's own: where it goes, and whether the tool's purpose needs it."""
    text = reading.text
    private = _said(reading, PRIVATE)
    secrets = _said(reading, SECRET)
    if private or secrets:
        yield from _leaks(reading, private, secrets)
    in_prose = [match for match in private if not reading.place(match.start()).endswith("~")]
    if in_prose:
        first = in_prose[0]
        place = reading.place(first.start())
        if ".properties" in place and not _HONEST_NAME.search(place.lower()):
            reason = f"A parameter's description asks for '{first[0][:40]}'."
            yield reading.evidence("asked", DECISIVE, first.start(), first.end(), reason)
        reason = f"It speaks of '{first[0][:40]}'."
        yield reading.evidence("private_data", PRIVATE_WEIGHT, first.start(), first.end(), reason)
        if PLAIN_PURPOSE.search(text, 0, _PURPOSE_CHARS):
            for match in filter(lambda match: _OUT_OF_REACH.search(match[0]), in_prose[:1]):
                reason = f"Its purpose does not need '{match[0][:40]}'."
                yield reading.evidence("purpose", MISMATCH_WEIGHT, match.start(), match.end(), reason)


def _leaks(reading: Reading, private: Sequence[re.Match[str]], secrets: Sequence[re.Match[str]]) -> Iterator[Evidence]:
    text = reading.text
    if not reading.has(WAYS_OUT.anchors):
        return
    for way in WAYS_OUT.pattern.finditer(text):
        if _is_talked_about(text, way.start()):
            continue
        for weight, wanted in ((LEAK_WEIGHT, private), (SECRET_LEAK_WEIGHT, secrets)):
            near = _nearest(wanted, way)
            if near is not None and _gap(near, way) <= NEAR_CHARS:
                start, end = min(near.start(), way.start()), max(near.end(), way.end())
                reason = f"Data that is not the tool's own ('{near[0][:40]}') is to go somewhere else."
                yield reading.evidence("leak", weight, start, end, reason)
                break


def _said(reading: Reading, names: Sequence[Words]) -> list[re.Match[str]]:
    """Where the text says one of these of itself, not as an example, in the order of the text."""
    text = reading.text
    found = [
        match
        for words in names
        if reading.has(words.anchors)
        for match in words.pattern.finditer(text)
        if not _is_talked_about(text, match.start())
    ]
    return sorted(found, key=lambda match: match.start())


def _nearest(found: Sequence[re.Match[str]], way: re.Match[str]) -> re.Match[str] | None:
    """The match closest to another one; `found` in the order of the text."""
    at = bisect_right(found, way.start(), key=lambda match: match.start())
    return min(found[max(0, at - 1) : at + 1], key=lambda match: _gap(match, way), default=None)


def _gap(one: re.Match[str], other: re.Match[str]) -> int:
    """Characters between two matches; negative where they overlap."""
    return max(one.start(), other.start()) - min(one.end(), other.end())


def _asked(passages: Sequence[Passage]) -> Iterator[Evidence]:
    """Evidence of parameters whose names ask for what the agent knows."""
    for place, text in passages:
        if place.endswith("~") and ".properties" in place and ASKED_NAMES.match(text.lower()):
            yield Evidence(
                "asked",
                ASKED_WEIGHT,
                place,
                f"Parameter '{text}' asks for what the agent knows.",
                excerpt(text, 0, len(text)),
            )


def _mixed(passages: Sequence[Passage]) -> Iterator[Evidence]:
    """Evidence of words that look like others."""
    for place, text in passages:
        if not text.isascii():
            for match in _MIXED.finditer(text.lower()):
                reason = "A word mixes letters of two scripts that look alike."
                yield Evidence("mixed_script", MISMATCH_WEIGHT, place, reason, excerpt(text, *match.span()))


def _is_talked_about(text: str, start: int) -> bool:
    """Whether what starts here is quoted, or named as an example or as something that is looked for."""
    sentence = text.rfind(". ", max(0, start - MARK_CHARS), start)
    before = text[sentence + 2 if sentence >= 0 else max(0, start - MARK_CHARS) : start]
    return _QUOTED.search(before) is not None or MARKS.search(before) is not None


def _plain(text: str) -> str:
    if len(text) > LONG_WORD_CHARS:
        text = _LONG_WORD.sub(r"\g<0> ", text)
    if text.isascii():
        return _BLANK.sub(" ", text.lower()) if _ODD_BLANK.search(text) else text.lower()
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return _BLANK.sub(" ", _MIXED.sub(lambda match: match[0].translate(LOOKALIKES), text))
