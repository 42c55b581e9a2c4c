"""Wording of a definition: phrases of attacks, and the user's data asked for or sent away."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, EXCERPT_CHARS, Evidence, Passage, excerpt
from smart_mcp_proxy.policy.scanner.rules.prefilter import Searchable, Way
from smart_mcp_proxy.policy.scanner.rules.rule_files import STRONG, Phrase, RuleFile

LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0432\u0455\u0458\u0501\u0261\u03bf"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03c1\u03c4\u03c5\u03c7",
    "aeopcyxibsjdgoaeiknptux",
)
"""Cyrillic, Greek and phonetic letters to the Latin ones. Source: https://www.unicode.org/reports/tr39/"""

LEAK_WEIGHT = 1.0
SECRET_LEAK_WEIGHT = 1.0
MISMATCH_WEIGHT = 0.6
ASKED_WEIGHT = 0.6
PRIVATE_WEIGHT = 0.4
TALKED_ABOUT = 0.4
"""Share of its weight that a phrase keeps that is quoted or given as an example."""
AGENT_DATA_WEIGHT, FITTING_WEIGHT, HANDED_WEIGHT = 0.6, 0.5, 0.4
"""Weights of what only the agent has: in a tool about something else; in one about talk; asked for in one sentence."""
HAND_CHARS = 90
"""As far as what is to be handed over and the order to do so are looked for in one sentence."""
NEAR_CHARS = 140
"""Data and where it goes belong together within about a sentence."""
MARK_CHARS = 90
SENTENCE_BLANKS = 3
"""A key with as many underscores may be a sentence."""
FOREIGN_WORDS = 2
"""Small words of another language; one alone may be an English word or a name."""
_PURPOSE_CHARS = 160
_PURPOSE_PLACES = ("$.name", "$.title", "$.description")
LONG_WORD_CHARS = 200
"""Longer words are read in pieces: patterns that look for an end in them would take the square of their length."""
_FOREIGN = re.compile("[\u00df-\u024f\u0370-\u1fff\u3040-\ud7ff]")
"""Letters that English does without."""
_BLANK = re.compile(r"\s+")
_LONG_WORD = re.compile(rf"\S{{{LONG_WORD_CHARS}}}")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_QUOTED = re.compile(r"(?<!`)['\"`\u2018\u201c\u00ab]\s*$")
_MIXED = re.compile(
    "(?<![^\\W\\d_])(?:[a-z]+[\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff]+[a-z])[^\\W\\d_]*"
)

_PHRASES = tuple(
    phrase for name in ("orders", "secrecy", "steering", "consent", "side_steps") for phrase in RuleFile(name).phrases()
)
_LANGUAGES = RuleFile("languages")
_FOREIGN_PHRASES, _COMMON_WORDS = _LANGUAGES.phrases(), _LANGUAGES.terms("common_words")
_DATA = RuleFile("private_data")
STORES = _DATA.words("stores")
_PRIVATE, _SECRET, (_WAYS_OUT,) = (*STORES, *_DATA.words("private")), _DATA.words("secret"), _DATA.words("ways_out")
_ASKED_NAME, _HONEST_NAME, _OUT_OF_REACH = map(_DATA.expression, ("asked_name", "honest_name", "out_of_reach"))
_AGENT = RuleFile("agent_data")
_AGENT_DATA = _AGENT.words("agent_data")
_HANDS_OVER, _ABOUT_AGENTS = map(_AGENT.expression, ("hands_over", "about_agents"))
_PLAIN_PURPOSE, _EXAMPLE_MARKS = map(RuleFile("context").expression, ("plain_purpose", "example_marks"))


class Reading:
    """A definition's passages as one text, in the form in which words are compared.

    Attributes:
        text: Lower case, compatibility forms and look-alike letters unified, without invisible characters.
        words: Of the text, with the marks beside them.
        is_foreign: Whether some of it may not be English.
        find: Yields the matches of one of several ways of saying something, in order.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        parts = [_plain(_split_sentence_key(place, text)) for place, text in passages]
        self.text = " \n ".join(parts)
        self.find = Searchable(self.text).find
        self.words = frozenset(self.text.split(" "))
        is_latin = self.text.isascii() or _FOREIGN.search(self.text) is None
        self.is_foreign = not is_latin or len(self.words & _COMMON_WORDS) >= FOREIGN_WORDS
        self.passages = passages
        self._lines: dict[int, list[int]] = {}
        self._starts = [0]
        for part in parts[:-1]:
            self._starts.append(self._starts[-1] + len(part) + 3)

    @property
    def purpose(self) -> str:
        """The tool's name, title and the beginning of its description."""
        return " ".join(_plain(text[:_PURPOSE_CHARS]) for place, text in self.passages if place in _PURPOSE_PLACES)

    def prose(self) -> Iterator[tuple[int, str]]:
        """Yield start and text of each passage that is not a key or a type."""
        for (place, _), start, line in zip(self.passages, self._starts, self.text.split(" \n "), strict=False):
            if not place.endswith(("~", ".type")):
                yield start, line

    def place(self, at: int) -> str:
        """The JSON path of the passage that holds the character at `at`."""
        return self.passages[bisect_right(self._starts, at) - 1].place if self.passages else "$"

    def line(self, at: int) -> tuple[int, int]:
        """Start and end of the line around the character at `at`; lines broken within a sentence are one."""
        number = bisect_right(self._starts, at) - 1
        if number not in self._lines:
            self._lines[number] = [*self._line_starts(number)]
        lines = self._lines[number]
        after = bisect_right(lines, at)
        return lines[after - 1], lines[after] if after < len(lines) else len(self.text)

    def _line_starts(self, number: int) -> Iterator[int]:
        """Starts of a passage's lines, but of those that go on with a small letter."""
        at = self._starts[number]
        yield at
        goes_on = True
        for line in self.passages[number].text.split("\n"):
            words = line.split()
            if not words or not (goes_on and words[0][0].islower()):
                yield at
            goes_on = bool(words)
            for _ in words:
                at = self.text.find(" ", at + 1) + 1 or len(self.text)

    def evidence(self, check: str, weight: float, start: int, end: int, reason: str) -> Evidence:
        """Evidence of the characters from `start` to `end`, shown with what is around them in their passage."""
        first = max(self._starts[bisect_right(self._starts, start) - 1], start - EXCERPT_CHARS)
        last = self.text.find(" \n ", end, end + EXCERPT_CHARS)
        shown = self.text[first : last if last >= 0 else end + EXCERPT_CHARS]
        return Evidence(check, weight, self.place(start), reason, excerpt(shown, start - first, end - first))


def find_suspect_wording(reading: Reading) -> Iterator[Evidence]:
    """Evidence of what the words say."""
    text = reading.text
    phrases: tuple[Phrase, ...] = (*_PHRASES, *_FOREIGN_PHRASES) if reading.is_foreign else _PHRASES
    for phrase in phrases:
        for match in reading.find(phrase.ways):
            weight = phrase.weight
            if _is_talked_about(text, match.start()):
                weight = min(STRONG, weight) * TALKED_ABOUT
            yield reading.evidence(phrase.check, weight, match.start(), match.end(), phrase.reason)
    yield from _data(reading)
    yield from _find_agent_data(reading)
    yield from _check_parameter_names(reading.passages)
    yield from _find_mixed_scripts(reading.passages)


def _data(reading: Reading) -> Iterator[Evidence]:
    """Evidence of data that is not the tool's own: where it goes, and whether the tool's purpose needs it."""
    text = reading.text
    private = _find_statements(reading, _PRIVATE)
    secrets = _find_statements(reading, _SECRET)
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
        if _PLAIN_PURPOSE.search(text, 0, _PURPOSE_CHARS):
            for match in filter(lambda match: _OUT_OF_REACH.search(match[0]), in_prose[:1]):
                reason = f"Its purpose does not need '{match[0][:40]}'."
                yield reading.evidence("purpose", MISMATCH_WEIGHT, match.start(), match.end(), reason)


def _find_agent_data(reading: Reading) -> Iterator[Evidence]:
    """Yield evidence of asking for what only the agent has.

    Gravest where a parameter of a tool about something else asks for it.
    """
    text = reading.text
    purpose: bool | None = None
    for match in _find_statements(reading, _AGENT_DATA):
        place = reading.place(match.start())
        purpose = _ABOUT_AGENTS.search(reading.purpose) is not None if purpose is None else purpose
        reason = f"It speaks of what only the agent has: '{match[0][:40]}'."
        weight = FITTING_WEIGHT if purpose else AGENT_DATA_WEIGHT
        if ".properties." in place:
            weight = FITTING_WEIGHT if purpose else DECISIVE
            reason = f"A parameter asks for what only the agent has: '{match[0][:40]}'."
        yield reading.evidence("agent_data", weight, match.start(), match.end(), reason)
        if _HANDS_OVER.search(_sentence(text, match)):
            reason = f"The agent is to hand over '{match[0][:40]}'."
            yield reading.evidence("handed_over", HANDED_WEIGHT, match.start(), match.end(), reason)


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence around a match, as far as it is near."""
    start, end = match.span()
    before = text[max(0, start - HAND_CHARS) : start]
    after = re.split(r"\. |\n", text[end : end + HAND_CHARS], maxsplit=1)[0]
    return before[max(before.rfind(". "), before.rfind("\n")) + 1 :] + text[start:end] + after


def _leaks(reading: Reading, private: Sequence[re.Match[str]], secrets: Sequence[re.Match[str]]) -> Iterator[Evidence]:
    text = reading.text
    for way in reading.find(_WAYS_OUT):
        if _is_talked_about(text, way.start()):
            continue
        for weight, wanted in ((LEAK_WEIGHT, private), (SECRET_LEAK_WEIGHT, secrets)):
            near = _nearest(wanted, way)
            if near is not None and _gap(near, way) <= NEAR_CHARS:
                start, end = min(near.start(), way.start()), max(near.end(), way.end())
                reason = f"Data that is not the tool's own ('{near[0][:40]}') is to go somewhere else."
                yield reading.evidence("leak", weight, start, end, reason)
                break


def _find_statements(reading: Reading, names: Sequence[tuple[Way, ...]]) -> list[re.Match[str]]:
    """Matches that the text states as its own, not as an example, in order."""
    text = reading.text
    said = (match for ways in names for match in reading.find(ways))
    found = [match for match in said if not _is_talked_about(text, match.start())]
    return sorted(found, key=lambda match: match.start())


def _nearest(found: Sequence[re.Match[str]], way: re.Match[str]) -> re.Match[str] | None:
    """The match closest to a given one; `found` in the order of the text."""
    at = bisect_right(found, way.start(), key=lambda match: match.start())
    return min(found[max(0, at - 1) : at + 1], key=lambda match: _gap(match, way), default=None)


def _gap(one: re.Match[str], other: re.Match[str]) -> int:
    """Characters between two matches; negative where they overlap."""
    return max(one.start(), other.start()) - min(one.end(), other.end())


def _check_parameter_names(passages: Sequence[Passage]) -> Iterator[Evidence]:
    """Evidence of parameters whose names ask for what the agent knows."""
    for place, text in passages:
        if place[-1] == "~" and ".properties" in place and _ASKED_NAME.match(text.lower()):
            yield Evidence(
                "asked",
                ASKED_WEIGHT,
                place,
                f"Parameter '{text}' asks for what the agent knows.",
                excerpt(text, 0, len(text)),
            )


def _find_mixed_scripts(passages: Sequence[Passage]) -> Iterator[Evidence]:
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
    return _QUOTED.search(before) is not None or _EXAMPLE_MARKS.search(before) is not None


def _split_sentence_key(place: str, text: str) -> str:
    """A key that is a sentence, in words."""
    return text.replace("_", " ") if place[-1] == "~" and text.count("_") >= SENTENCE_BLANKS else text


def _plain(text: str) -> str:
    if text.isidentifier() and text.isascii() and len(text) <= LONG_WORD_CHARS:
        return text.lower()
    words = text.split()
    if len(text) > LONG_WORD_CHARS and max(map(len, words), default=0) >= LONG_WORD_CHARS:
        text = _LONG_WORD.sub(r"\g<0> ", text)
    if text.isascii():
        single = " ".join(words).lower()
        return single if len(single) == len(text) else f"{' ' * text[0].isspace()}{single}{' ' * text[-1].isspace()}"
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return _BLANK.sub(" ", _MIXED.sub(lambda match: match[0].translate(LOOKALIKES), text))
