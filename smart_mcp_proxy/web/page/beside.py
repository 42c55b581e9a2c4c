"""The page beside everything else that is served over HTTP."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn
from smart_mcp_proxy.web.common.streams import EndingStreams

PREFIX = "/ui"


class PageBeside:
    """Serves the page at its own paths and hands everything else on, untouched.

    Args:
        app: Everything else.
        gateway: Answers.
        is_over: Set when streams have to end.
        sign_in: Lets people sign in; None where they are not asked to.
    """

    def __init__(
        self, app: ASGIApp, gateway: Gateway, is_over: asyncio.Event, sign_in: BrowserSignIn | None = None
    ) -> None:
        self._app = app
        self._gateway = gateway
        self._is_over = is_over
        self._sign_in = sign_in
        self._page: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        is_page = path == PREFIX or path.startswith(PREFIX + "/")
        await (self._load_page() if is_page else self._app)(scope, receive, send)

    def _load_page(self) -> ASGIApp:
        if self._page is None:
            # Here and not above: templates take a tenth of a second and some megabytes, and few starts need them.
            from smart_mcp_proxy.web.page.app import build_page

            self._page = EndingStreams(build_page(self._gateway, self._sign_in), self._is_over)
        return self._page
