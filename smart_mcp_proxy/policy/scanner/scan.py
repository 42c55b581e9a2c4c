"""The scan: every check's evidence, weighed together."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.policy.scanner.addresses import addresses
from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Finding, Severity
from smart_mcp_proxy.policy.scanner.hidden import hidden_text
from smart_mcp_proxy.policy.scanner.imperatives import orders
from smart_mcp_proxy.policy.scanner.passages import MOST_CHARS, passages
from smart_mcp_proxy.policy.scanner.payloads import encoded_text
from smart_mcp_proxy.policy.scanner.peers import Peers
from smart_mcp_proxy.policy.scanner.values import values
from smart_mcp_proxy.policy.scanner.wording import read, wording

__all__ = ["scan"]

MOST_FINDINGS = 20
"""More reasons than that are not read."""
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
    found = [
        *hidden_text(texts),
        *encoded_text(texts),
        *wording(reading),
        *orders(reading),
        *addresses(reading),
        *values(texts),
        *others.evidence(server, definition, reading),
    ]
    if not is_all:
        reason = f"Only the first {MOST_CHARS:,} characters were read."
        found.append(Evidence("too_long", DECISIVE, "$", reason, ""))
    return _weighed(found)


def _weighed(found: list[Evidence]) -> tuple[Finding, ...]:
    """Findings, for review where the heaviest evidence of each check adds up to something decisive."""
    heaviest: dict[str, Evidence] = {}
    for evidence in found:
        known = heaviest.get(evidence.check)
        if known is None or evidence.weight > known.weight:
            heaviest[evidence.check] = evidence
    score = sum(evidence.weight for evidence in heaviest.values())
    severity: Severity = "review" if score >= DECISIVE else "note"
    ordered = sorted(dict.fromkeys(found), key=lambda evidence: -evidence.weight)
    return tuple(
        Finding(evidence.check, severity, evidence.place, evidence.reason, evidence.excerpt)
        for evidence in ordered[:MOST_FINDINGS]
    )
