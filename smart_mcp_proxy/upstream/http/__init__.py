"""Sessions with servers over HTTP, loaded when the first of them is opened."""

from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession


async def open_http(options: SessionOptions) -> UpstreamSession:
    """An open session over streamable HTTP; see `open_raw_http`."""
    from smart_mcp_proxy.upstream.http.raw_http import open_raw_http

    return await open_raw_http(options)


async def open_http_sse(options: SessionOptions) -> UpstreamSession:
    """An open session over HTTP+SSE; see `open_sse`."""
    from smart_mcp_proxy.upstream.http.sse_session import open_sse

    return await open_sse(options)
