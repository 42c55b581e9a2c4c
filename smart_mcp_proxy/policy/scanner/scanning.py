"""The scan: every check's evidence, weighed together."""

import math
from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.policy.scanner.addresses import addresses
from smart_mcp_proxy.policy.scanner.classifier import Verdict, classify
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Finding, Severity
from smart_mcp_proxy.policy.scanner.hidden import find_hidden_text
from smart_mcp_proxy.policy.scanner.passages import MOST_CHARS, MOST_DEPTH, passages
from smart_mcp_proxy.policy.scanner.payloads import find_encoded_text
from smart_mcp_proxy.policy.scanner.peers import Peers
from smart_mcp_proxy.policy.scanner.side_steps import side_steps
from smart_mcp_proxy.policy.scanner.values import values
from smart_mcp_proxy.policy.scanner.wording import find_suspect_wording, read

MOST_FINDINGS = 20
"""More reasons than that are not read."""
MOST_WORDS = 2.0
"""Of all phrases together: long honest texts have some of many."""
_NO_PEERS = Peers()


def scan(server: str, definition: Mapping[str, Any], others: Peers = _NO_PEERS) -> tuple[Finding, ...]:
    """Why a tool's definition should be read by a person, gravest first; empty if nothing speaks for that.

    Nothing found is no proof of anything: it is an aid for whoever approves definitions.

    Args:
        server: Configured name of the tool's server.
        definition: The definition as the server sent it.
        others: The tools that agents see beside it.
    """
    texts, is_all = passages(definition)
    reading = read(texts)
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
