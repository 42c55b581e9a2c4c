"""Conditions of servers, entries and tools that their user has to know of."""

from smart_mcp_proxy.conditions.remarks import LeftOut, Remark, left_out, output_schemas, worst
from smart_mcp_proxy.conditions.table import CONDITIONS, Condition, Severity

__all__ = ["CONDITIONS", "Condition", "LeftOut", "Remark", "Severity", "left_out", "output_schemas", "worst"]
