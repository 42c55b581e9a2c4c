"""Encoded text in definitions, decoded however deep and checked like plain text."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.addresses import addresses
from smart_mcp_proxy.policy.scanner.encodings import ENCODINGS, MOST_DECODED, Encoding, find_ciphers, readable
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, escape_unsafe
from smart_mcp_proxy.policy.scanner.rules.rule_files import MIDDLE
from smart_mcp_proxy.policy.scanner.wording import Reading, find_suspect_wording

READABLE_WEIGHT = 0.3
_DEPTH = 3
"""Encodings inside each other that are followed."""
_MOST_RUNS = 50
"""Readable runs that are looked at; no honest definition has so many."""
_MOST_TEXT = 2 * MOST_DECODED
"""Characters of all of them together."""
_LEAST_ENCODED_CHARS = 12
_HIDDEN_LETTERS = 4
"""Letters in escapes, which need none: fewer may be an example of an escape."""
_SENTENCE = re.compile(r"\b(?:[A-Za-z][a-z']{0,20}[,;:]? ){4}[a-z]")
_ICON = "$.icons["
_DRAWING = re.compile(r"<svg\s(?:[^<>]*>\s*<)*[^<>]*>\s*")
"""Picture that shows no letter: icons are written so."""
_PRINTED_CHARS = 120
_COMMAND = re.compile(
    r"\b(?:curl|wget|nc|ncat|netcat|bash|zsh|powershell|pwsh|chmod|chown|sudo|eval|exec|scp|ssh|nohup|crontab|mkfifo|"
    r"osascript|certutil|invoke-webrequest|iex|base64|rm\s+-[rf]+|del\s+/|format\s+c:|os\.system|subprocess|__import__|"
    r"python[23]?\s+-c|node\s+-e|perl\s+-e)\b|/bin/(?:ba|z|da)?sh\b|/dev/tcp/|\|\s*(?:ba|z)?sh\b|"
    r"~/\.|/etc/(?:passwd|shadow)|id_(?:rsa|ed25519)|\.env\b|<script|javascript:|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"https?://(?!(?:www\.w3\.org|ns\.adobe\.com|www\.inkscape\.org|sodipodi\.sourceforge\.net|purl\.org/dc|"
    r"creativecommons\.org)/)",
    re.IGNORECASE,
)
"""Address that leads somewhere; not the names of vocabularies, of which every picture of an icon has one or more."""
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|send|upload|forward|exfiltrat\w*|reveal|leak|steal|delete|execute|"
    r"run|call|read|instructions?|system|prompt|password\w*|credentials?|secrets?|tokens?|api.?keys?|user|tool|admin|"
    r"attacker|do not|don't|must|always|never)\b",
    re.IGNORECASE,
)


class _Said(NamedTuple):
    """Decoded text of an encoded run.

    Attributes:
        place: JSON path.
        kind: Name of the innermost encoding.
        text: Decoded.
        is_hidden: Whether nobody can read it as it stands, unlike a blank or a quotation mark in an address.
        is_whole: Whether all of the string was decoded, its plain parts too: then it says something or nothing.
    """

    place: str
    kind: str
    text: str
    is_hidden: bool
    is_whole: bool = False


def find_encoded_text(passages: tuple[Passage, ...]) -> Iterator[Evidence]:
    """Evidence of encoded text in the passages: decisive where it is an order or a command."""
    whole = "\n".join([passage.text for passage in passages])
    unbroken = " ".join([word for word in whole.split() if len(word) >= _LEAST_ENCODED_CHARS])
    kinds = [kind for kind in ENCODINGS if _is_there(kind, whole if kind.may_be_spaced else unbroken)]
    ciphers = find_ciphers(whole)
    if not kinds and not ciphers:
        return
    found, room = dict[_Said, None](), _MOST_TEXT
    for passage in passages:
        if len(passage.text) < _LEAST_ENCODED_CHARS:
            continue
        for name, decode in ciphers:
            found[_Said(passage.place, name, decode(passage.text), True, True)] = None
        for said in _decode_runs(passage.place, passage.text, _DEPTH, kinds):
            room -= 0 if said in found else len(said.text)
            if room < 0 or len(found) >= _MOST_RUNS:
                reason = "It holds more encoded text than was read."
                yield Evidence("encoded_text", DECISIVE, passage.place, reason, "")
                yield from _weigh_texts(tuple(found))
                return
            found[said] = None
    yield from _weigh_texts(tuple(found))


def _is_there(kind: Encoding, text: str) -> bool:
    """Return whether there is something to read; no run is read that may go on in the next string."""
    if not text or not kind.is_possible(text):
        return False
    if kind.may_be_spaced:
        return kind.pattern.search(text) is not None
    return any(readable(kind.decode(run)) for run in dict.fromkeys(kind.pattern.findall(text)))


def _decode_runs(place: str, text: str, depth: int, kinds: Sequence[Encoding]) -> Iterator[_Said]:
    """Yield the text of every encoded run, runs inside runs included."""
    for kind in kinds:
        if not kind.is_possible(text):
            continue
        for match in kind.pattern.finditer(text):
            run = match[0]
            if kind.escape is not None:
                # A word whose middle is escaped begins before it.
                begin = max(text.rfind(" ", 0, match.start()) + 1, match.start() - _LEAST_ENCODED_CHARS)
                run = text[begin : match.end()]
            said = readable(kind.decode(run))
            if said and said != run:
                inner = list(_decode_runs(place, said, depth - 1, ENCODINGS)) if depth > 1 else []
                yield from inner or [_Said(place, kind.name, said, _hides(kind, run, said))]


def _hides(kind: Encoding, run: str, said: str) -> bool:
    """Whether letters are hidden, and not only the marks that an encoding has to hide."""
    if kind.escape is None:
        return True
    return _letters(said) - _letters(kind.escape.sub("", run)) >= _HIDDEN_LETTERS


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _weigh_texts(found: Sequence[_Said]) -> Iterator[Evidence]:
    if not found:
        return
    reading = Reading([Passage(str(number), said.text) for number, said in enumerate(found)])
    worst = [0.0] * len(found)
    for evidence in (*find_suspect_wording(reading), *addresses(reading)):
        number = int(evidence.place)
        worst[number] = max(worst[number], evidence.weight)
    for said, weight in zip(found, worst, strict=True):
        yield from _evidence(said, weight)


def _evidence(said: _Said, weight: float) -> Iterator[Evidence]:
    """Evidence of one run whose words alone would weigh this much."""
    shown = escape_unsafe(said.text)[:_PRINTED_CHARS]
    if weight >= (MIDDLE if said.is_hidden else DECISIVE) or _is_order(said.text):
        yield Evidence("encoded_text", DECISIVE, said.place, f"Words to the agent are hidden as {said.kind}.", shown)
    elif _is_command(said):
        reason = f"A command or an address is hidden as {said.kind}."
        yield Evidence("encoded_text", DECISIVE, said.place, reason, shown)
    elif said.is_hidden and not said.is_whole:
        is_sentence = _SENTENCE.search(said.text) is not None
        if is_sentence or not said.place.startswith(_ICON) or _DRAWING.fullmatch(said.text) is None:
            weight = DECISIVE if is_sentence else READABLE_WEIGHT
            yield Evidence("encoded_text", weight, said.place, f"Readable text is written as {said.kind}.", shown)


def _is_order(text: str) -> bool:
    return len(set(map(str.lower, _ORDER.findall(text)))) >= 2


def _is_command(said: _Said) -> bool:
    """Whether it runs something or leads somewhere. Numbers backwards are numbers."""
    commands = _COMMAND.finditer(said.text)
    if said.is_whole:
        return any(match[0][0].isalpha() for match in commands)
    return any(True for _ in commands) or (said.is_hidden and _ADDRESS.search(said.text) is not None)
