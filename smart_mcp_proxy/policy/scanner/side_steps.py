"""Orders to an agent that do not serve the tool's purpose, such as to run a command or read a key."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.findings import Evidence
from smart_mcp_proxy.policy.scanner.rules.prefilter import Way
from smart_mcp_proxy.policy.scanner.rules.rule_files import CERTAIN, RuleFile
from smart_mcp_proxy.policy.scanner.wording import STORES, Reading

SENTENCE_CHARS = 200
"""As far as a sentence is looked at before what it is about; behind it, twice as far from where that begins."""
CUT_CHARS = 100
"""Longer sentences are cut at multiples of this, so that the cuts are few."""
SHOWN_CHARS = 60
_RULES = RuleFile("side_steps")
_IMPERATIVE, _DESCRIBED, _REFUSED = map(_RULES.expression, ("imperative", "described", "refused"))
_ASKED_FOR = _RULES.expression("asked_for")
_SIGNS = tuple(map(_RULES.expression, ("order", "duty", "agent", "hands")))
_STOP = re.compile(r"(?<!\be\.g)[.!?] |\n")


class Sentence(NamedTuple):
    """A sentence, judged once for all steps in it.

    Attributes:
        described: Place from which it is a description or a warning.
        ordered: Place from which it has a verb in the place of an order.
        signs: Other signs of an order.
        is_first: Whether it begins a text: then it says what the tool does.
    """

    described: float
    ordered: float
    signs: int
    is_first: bool


class SideStep(NamedTuple):
    """A kind of step.

    Attributes:
        check: Name of its findings.
        reason: Of a finding, with a place for what the step is about.
        about: Words for what it is about.
        least: Signs of an order that its sentence has to show.
    """

    check: str
    reason: str
    about: tuple[tuple[Way, ...], ...]
    least: int


STEPS = (
    SideStep(
        "command",
        "The agent is told to run a command that destroys, opens up or fetches: '{}'.",
        _RULES.words("command"),
        1,
    ),
    SideStep(
        "keys",
        "The agent is told to read or pass on what holds keys or passwords: '{}'.",
        (*STORES, *_RULES.words("store")),
        2,
    ),
    SideStep(
        "act", "The agent is told to do something else beside the tool's purpose: '{}'.", _RULES.words("action"), 2
    ),
)


def side_steps(reading: Reading) -> Iterator[Evidence]:
    """Evidence of orders to take such a step; what only describes or warns of one is none."""
    judged: dict[int, Sentence] = {}
    for step in STEPS:
        for ways in step.about:
            for match in reading.find(ways):
                start, end = _bounds(reading, match.start())
                if start not in judged:
                    judged[start] = _parse_sentence(reading.text, start, end)
                if _is_order(judged[start], match, step.least):
                    reason = step.reason.format(match[0][:SHOWN_CHARS])
                    shown = max(start, match.start() - SHOWN_CHARS)
                    yield reading.evidence(step.check, CERTAIN, shown, match.end(), reason)


def _is_order(sentence: Sentence, match: re.Match[str], least: int) -> bool:
    """Whether a sentence tells somebody to do what the match is about."""
    signs = sentence.signs + (sentence.ordered < match.end())
    if sentence.described <= match.start() or signs < least + sentence.is_first:
        return False
    return _REFUSED.match(match.string, match.end()) is None


def _parse_sentence(text: str, start: int, end: int) -> Sentence:
    is_first = text[max(0, start - 3) : start].strip(" ") in ("", "\n")
    sentence = _STOP.split(text[start : min(end, start + 3 * SENTENCE_CHARS)], maxsplit=1)[0]
    if _ASKED_FOR.search(sentence):
        return Sentence(start, math.inf, 0, is_first)
    described = _DESCRIBED.search(sentence)
    lead = "" if is_first else ". "
    ordered = _IMPERATIVE.search(lead + sentence)
    return Sentence(
        start + described.end() if described else math.inf,
        start + ordered.start() - len(lead) if ordered else math.inf,
        sum(sign.search(sentence) is not None for sign in _SIGNS),
        is_first,
    )


def _bounds(reading: Reading, at: int) -> tuple[int, int]:
    """Start of the sentence around a place, or of its line if that begins anew, and end of the line."""
    line, end = reading.line(at)
    first = max(line, (at - SENTENCE_CHARS) // CUT_CHARS * CUT_CHARS)
    stops = [stop.end() for stop in _STOP.finditer(reading.text, first, at)]
    start = stops[-1] if stops else first
    return start + (reading.text[start : start + 1] == " "), end
