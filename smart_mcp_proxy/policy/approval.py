"""May a definition that a server lists be shown to agents without its user having looked at it?"""

from collections.abc import Container, Mapping
from functools import partial
from typing import Any

from smart_mcp_proxy.models import Review, Submission, Trust

__all__ = ["is_softer", "may_approve", "review_of"]

_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
"""What each hint says of a tool that asks for less care. Source: MCP specification, ToolAnnotations."""


def review_of(trust: Trust, clean: Container[str] = frozenset()) -> Review | None:
    """The policy of a server for every list after its first; None where only the user approves.

    Args:
        trust: What the configuration says.
        clean: Change hashes of the definitions that the scanner was shown and found nothing in.
    """
    return None if trust == "manual" else partial(may_approve, trust=trust, clean=clean)


def may_approve(submission: Submission, *, trust: Trust, clean: Container[str]) -> bool:
    """Whether the policy approves a definition in the user's place.

    Under `scan` a definition is approved that the scanner has read and found nothing in, unless the tool calls itself
    less dangerous than the approved one did: its own word must not open the way past the questions of the agent's
    client. Where it is not certain what was approved before, it waits as well.
    """
    if trust == "trusted":
        return True
    if trust != "scan" or submission.change_hash not in clean or not submission.is_on_file:
        return False
    return submission.approved is None or not is_softer(submission.approved, submission.definition)


def is_softer(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a tool's hints say more harmless things of it than before: one dropped a warning or added a promise."""
    old, new = _hints(before), _hints(after)
    if old.get("destructiveHint") is True and new.get("destructiveHint") is not True:
        return True
    return any(new.get(hint) is harmless and old.get(hint) is not harmless for hint, harmless in _HARMLESS.items())


def _hints(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = definition.get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}
