"""The sign-in in the requests that the MCP SDK makes."""

import httpx2

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.upstream.http_failures import missing_scope
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer

__all__ = ["BearerTransport"]


class BearerTransport(httpx2.AsyncBaseTransport):
    """Adds the access token to every request; one that is refused is renewed, once.

    Args:
        inner: What really sends.
        bearer: The sign-in.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, bearer: Bearer) -> None:
        self._inner = inner
        self._bearer = bearer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request; a sign-in that is over is a 401 that nobody sent."""
        try:
            token = await self._bearer.token()
            response = await self._sent(request, token)
            if scope := missing_scope(response.status_code, response.headers.get("www-authenticate", "")):
                await self._bearer.want(scope)
            if response.status_code != 401:
                return response
            if not await self._bearer.renewed(token):
                return response
            await response.aclose()
            return await self._sent(request, await self._bearer.token())
        except UpstreamAuthError:
            return httpx2.Response(401, request=request)
        except UpstreamError as exc:
            raise httpx2.ConnectError(exc.message, request=request) from exc

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._inner.aclose()

    async def _sent(self, request: httpx2.Request, token: str) -> httpx2.Response:
        request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)
