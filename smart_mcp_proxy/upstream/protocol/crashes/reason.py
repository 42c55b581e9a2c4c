"""Choice of the words that say why a program ended, among the last lines that it wrote.

Runtimes write the reason first and a dump after it: stack frames, the members of the error, their own version, where a
log lies. Every line is scored; the best one is quoted with the lines that continue it, the later of two equal ones.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from smart_mcp_proxy.upstream.protocol.crashes.lines import EXCEPTION, LITTLE, NEVER, Rating, rate

_LINES: Final = 200
"""So many of the last lines are looked at: a crash of several chained tracebacks fits."""
_LINE_CHARS: Final = 400
_REASON_CHARS: Final = 240
_CONTINUED_LINES: Final = 10

_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, links and titles. Source: https://ecma-international.org/publications-and-standards/standards/ecma-48/"""
_EDGE: Final = re.compile(
    r"^\s*(?:\|(?: |$)|\+ (?=Exception Group))"  # of Python's exception groups
    r"|^\s*[├╰]─+▶\s*"  # of the causes that uv draws
    r"|^\s*[│┃╭╰╮╯─━]+ ?"  # of boxes
)
_RIGHT_EDGE: Final = " │┃╮╯─━"
_BOX: Final = ("│", "┃", "╭", "╰")
_TRACEBACK: Final = re.compile(r"^\s*(?:Exception Group )?Traceback \(most recent call last\)")
_MARK: Final = re.compile(r"^\s*[\^~]+\s*$")
"""Stands below a line of source that is shown."""
_CHAINED: Final = re.compile(r"^(?:During handling of the above|The above exception was)")
_USAGE: Final = re.compile(r"^\s*usage\b", re.I)
_FIELDS: Final = re.compile(r"\bvalidation errors? for\b")
"""Head of pydantic's list of fields."""
_DETAIL: Final = re.compile(r"\[type=\w+, .*$")
"""The end of each of its entries, which quotes the value."""
_BULLET: Final = re.compile(r"^\s*(?:[-*•] |[├╰│])")
_OPEN: Final = (":", ",", "(", "[")
_OVER: Final = re.compile(r"^(?:at |File \"|For further information|Traceback|stack backtrace|note: )", re.I)
_CAUSED: Final = ("Caused by:", "cause: ")
"""Begin the lines on which anyhow and uv write the cause."""


def find_reason(lines: Iterable[str]) -> str:
    """Quote why a program ended in one line of at most 240 characters.

    Args:
        lines: Of its stderr, oldest first, secrets hidden.

    Returns:
        The quote; empty where nothing but warnings, stack frames and the like was written.
    """
    plain = [_TERMINAL.sub("", line[:_LINE_CHARS]).rstrip() for line in lines][-_LINES:]
    rated = list(_rate_lines(plain))
    best, best_weight, distance = -1, NEVER, 0
    for number in reversed(range(len(rated))):
        score = rated[number].score
        # What stands far above belongs to the work before; what is part of a dump or of a paragraph makes no distance.
        if score > NEVER and score - distance > best_weight:
            best, best_weight = number, score - distance
        distance += score > LITTLE and not plain[number].startswith((" ", "\t"))
    if best < 0:
        return ""
    reason = _quote(plain, rated, best)
    before = _cause(rated, best)
    if before and before not in reason and len(reason) + len(before) + 9 <= _REASON_CHARS:
        reason = f"{reason} (after {before})"
    return reason if len(reason) <= _REASON_CHARS else reason[: _REASON_CHARS - 4] + " ..."


# --- scores in their surroundings


def _rate_lines(lines: Sequence[str]) -> Iterator[Rating]:
    """Rate every line; those of a traceback and of a usage text by where they stand."""
    source = _source_lines(lines)
    traceback_depth: int | None = None
    is_usage = False
    for number, line in enumerate(lines):
        text = _EDGE.sub("", line).rstrip(_RIGHT_EDGE)
        rating = rate(text)
        if _TRACEBACK.match(text):
            traceback_depth, is_usage = _depth(text), False
            yield Rating(NEVER, text)
        elif number in source or (traceback_depth is not None and _is_inside(line, text, traceback_depth)):
            yield Rating(NEVER, text)
        elif traceback_depth is not None:
            traceback_depth = None
            # The exception, whatever its class is called.
            yield rating if rating.score <= LITTLE else rating._replace(score=max(rating.score, EXCEPTION))
        else:
            is_usage = (is_usage and rating.score < EXCEPTION) or bool(_USAGE.match(text))
            yield rating._replace(score=min(rating.score, LITTLE)) if is_usage else rating


def _is_inside(line: str, text: str, traceback_depth: int) -> bool:
    """Whether a line belongs to the frames of a traceback."""
    return not text.strip() or line.lstrip().startswith(_BOX) or _depth(text) > traceback_depth


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _source_lines(lines: Sequence[str]) -> set[int]:
    """Numbers of lines that show source, which stand above a mark."""
    return {number - 1 for number, line in enumerate(lines) if number and _MARK.match(line)}


# --- the quote


def _quote(lines: Sequence[str], rated: Sequence[Rating], number: int) -> str:
    """The line of this number with those that continue it."""
    rating = rated[number]
    words = [] if rating.is_heading else [_DETAIL.sub("", rating.text).strip().removesuffix(" {")]
    is_list, is_block = bool(_FIELDS.search(rating.text)), False
    is_open = rating.is_heading or words[-1].endswith(_OPEN)
    for after in range(number + 1, min(number + 1 + _CONTINUED_LINES, len(lines))):
        line, text = lines[after], rated[after].text.strip()
        if not text and (is_open or any(next_one.startswith(_CAUSED) for next_one in lines[after + 1 : after + 2])):
            continue
        is_part = bool(_BULLET.match(line)) or text.startswith(_CAUSED)
        is_more = is_open or is_list or is_part or (is_block and line.startswith((" ", "\t")))
        if not text or not is_more or _OVER.match(text):
            break
        is_block = is_block or is_part or (is_open and bool(words))
        words.append(_DETAIL.sub("", text).strip())
        is_open = text.endswith(_OPEN)
    return " ".join(words)


def _cause(rated: Sequence[Rating], number: int) -> str:
    """The exception during whose handling that of this line was raised; empty without one."""
    texts = (rating.text for rating in rated)
    chained = [at for at, text in enumerate(texts) if at < number and _CHAINED.match(text)]
    if not chained:
        return ""
    before = (rated[at] for at in reversed(range(chained[-1])) if rated[at].score >= EXCEPTION)
    return next((_DETAIL.sub("", rating.text).strip() for rating in before), "")
