"""Log lines of a server, secrets hidden, and those among them that say why its program ended.

Runtimes write the reason first and a dump after it: stack frames, the members of the error, their own version, where a
log lies. Every line is scored; the best one is quoted with the lines that continue it, the later of two equal ones.
"""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from smart_mcp_proxy.telemetry import printable, redact

NEVER: Final = 0
LITTLE: Final = 5
_PLAIN: Final = 20
_ERROR: Final = 32
EXCEPTION: Final = 50
_UNCAUGHT: Final = 60
_LACKS: Final = 12
"""Added where the line names a setting that is missing."""

_SETTING: Final = (
    r"\b(?i:api[ _-]?keys?|tokens?|secrets?|credentials?|passwords?|(?:environment|env) var(?:iable)?s?|"
    r"options?|arguments?)\b|\b[A-Z][A-Z0-9]*_[A-Z0-9_]{2,}\b"
)
_MISSING: Final = (
    r"(?i)\b(?:required|missing|requires?|no|not (?:set|provided|found|configured|defined|specified|given)|"
    r"must (?:be|set)|unset|please (?:set|provide|specify))\b"
)

_NEVER: Final = r"""(?x)
      [\W\d_]*$                                                          # blank, a rule, a closing brace
    | (?:Node\.js\ v|Bun\ v|Deno\ )\d                                    # versions
    | \s+at\ | \s*\.\.\.\ \d+\ (?:more|lines) | \s*---\ End\ of          # frames: Node, Java, .NET
    | goroutine\ \d+\ | \[signal\  | exit\ status\ \d | created\ by\     # Go
    | \S+\(\S*\)$ | \s+\S+\.go:\d+
    | note:\ | stack\ backtrace | \s+\d+:\                               # Rust
    | (?:file://)?(?:/|[A-Z]:\\|node:)\S*:\d+(?::\d+)?$                  # the place of a line that is shown
    | Require\ stack: | \s*-\ (?:/|[A-Z]:\\)\S+$
    | \s{2,}['"\w$\[\]-]+:\ (?:['"`\[{<]|-?\d|undefined|null|true|false) # members of an error, and JSON
    | \s*["{}] | .*│
    | npm\ (?:WARN|warn|notice)\b | \((?:node|bun):\d+\)\  | \(Use\ `    # warnings
    | .*\b[A-Z]\w+Warning: | \s*warnings\.warn\( | (?:\S+\ ){0,4}\W?(?:WARN|WARNING|[Ww]arning|warn)\b
    | npm\ (?:ERR!|error)\ (?:A\ complete\ log|errno|syscall|path|log|command|Note\ that|\d{3}\s*$|\s*/)
    | (?:Exception\ ignored|Task\ exception\ was\ never|future:\ |sys:\d)
    | \s*For\ further\ information | \s*-{1,2}[A-Za-z] | \s*(?:(?:export|set)\ \w+=|\$\ )
    | (?:During\ handling\ of|The\ above\ exception\ was)
    """
"""Beginnings of lines that never say why: what surrounds a reason, and warnings."""
_LITTLE: Final = r"""(?ix)
      \W*(?:hint|help|example|examples|see|try|visit|docs|usage|options|learn\ more|for\ more|for\ help|more\ info)\b
    | \W*(?:exit(?:ing|ed)?|shutting\ down|stopp(?:ing|ed)|(?:good)?bye|terminat(?:ing|ed)|aborted)\b
    | \W*(?:installed|downloading|downloaded|resolved|prepared|building|built)\b
    | Error:\ Command\ failed\b                                           # of a wrapper, below what the program said
    | .*(?:\bexited\ with\b|\bsub-exceptions?\)$|\bEvent\ loop\ is\ closed)
    | [\w.]*(?:CancelledError|GeneratorExit|KeyboardInterrupt|SystemExit|BrokenPipeError|ClosedResourceError)\b
    | npm\ (?:ERR!|error)\ (?!code\ E|.*(?:\ -\ |not\ in|could\ not|network|no\ matching|missing|notsup|engine|error))
    """
"""Beginnings of lines that go with a reason and say little by themselves."""

_LINES: Final = 200
"""Last lines that are looked at: a crash of several chained tracebacks fits."""
_LINE_CHARS: Final = 400
_REASON_CHARS: Final = 240
_CONTINUED_LINES: Final = 10

_TERMINAL: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"
"""Colours, links and titles. Source: https://ecma-international.org/publications-and-standards/standards/ecma-48/"""
_EDGE: Final = (
    r"^\s*(?:\|(?: |$)|\+ (?=Exception Group))"  # of Python's exception groups
    r"|^\s*[├╰]─+▶\s*"  # of the causes that uv draws
    r"|^\s*[│┃╭╰╮╯─━]+ ?"  # of boxes
)
_RIGHT_EDGE: Final = " │┃╮╯─━"
_BOX: Final = ("│", "┃", "╭", "╰")
_TRACEBACK: Final = r"^\s*(?:Exception Group )?Traceback \(most recent call last\)"
_MARK: Final = r"^\s*[\^~]+\s*$"
"""Stands below a line of source that is shown."""
_CHAINED: Final = r"^(?:During handling of the above|The above exception was)"
_USAGE: Final = r"(?i)^\s*usage\b"
_FIELDS: Final = r"\bvalidation errors? for\b"
"""Head of pydantic's list of fields."""
_DETAIL: Final = r"\[type=\w+, .*$"
"""The end of each of its entries, which quotes the value."""
_BULLET: Final = r"^\s*(?:[-*•] |[├╰│])"
_OPEN: Final = (":", ",", "(", "[")
_OVER: Final = r"(?i)^(?:at |File \"|For further information|Traceback|stack backtrace|note: )"
_CAUSED: Final = ("Caused by:", "cause: ")
"""Begin the lines on which anyhow and uv write the cause."""

_KEPT_LINES: Final = 1_000
_SAID_CHARS: Final = 200
"""Characters of the last line that a server wrote."""


class Rating(NamedTuple):
    """A line as it is judged.

    Attributes:
        score: From `NEVER` on; the line with the highest says why.
        text: Of the line, or the part of it that says why.
        is_heading: Whether the next line says it.
    """

    score: int
    text: str
    is_heading: bool = False


class _Rule(NamedTuple):
    """Row of the table: score of lines that begin so; a group is quoted, not the whole line."""

    score: int
    pattern: str
    is_heading: bool = False


_TYPE: Final = r"(?:[\w$]+[.:])*[\w$]*(?:Error|Exception|Failure|Timeout|Fault|Rejection)(?:\ \[\w+\])?"

_RULES: Final = (
    _Rule(_UNCAUGHT, r"thread '.*' (?:\(\d+\) )?panicked at '(.*)', \S+$"),
    _Rule(_UNCAUGHT, r"thread '.*' (?:\(\d+\) )?panicked at ", is_heading=True),
    _Rule(_UNCAUGHT, r"(?i)\W*(?:error|uncaught|description)\W*$", is_heading=True),
    _Rule(_UNCAUGHT, r"\s*panic: (.*?)(?: \[recovered\])?$"),
    _Rule(_UNCAUGHT, r"fatal error: "),
    _Rule(_UNCAUGHT, r"\[?UnhandledPromiseRejection.* with the reason \"(.*)\""),
    _Rule(_UNCAUGHT, r"\s*[\u00d7✘✗] +(.*)"),
    _Rule(_UNCAUGHT, r"npm (?:ERR!|error) .*(?:not in this registry|could not be found|network request to)"),
    _Rule(_UNCAUGHT, r"(?:/\S*/)?(?:ba|da|z|a)?sh: |env: |exec: |.*: command not found$"),
    _Rule(EXCEPTION + 2, r"npm (?:ERR!|error) (?!code)"),
    _Rule(EXCEPTION, r"npm (?:ERR!|error) "),
    _Rule(EXCEPTION, rf"(?:Exception in thread \"[^\"]*\" |Unhandled exception[.:] )({_TYPE}\b.*)"),
    _Rule(EXCEPTION, rf"\s*(?:\[cause\]: |---> |Caused by: |Uncaught )({_TYPE}: .*)"),
    _Rule(EXCEPTION, rf"\s*({_TYPE}(?:: .*|$))"),
    _Rule(EXCEPTION, r"(?i)\S+: error: |error(?:\[\w+\])?: "),
    _Rule(EXCEPTION, r"(?i)\W*(?:fatal|critical)\b"),
    _Rule(_ERROR + 8, r"(?:\S+ ){0,6}\W?(?:ERROR|FATAL|CRITICAL|SEVERE)\b|.*\blevel=(?:error|fatal|panic)\b"),
    _Rule(_PLAIN - 5, r"(?:\S+ ){0,6}\W?(?:INFO|DEBUG|TRACE)\b|.*\blevel=(?:info|debug)\b"),
    _Rule(
        _ERROR,
        r"(?i).*\b(?:errors?|fail(?:ed|ure|s)?|cannot|can't|could not|couldn't|unable to|not found|denied|invalid|"
        r"refused|unauthorized|forbidden|no such|unsupported|abort\w*|exception|crash\w*)\b",
    ),
    _Rule(_PLAIN, r"\S"),
    _Rule(_PLAIN - 5, ""),
)
"""The first that fits counts."""
_JSON_WORDS: Final = (("msg", "message"), ("error", "err"))


def rate(line: str) -> Rating:
    """Score one line without colours and frames."""
    if re.match(_NEVER, line):
        return Rating(NEVER, line)
    if re.match(_LITTLE, line):
        return Rating(LITTLE, line)
    for rule in _RULES:
        if found := re.match(rule.pattern, line):
            text = next(filter(None, found.groups()), line)
            is_lack = not rule.is_heading and re.search(_SETTING, text) and re.search(_MISSING, text)
            return Rating(rule.score + (_LACKS if is_lack else 0), text, rule.is_heading)
    raise AssertionError("the last rule fits every line")


def _read_line(line: str) -> str:
    """A line; the message of one that is a log line in JSON."""
    is_json = line.startswith("{") and line.rstrip().endswith("}")
    return (_extract_json_message(line) if is_json else "") or line


def _extract_json_message(line: str) -> str:
    """Message of a log line in JSON, after its level; empty where it holds none."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(record, dict):
        return ""
    words = [list(filter(None, (_get_text(record.get(word)) for word in each)))[:1] for each in _JSON_WORDS]
    said = ": ".join(dict.fromkeys(itertools.chain(*words))).replace(".: ", ": ")
    level = record.get("level")
    return f"{level.upper()} {said}" if said and isinstance(level, str) else str(said)


def _get_text(value: Any) -> str:
    """A text, or the message of an error that was written as an object."""
    said = value.get("message") if isinstance(value, dict) else value
    return said if isinstance(said, str) else ""


def find_reason(lines: Iterable[str]) -> str:
    """Quote why a program ended in one line of at most 240 characters.

    Args:
        lines: Of its stderr, oldest first, secrets hidden.

    Returns:
        The quote; empty where nothing but warnings, stack frames and the like was written.
    """
    plain = [re.sub(_TERMINAL, "", _read_line(line)[:_LINE_CHARS]).rstrip() for line in lines][-_LINES:]
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
    source = {number - 1 for number, line in enumerate(lines) if number and re.match(_MARK, line)}
    traceback_depth: int | None = None
    is_usage = False
    for number, line in enumerate(lines):
        text = re.sub(_EDGE, "", line).rstrip(_RIGHT_EDGE)
        rating = rate(text)
        if re.match(_TRACEBACK, text):
            traceback_depth, is_usage = _depth(text), False
            yield Rating(NEVER, text)
        elif number in source or (traceback_depth is not None and _is_inside(line, text, traceback_depth)):
            yield Rating(NEVER, text)
        elif traceback_depth is not None:
            traceback_depth = None
            # The exception, whatever its class is called.
            yield rating if rating.score <= LITTLE else rating._replace(score=max(rating.score, EXCEPTION))
        else:
            is_usage = (is_usage and rating.score < EXCEPTION) or bool(re.match(_USAGE, text))
            yield rating._replace(score=min(rating.score, LITTLE)) if is_usage else rating


def _is_inside(line: str, text: str, traceback_depth: int) -> bool:
    """Whether a line belongs to the frames of a traceback."""
    return not text.strip() or line.lstrip().startswith(_BOX) or _depth(text) > traceback_depth


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- the quote


def _quote(lines: Sequence[str], rated: Sequence[Rating], number: int) -> str:
    """The line of this number with those that continue it."""
    rating = rated[number]
    words = [] if rating.is_heading else [re.sub(_DETAIL, "", rating.text).strip().removesuffix(" {")]
    is_list, is_block = bool(re.search(_FIELDS, rating.text)), False
    is_open = rating.is_heading or words[-1].endswith(_OPEN)
    for after in range(number + 1, min(number + 1 + _CONTINUED_LINES, len(lines))):
        line, text = lines[after], rated[after].text.strip()
        if not text and (is_open or any(next_one.startswith(_CAUSED) for next_one in lines[after + 1 : after + 2])):
            continue
        is_part = bool(re.match(_BULLET, line)) or text.startswith(_CAUSED)
        is_more = is_open or is_list or is_part or (is_block and line.startswith((" ", "\t")))
        if not text or not is_more or re.match(_OVER, text):
            break
        is_block = is_block or is_part or (is_open and bool(words))
        words.append(re.sub(_DETAIL, "", text).strip())
        is_open = text.endswith(_OPEN)
    return " ".join(words)


def _cause(rated: Sequence[Rating], number: int) -> str:
    """The exception during whose handling that of this line was raised; empty without one."""
    texts = (rating.text for rating in rated)
    chained = [at for at, text in enumerate(texts) if at < number and re.match(_CHAINED, text)]
    if not chained:
        return ""
    before = (rated[at] for at in reversed(range(chained[-1])) if rated[at].score >= EXCEPTION)
    return next((re.sub(_DETAIL, "", rating.text).strip() for rating in before), "")


class ServerLog:
    """The last 1,000 lines of one server, over all its connections.

    Attributes:
        last_said: What it wrote last on its present connection, in one short line.
        mark: Number of lines so far that may tell why something failed.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.mark = self._began = 0
        self.last_said = ""

    def begin(self) -> None:
        """Start with a new connection, whose end what was written before does not explain."""
        self._began, self.last_said = self.mark, ""

    def add(self, text: str, *, is_said: bool) -> None:
        """Keeps a line.

        Args:
            text: As the server wrote it; secrets are hidden now, because later those in use are other ones.
            is_said: Whether it may tell why a connection ends.
        """
        text = redact(text)
        self._lines.append(text)
        if is_said:
            self.mark += 1
            self.last_said = printable(text.strip()[:_SAID_CHARS]) or self.last_said

    def reason(self, mark: int | None = None) -> str:
        """Why something failed after `mark`, or the connection ended, as the server wrote it: one short line."""
        began = self._began if mark is None else mark
        return printable(find_reason(self.last(self.mark - began)))

    def last_connection(self) -> list[str]:
        """The lines of its present connection, oldest first."""
        return self.last(self.mark - self._began)

    def last(self, count: int) -> list[str]:
        """The last lines, oldest first."""
        return list(itertools.islice(self._lines, max(0, len(self._lines) - count), None))
