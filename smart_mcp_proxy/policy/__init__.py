"""MAY this call happen? Pure functions over values."""

from smart_mcp_proxy.policy.intent import call_with, check_intent, decide

__all__ = ["call_with", "check_intent", "decide"]
