"""The scan: every check's evidence, weighed together."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from smart_mcp_proxy.policy.scanner.addresses import addresses
from smart_mcp_proxy.policy.scanner.classifier import Verdict, classify
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Finding, Passage, Severity
from smart_mcp_proxy.policy.scanner.hidden import find_hidden_text
from smart_mcp_proxy.policy.scanner.payloads import find_encoded_text
from smart_mcp_proxy.policy.scanner.peers import Peers
from smart_mcp_proxy.policy.scanner.side_steps import side_steps
from smart_mcp_proxy.policy.scanner.values import values
from smart_mcp_proxy.policy.scanner.wording import Reading, find_suspect_wording

MOST_CHARS = 100_000
"""More text than any real definition has (the longest of 4,975: 36,082); the rest is not read, and that is said."""
MOST_DEPTH = 64
"""More levels than any real one has (the deepest of 6,797: 20); what is below is not read, and that is said."""
_KEY_CHARS = 60
"""Characters of a key that a place shows: it stands in the places of all that is below it."""
_PLAIN_KEY = re.compile(rf"[A-Za-z_$][\w$-]{{0,{_KEY_CHARS - 1}}}", re.ASCII)
_PLAIN_VALUES = (bool, int, float, type(None))
_SCHEMA_WORDS = frozenset(
    re.findall(
        r"[\w$]+",
        """type properties required description title items enum default examples const format anyOf oneOf allOf $ref
        $defs definitions additionalProperties minimum maximum minLength maxLength pattern minItems maxItems $schema
        inputSchema outputSchema annotations name icons _meta src mimeType sizes readOnlyHint destructiveHint
        idempotentHint openWorldHint""",
    )
)
"""Keys that the protocol and JSON Schema give; what is written in them says nothing of the server."""

MOST_FINDINGS = 20
"""More reasons than that are not read."""
MOST_WORDS = 2.0
"""Most weight of all phrases together: long honest texts have some of many."""
_NO_PEERS = Peers()


def passages(definition: Mapping[str, Any]) -> tuple[tuple[Passage, ...], bool]:
    """The strings of a definition, keys of the server's own included, and whether that is all of them."""
    found: list[Passage] = []
    is_all = _read("$", definition, MOST_CHARS, MOST_DEPTH, found) >= 0
    return tuple(found), is_all


def _read(place: str, value: Any, room: int, depth: int, found: list[Passage]) -> int:
    """Read an object or array; returns the characters left to read, negative if none.

    What is too deep takes all of it.

    Args:
        place: Of the value.
        value: Read into `found`, keys of the server's own before their values; anything else holds nothing.
        room: Characters.
        depth: Of objects and arrays that are read.
        found: All strings so far.
    """
    for below, inner in _members(place, value):
        if isinstance(inner, str):
            room -= len(inner)
            if room >= 0:
                found.append(Passage(below, inner))
        elif not isinstance(inner, _PLAIN_VALUES):
            room = _read(below, inner, room, depth - 1, found) if depth > 1 else -1
        if room < 0:
            break
    return room


def _members(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, Mapping)):
        for key, inner in value.items():
            if key in _SCHEMA_WORDS:
                yield f"{place}.{key}", inner
                continue
            below = f"{place}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{place}[{ascii(key)[:_KEY_CHARS]}]"
            yield below + "~", key
            yield below, inner
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield f"{place}[{position}]", inner


def scan(server: str, definition: Mapping[str, Any], others: Peers = _NO_PEERS) -> tuple[Finding, ...]:
    """Why a tool's definition should be read by a person, gravest first; empty if nothing speaks for that.

    Nothing found is no proof of anything: it is an aid for whoever approves definitions.

    Args:
        server: Configured name of the tool's server.
        definition: The definition as the server sent it.
        others: The tools that agents see beside it.
    """
    texts, is_all = passages(definition)
    reading = Reading(texts)
    shown = [
        *find_hidden_text(texts),
        *find_encoded_text(texts),
        *values(texts),
        *others.evidence(server, definition, reading),
    ]
    if not is_all:
        reason = f"Only its first {MOST_CHARS:,} characters, and {MOST_DEPTH} levels, were read."
        shown.append(Evidence("too_long", DECISIVE, "$", reason, ""))
    return _findings(
        shown, [*find_suspect_wording(reading), *side_steps(reading), *addresses(reading)], classify(reading)
    )


def _findings(shown: list[Evidence], words: list[Evidence], whole: Verdict) -> tuple[Finding, ...]:
    """Weigh evidence into findings, gravest first, with those that need review marked."""
    plain = _weight(shown)
    score = plain + min(MOST_WORDS, _weight(words)) + whole.weight
    severity: Severity = "review" if max(plain, score) >= DECISIVE else "note"
    ordered = [*sorted(dict.fromkeys([*shown, *words]), key=lambda evidence: -evidence.weight), *whole.evidence]
    return tuple(
        Finding(evidence.check, severity, evidence.place, evidence.reason, evidence.excerpt)
        for evidence in ordered[:MOST_FINDINGS]
    )


def _weight(found: list[Evidence]) -> float:
    """Add up the weights of the heaviest evidence of each check."""
    heaviest: dict[str, float] = {}
    for evidence in found:
        heaviest[evidence.check] = max(evidence.weight, heaviest.get(evidence.check, 0))
    return math.fsum(heaviest.values())
