"""MAY this call happen? Pure functions over values."""

from smart_mcp_proxy.policy.intent import call_with, check_intent, decide, is_within
from smart_mcp_proxy.policy.redaction import ArgumentsKept, mask_text, redact_arguments, short_digest
