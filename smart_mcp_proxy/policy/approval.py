"""May a definition that a server lists be shown to agents without its user having looked at it?"""

from collections.abc import Container, Mapping
from functools import partial
from typing import Any

from smart_mcp_proxy.models import Review, Submission, Trust

_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
"""By hint of ToolAnnotations, the value that asks for less care.

Source: https://modelcontextprotocol.io/specification/2025-11-25/schema"""


def choose_review(trust: Trust, clean: Container[str] = frozenset()) -> Review | None:
    """The policy of a server; None where only the user approves all that comes after its first list.

    Args:
        trust: What the configuration says.
        clean: Change hashes of the definitions that the scanner was shown and found nothing in.
    """
    return None if trust == "manual" else partial(may_approve, trust=trust, clean=clean)


def may_approve(submission: Submission, *, trust: Trust, clean: Container[str]) -> bool:
    """Whether the policy approves a definition in the user's place.

    Under no policy if the tool calls itself less dangerous than the approved one did: its own word must not open the
    way past the questions of the agent's client. All others are approved under `trusted`; under `scan` those that the
    scanner has read and found nothing in, and where it is not certain what was approved before, none.
    """
    if submission.approved is not None and is_softer(submission.approved, submission.definition):
        return False
    if trust == "trusted":
        return True
    return trust == "scan" and submission.change_hash in clean and submission.is_on_file


def is_softer(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether hints became more harmless: a warning dropped or a promise added."""
    old, new = _hints(before), _hints(after)
    if old.get("destructiveHint") is True and new.get("destructiveHint") is not True:
        return True
    return any(new.get(hint) is harmless and old.get(hint) is not harmless for hint, harmless in _HARMLESS.items())


def _hints(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = definition.get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}
