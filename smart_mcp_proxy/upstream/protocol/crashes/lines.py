"""Scores of single lines of stderr: how likely each says why its program ended."""

import re
from typing import Final, NamedTuple

import msgspec

NEVER: Final = 0
LITTLE: Final = 5
_PLAIN: Final = 20
_ERROR: Final = 32
EXCEPTION: Final = 50
_UNCAUGHT: Final = 60
_LACKS: Final = 12
"""Added where the line names a setting that is missing."""

_SETTING: Final = re.compile(
    r"\b(?i:api[ _-]?keys?|tokens?|secrets?|credentials?|passwords?|(?:environment|env) var(?:iable)?s?|"
    r"options?|arguments?)\b|\b[A-Z][A-Z0-9]*_[A-Z0-9_]{2,}\b"
)
_MISSING: Final = re.compile(
    r"\b(?:required|missing|requires?|no|not (?:set|provided|found|configured|defined|specified|given)|"
    r"must (?:be|set)|unset|please (?:set|provide|specify))\b",
    re.I,
)

_NEVER: Final = re.compile(
    r"""
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
    """,
    re.VERBOSE,
)
"""Beginnings of lines that never say why: what surrounds a reason, and warnings."""
_LITTLE: Final = re.compile(
    r"""
      \W*(?:hint|help|example|examples|see|try|visit|docs|usage|options|learn\ more|for\ more|for\ help|more\ info)\b
    | \W*(?:exit(?:ing|ed)?|shutting\ down|stopp(?:ing|ed)|(?:good)?bye|terminat(?:ing|ed)|aborted)\b
    | \W*(?:installed|downloading|downloaded|resolved|prepared|building|built)\b
    | .*(?:\bexited\ with\b|\bsub-exceptions?\)$|\bEvent\ loop\ is\ closed)
    | [\w.]*(?:CancelledError|GeneratorExit|KeyboardInterrupt|SystemExit|BrokenPipeError|ClosedResourceError)\b
    | npm\ (?:ERR!|error)\ (?!code\ E|.*(?:\ -\ |not\ in|could\ not|network|no\ matching|missing|notsup|engine|error))
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Beginnings of lines that go with a reason and say little by themselves."""


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
    pattern: re.Pattern[str]
    is_heading: bool = False


_TYPE: Final = r"(?:[\w$]+[.:])*[\w$]*(?:Error|Exception|Failure|Timeout|Fault|Rejection)(?:\ \[\w+\])?"

_RULES: Final = (
    _Rule(_UNCAUGHT, re.compile(r"thread '.*' (?:\(\d+\) )?panicked at '(.*)', \S+$")),
    _Rule(_UNCAUGHT, re.compile(r"thread '.*' (?:\(\d+\) )?panicked at "), is_heading=True),
    _Rule(_UNCAUGHT, re.compile(r"\W*(?:error|uncaught|description)\W*$", re.I), is_heading=True),
    _Rule(_UNCAUGHT, re.compile(r"\s*panic: (.*?)(?: \[recovered\])?$")),
    _Rule(_UNCAUGHT, re.compile(r"fatal error: ")),
    _Rule(_UNCAUGHT, re.compile(r"\[?UnhandledPromiseRejection.* with the reason \"(.*)\"")),
    _Rule(_UNCAUGHT, re.compile(r"\s*[\u00d7✘✗] +(.*)")),
    _Rule(
        _UNCAUGHT, re.compile(r"npm (?:ERR!|error) .*(?:not in this registry|could not be found|network request to)")
    ),
    _Rule(_UNCAUGHT, re.compile(r"(?:/\S*/)?(?:ba|da|z|a)?sh: |env: |exec: |.*: command not found$")),
    _Rule(EXCEPTION + 2, re.compile(r"npm (?:ERR!|error) (?!code)")),
    _Rule(EXCEPTION, re.compile(r"npm (?:ERR!|error) ")),
    _Rule(EXCEPTION, re.compile(rf"(?:Exception in thread \"[^\"]*\" |Unhandled exception[.:] )({_TYPE}\b.*)")),
    _Rule(EXCEPTION, re.compile(rf"\s*(?:\[cause\]: |---> |Caused by: |Uncaught )({_TYPE}: .*)")),
    _Rule(EXCEPTION, re.compile(rf"\s*({_TYPE}(?:: .*|$))")),
    _Rule(EXCEPTION, re.compile(r"\S+: error: |error(?:\[\w+\])?: ", re.I)),
    _Rule(EXCEPTION, re.compile(r"\W*(?:fatal|critical)\b", re.I)),
    _Rule(
        _ERROR + 8, re.compile(r"(?:\S+ ){0,6}\W?(?:ERROR|FATAL|CRITICAL|SEVERE)\b|.*\blevel=(?:error|fatal|panic)\b")
    ),
    _Rule(_PLAIN - 5, re.compile(r"(?:\S+ ){0,6}\W?(?:INFO|DEBUG|TRACE)\b|.*\blevel=(?:info|debug)\b")),
    _Rule(
        _ERROR,
        re.compile(
            r".*\b(?:errors?|fail(?:ed|ure|s)?|cannot|can't|could not|couldn't|unable to|not found|denied|invalid|"
            r"refused|unauthorized|forbidden|no such|unsupported|abort\w*|exception|crash\w*)\b",
            re.I,
        ),
    ),
    _Rule(_PLAIN, re.compile(r"\S")),
    _Rule(_PLAIN - 5, re.compile("")),
)
"""The first that fits counts."""
_JSON_WORDS: Final = ("msg", "message", "error", "err")


def rate(line: str) -> Rating:
    """Score one line without colours and frames; a log line in JSON by the message in it."""
    if line.startswith("{") and line.endswith("}"):
        line = _extract_json_message(line) or line
    if _NEVER.match(line):
        return Rating(NEVER, line)
    if _LITTLE.match(line):
        return Rating(LITTLE, line)
    for rule in _RULES:
        if found := rule.pattern.match(line):
            text = next(filter(None, found.groups()), line)
            is_lack = not rule.is_heading and _SETTING.search(text) and _MISSING.search(text)
            return Rating(rule.score + (_LACKS if is_lack else 0), text, rule.is_heading)
    raise AssertionError("the last rule fits every line")


def _extract_json_message(line: str) -> str:
    """Message of a log line in JSON, after its level; empty where it holds none."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(record, dict):
        return ""
    said = next((record[word] for word in _JSON_WORDS if isinstance(record.get(word), str)), "")
    level = record.get("level")
    return f"{level.upper()} {said}" if said and isinstance(level, str) else str(said)
