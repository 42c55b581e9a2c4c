"""Intent: the call tool that fits a tool's annotations, and whether another is allowed."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.models import CallVariant, Decision, Intent, ToolKey

SENSITIVITIES = ("public", "internal", "private", "unknown")
REASON_LIMIT_CHARS = 1000

ALLOWED = Decision(True)


def call_with(annotations: Mapping[str, Any]) -> CallVariant:
    """The call tool to use: destructive and read by the tool's own word, write for everything else.

    Source: docs/design/protocol-surface.md#call-tools
    """
    if annotations.get("destructiveHint") is True:
        return "destructive"
    if annotations.get("readOnlyHint") is True:
        return "read"
    return "write"


_ACCESS: tuple[CallVariant, ...] = ("read", "write", "destructive")
"""Each includes those before it."""


def is_within(access: CallVariant, annotations: Mapping[str, Any]) -> bool:
    """Return whether annotations allow no more than `access`; absent ones mean writing."""
    return access == _ACCESS[-1] or _ACCESS.index(call_with(annotations)) <= _ACCESS.index(access)


def check_intent(intent: Intent) -> Decision:
    """Whether what the agent said about a call can be written down as it stands."""
    if intent.data_sensitivity not in SENSITIVITIES:
        return Decision(
            False,
            f"intent_data_sensitivity is {intent.data_sensitivity!r:.100}.",
            f"Use one of: {', '.join(SENSITIVITIES)}.",
        )
    if len(intent.reason) > REASON_LIMIT_CHARS:
        return Decision(
            False, f"intent_reason has {len(intent.reason)} characters.", f"At most {REASON_LIMIT_CHARS} are accepted."
        )
    return ALLOWED


def decide(
    key: ToolKey, variant: CallVariant | None, annotations: Mapping[str, Any], intent: Intent, *, is_strict: bool = True
) -> Decision:
    """Whether `variant` may call a tool with these annotations under this intent.

    A user's own call (`variant` None) is allowed: the two keys are for agents.

    Args:
        key: The tool, for the message.
        variant: The call tool used.
        annotations: The tool's hints as the upstream sent them.
        intent: What the agent said.
        is_strict: Whether read needs `readOnlyHint: true` (`MCPPROXY_INTENT_STRICT`).

    Source: docs/design/protocol-surface.md#intent
    """
    if variant is None:
        return ALLOWED
    if intent.operation_type is not None and intent.operation_type != variant:
        return Decision(
            False,
            f"intent.operation_type is {intent.operation_type!r}, but the call came through call_tool_{variant}.",
            f"Make both say the same: this tool asks for call_tool_{call_with(annotations)}.",
        )
    if variant != "destructive" and annotations.get("destructiveHint") is True:
        return Decision(
            False, f"Tool '{key}' is marked destructive by its server.", "Ask the user, then use call_tool_destructive."
        )
    if variant == "read" and is_strict and annotations.get("readOnlyHint") is not True:
        return Decision(
            False, f"Tool '{key}' is not marked read-only by its server.", f"Use call_tool_{call_with(annotations)}."
        )
    return ALLOWED
