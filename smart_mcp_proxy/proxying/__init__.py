"""Vocabulary of the `proxy` tool for both ends: requests, answers and their metadata.

Source: docs/design/proxy-extension.md#the-proxy-extension
"""

from smart_mcp_proxy.proxying.failures import InvalidAnswerError, InvalidOperationError, MissingProxyToolError
from smart_mcp_proxy.proxying.metadata import META_PREFIX, ProxyAction, ProxyResponseInfo, ProxyType, proxy_meta
from smart_mcp_proxy.proxying.operation import (
    ACTIONS,
    BATCH_LIMIT,
    DESCRIPTION,
    PAGE_LIMIT,
    PARAMETERS,
    TYPES,
    Batch,
    Filter,
    Operation,
    parse_operation,
    validate_operation,
)
from smart_mcp_proxy.proxying.perform import Source, annotate_block, perform
from smart_mcp_proxy.proxying.query import Listed, PythonType, ambiguous, collect_tags, find_listed

__all__ = [
    "ACTIONS",
    "BATCH_LIMIT",
    "DESCRIPTION",
    "META_PREFIX",
    "PAGE_LIMIT",
    "PARAMETERS",
    "TYPES",
    "Batch",
    "Filter",
    "InvalidAnswerError",
    "InvalidOperationError",
    "Listed",
    "MissingProxyToolError",
    "Operation",
    "ProxyAction",
    "ProxyResponseInfo",
    "ProxyType",
    "PythonType",
    "Source",
    "ambiguous",
    "annotate_block",
    "collect_tags",
    "find_listed",
    "parse_operation",
    "perform",
    "proxy_meta",
    "validate_operation",
]
