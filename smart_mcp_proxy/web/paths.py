"""The places below `/mcp`: profiles and toolsets, each with a list of tools of its own."""

from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.fastmcp_compat.paths import serving_path

__all__ = ["Places"]

_SHOWN_CHARS = 100


class Places:
    """Takes the place out of a request's path, so that all of them are served by the one endpoint.

    Args:
        app: Serves the endpoint.
        endpoint: Its path.
        has: Whether something is served at a place; looks in the store where it must.
    """

    def __init__(self, app: ASGIApp, endpoint: str, has: Callable[[str], Awaitable[bool]]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._prefix = endpoint + "/"
        self._has = has

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        place = path.removeprefix(self._prefix) if path.startswith(self._prefix) else ""
        if not place:
            await self._app(scope, receive, send)
            return
        if not await self._has(place):
            await _not_found(place)(scope, receive, send)
            return
        with serving_path(place):
            await self._app({**scope, "path": self._endpoint, "raw_path": self._endpoint.encode()}, receive, send)


def _not_found(place: str) -> JSONResponse:
    """The same words for what is unknown, outdated or somebody else's."""
    error = {
        "code": "not_found",
        "message": f"Nothing is served at /mcp/{place[:_SHOWN_CHARS]}.",
        "hint": "A profile is served while the configuration names it, a toolset until it expires. /mcp serves all.",
    }
    return JSONResponse({"error": error}, status_code=404)
