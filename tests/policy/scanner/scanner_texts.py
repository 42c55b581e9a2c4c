"""Definitions to be scanned, and what a scan comes to."""

from typing import Any

from smart_mcp_proxy.policy.scanner import Finding

__all__ = ["described", "is_for_review"]


def described(text: str, **members: Any) -> dict[str, Any]:
    """A definition with this description; `members` come beside it, or in the place of others."""
    return {"name": "tool", "description": text, "inputSchema": {"type": "object"}} | members


def is_for_review(findings: tuple[Finding, ...]) -> bool:
    """Whether a person should read the definition."""
    return any(finding.severity == "review" for finding in findings)
