"""The places below `/mcp`: profiles and toolsets, each with a list of tools of its own."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import UnverifiedError
from smart_mcp_proxy.fastmcp_compat.paths import bind_request_path
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.web.common.refusals import refusal

_SHOWN_CHARS = 100


class ServedPaths:
    """Takes the place out of a request's path, so that all of them are served by the one endpoint.

    Args:
        app: Serves the endpoint.
        endpoint: Its path.
        has: Whether something is served at a place, to whomever; looks in the store where it must.
        check: Whose request it is, None if nobody's: `app` refuses those, and they learn of no place.
        address: The endpoint's address; None for the one that each client used.
    """

    def __init__(
        self,
        app: ASGIApp,
        endpoint: str,
        has: Callable[[str], Awaitable[bool]],
        check: Callable[[Scope], Awaitable[Principal | None]],
        address: str | None = None,
    ) -> None:
        self._app = app
        self._endpoint = endpoint
        self._prefix = endpoint + "/"
        self._has = has
        self._check = check
        self._public_address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        if path != self._endpoint and not path.startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        place = path.removeprefix(self._endpoint).removeprefix("/")
        try:
            is_missing = place and await self._check(scope) is not None and not await self._has(place)
        except UnverifiedError as error:
            await refusal(error)(scope, receive, send)
            return
        if is_missing:
            await not_found(place)(scope, receive, send)
            return
        if path != self._endpoint:
            # Served here, a slash at its end alone too: behind a proxy that ends TLS, a redirect would lead to plain
            # HTTP, and the token with it.
            scope = {**scope, "path": self._endpoint, "raw_path": self._endpoint.encode()}
        with bind_request_path(place, partial(self.address, scope["scheme"], scope["headers"])):
            await self._app(scope, receive, send)

    def address(self, scheme: str, fields: Iterable[tuple[bytes, bytes]]) -> str:
        """The endpoint's address, else the client's own words: their Host is checked before they are used.

        Args:
            scheme: By which the request came.
            fields: Its header.
        """
        if self._public_address is not None:
            return self._public_address
        host = next((value for name, value in fields if name == b"host"), b"")
        return f"{scheme}://{host.decode('latin-1')}{self._endpoint}" if host else ""


def serve_beside(app: ASGIApp, own: ASGIApp, is_own: Callable[[str], bool]) -> ASGIApp:
    """Serve requests to its own paths with `own`, and hand everything else on to `app`, untouched."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and is_own(scope["path"])
        await (own if is_ours else app)(scope, receive, send)

    return answer


def not_found(place: str) -> JSONResponse:
    """The same words for what is unknown, outdated or somebody else's."""
    error = {
        "code": "not_found",
        "message": f"Nothing is served at /mcp/{place[:_SHOWN_CHARS]}.",
        "hint": "A profile is served while the configuration names it, a toolset until it expires. /mcp serves all.",
    }
    return JSONResponse({"error": error}, status_code=404)
