"""A library for both ends of a `proxy` tool: a client that uses one, and servers that offer one.

    async with ProxyClient("http://127.0.0.1:8000/mcp", transparent=True) as client:
        tools = await client.list_tools()

Source: docs/design/proxy-extension.md#the-client
"""

from smart_mcp_proxy.client.client import ProxyClient, ProxyResult
from smart_mcp_proxy.client.server import ProxyFastMCP, ProxyMCP
from smart_mcp_proxy.client.transform import (
    deserialize_embedded_resource_python_object,
    get_embedded_resource_python_object,
    get_proxy_query_result,
    tool_result_as_prompt_result,
    tool_result_as_resource_result,
)
from smart_mcp_proxy.proxying.failures import InvalidAnswerError, InvalidOperationError, MissingProxyToolError
from smart_mcp_proxy.proxying.metadata import ProxyResponseInfo

__all__ = [
    "InvalidAnswerError",
    "InvalidOperationError",
    "MissingProxyToolError",
    "ProxyClient",
    "ProxyFastMCP",
    "ProxyMCP",
    "ProxyResponseInfo",
    "ProxyResult",
    "deserialize_embedded_resource_python_object",
    "get_embedded_resource_python_object",
    "get_proxy_query_result",
    "tool_result_as_prompt_result",
    "tool_result_as_resource_result",
]
