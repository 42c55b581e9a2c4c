"""Records of who was let in: tokens, and people's sign-ins at the page and at servers."""

import time
from typing import Any

from smart_mcp_proxy.telemetry import Activity


def build_access_activity(
    change: str, principal: str, subject: str, outcome: str = "ok", *, server: str = "", **facts: Any
) -> Activity:
    """Build the line of the activity log for a token or a sign-in.

    Args:
        change: What was done, in words.
        principal: Who did it, or whose sign-in it is.
        subject: Name of the token or the server, or the page.
        outcome: As of `Activity`.
        server: Configured name, empty where it is about none.
        facts: More of it; no secrets.
    """
    detail = {"change": change} | facts
    return Activity("access", principal, subject, outcome, 0.0, time.time(), detail, server=server)
