"""Errors of both ends of a `proxy` tool; they are ValueErrors as well.

Source: docs/design/proxy-extension.md#errors-of-the-client
"""

from smart_mcp_proxy.errors import RequestError, ToolNotFoundError, UpstreamError


class InvalidOperationError(RequestError, ValueError):
    """Parameters of a request that are missing, unknown, of the wrong type, or do not go together."""


class InvalidAnswerError(UpstreamError, ValueError):
    """An answer that is not one of a `proxy` tool's, or not the one that was asked for."""


class MissingProxyToolError(ToolNotFoundError, ValueError):
    """A server without a `proxy` tool of the name that is asked for."""
