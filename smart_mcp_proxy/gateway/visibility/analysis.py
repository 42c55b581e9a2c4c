"""The scanner's analysis in a refusal of what waits for its user, and no word of a definition."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final

from smart_mcp_proxy.catalog import Snapshot
from smart_mcp_proxy.errors import QuarantinedError
from smart_mcp_proxy.gateway.shared.definition_scan import collect_peers, scan_record
from smart_mcp_proxy.gateway.visibility.visibility_rules import Rules
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.names import parse_canonical

READ_LIMIT: Final = 100
"""Definitions of a quarantined server that are read at most for one refusal."""
SHOWN: Final = 3
"""Findings in the message; `data` has all."""


def with_analysis(
    refusal: QuarantinedError, snapshot: Snapshot, rules: Rules, beside: Collection[ToolRecord]
) -> QuarantinedError:
    """A refusal that says what the scanner finds in what waits, as far as its definitions are known.

    A definition that nobody approved may be an attack on the agent that reads the refusal: of findings it gets the
    sentences without quotations, and the first step of the path. The definitions are compared with the tools that the
    caller sees anyway, so that no sentence speaks of one that does not exist for it.

    Args:
        refusal: Of one tool, or of a whole server, as its `data` says.
        snapshot: Holds what waits.
        rules: What the caller may know of.
        beside: The tools that the caller sees.
    """
    data = dict(refusal.data or {})
    waiting = _find_refused_records(data, snapshot, rules)
    if "tool" in data and not waiting:  # approved a moment ago
        return refusal
    peers = collect_peers(beside)
    scanned = [scan_record(record, peers) for record in waiting[:READ_LIMIT]]
    findings = tuple(dict.fromkeys(finding.summary for finding in chain.from_iterable(scanned)))
    doubted = sum(any(finding.severity == "review" for finding in found) for found in scanned)
    if "tool" in data:
        data["digest"] = waiting[0].digest
        subject = f"The scanner, of the definition that waits ({waiting[0].digest})"
    else:
        data["definitions"] = len(waiting)
        subject = _describe_stored(len(waiting), len(scanned))
    explained = copy(refusal)
    explained.data = data | {"review": doubted > 0, "findings": list(findings)}
    explained.message = f"{refusal.message} {subject}{_describe_findings(findings, doubted, len(scanned))}"
    return explained


def _find_refused_records(data: Mapping[str, Any], snapshot: Snapshot, rules: Rules) -> list[ToolRecord]:
    """The definition of the tool that a refusal names, or all that are stored of its server, by name."""
    if (key := parse_canonical(data.get("tool", ""))) is not None:
        return [snapshot.withheld[key].record] if key in snapshot.withheld else []
    server = data.get("server", "")
    withheld = (each.record for each in snapshot.withheld.values() if each.record.key.server == server)
    known = (*snapshot.by_server.get(server, ()), *withheld)
    return sorted((each for each in known if rules.allows(*each.key)), key=lambda record: record.key)


def _describe_stored(count: int, read: int) -> str:
    if not count:
        return "Nothing is known of its definitions, so there is no analysis of them"
    part = f", read the first {read}" if read < count else ""
    return f"The scanner, of {count} definitions stored under its name from earlier{part}"


def _describe_findings(findings: Sequence[str], doubted: int, read: int) -> str:
    if not read:
        return "."
    if not findings:
        return ": nothing found, which proves nothing."
    of = f" {doubted} of them" if read > 1 else ""
    advice = f" a person should read{of or ' it'} first." if doubted else ""
    more = f" +{len(findings) - SHOWN}" if len(findings) > SHOWN else ""
    return f":{advice} {' '.join(findings[:SHOWN])}{more}"
