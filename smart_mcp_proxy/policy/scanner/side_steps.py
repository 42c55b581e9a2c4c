"""Steps beside a tool's purpose that an agent is told to take: dangerous commands, keys to read, acts for others."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.findings import Evidence
from smart_mcp_proxy.policy.scanner.rules.rule_files import CERTAIN, RuleFile, Words
from smart_mcp_proxy.policy.scanner.wording import STORES, Reading

__all__ = ["side_steps"]

SENTENCE_CHARS = 200
"""As far as a sentence is looked at, before what it is about and behind it."""
SHOWN_CHARS = 60
_RULES = RuleFile("side_steps")
_IMPERATIVE, _ORDER = map(_RULES.expression, ("imperative", "order"))
_DESCRIBED, _REFUSED = map(_RULES.expression, ("described", "refused"))
_STOP = re.compile(r"(?<!\be\.g)[.!?] |\n")


class Step(NamedTuple):
    """A kind of step.

    Attributes:
        check: Name of its findings.
        reason: Of a finding, with a place for what the step is about.
        about: Words for what it is about.
    """

    check: str
    reason: str
    about: tuple[Words, ...]


STEPS = (
    Step(
        "command",
        "The agent is told to run a command that destroys, opens up or fetches: '{}'.",
        _RULES.words("command"),
    ),
    Step(
        "keys",
        "The agent is told to read or pass on what holds keys or passwords: '{}'.",
        (*STORES, *_RULES.words("store")),
    ),
    Step("act", "The agent is told to do something else beside the tool's purpose: '{}'.", _RULES.words("action")),
)


def side_steps(reading: Reading) -> Iterator[Evidence]:
    """Evidence of orders to take such a step; what only describes or warns of one is none."""
    for step in STEPS:
        for words in reading.may_say(step.about):
            for match in reading.find(words):
                start = _start(reading, match)
                if _is_order(reading.text, start, match):
                    reason = step.reason.format(match[0][:SHOWN_CHARS])
                    shown = max(start, match.start() - SHOWN_CHARS)
                    yield reading.evidence(step.check, CERTAIN, shown, match.end(), reason)


def _is_order(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence from `start` tells somebody to do what the match is about.

    The first sentence of a text says what the tool does, so there an order has to say when as well.
    """
    lead = text[start : match.start()]
    rest = _STOP.split(text[match.end() : match.end() + SENTENCE_CHARS], maxsplit=1)[0]
    if _DESCRIBED.search(lead) or _REFUSED.search(rest):
        return False
    if text[max(0, start - 3) : start].strip(" ") not in ("", "\n"):
        return _IMPERATIVE.search(f". {lead}{match[0]}") is not None
    return _IMPERATIVE.search(lead + match[0]) is not None and _ORDER.search(lead + rest) is not None


def _start(reading: Reading, match: re.Match[str]) -> int:
    """Start of the sentence in which a match stands, or of its line if that begins anew."""
    first = max(reading.line_start(match.start()), match.start() - SENTENCE_CHARS)
    stops = [stop.end() for stop in _STOP.finditer(reading.text, first, match.start())]
    start = stops[-1] if stops else first
    return start + (reading.text[start : start + 1] == " ")
