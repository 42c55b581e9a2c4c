"""Conditions of servers, entries and tools that their user has to know of."""

from smart_mcp_proxy.conditions.remarks import LeftOut, Remark, build_left_out_remark, output_schemas, worst
from smart_mcp_proxy.conditions.table import CONDITIONS, ConditionRow, Severity

__all__ = [
    "CONDITIONS",
    "ConditionRow",
    "LeftOut",
    "Remark",
    "Severity",
    "build_left_out_remark",
    "output_schemas",
    "worst",
]
