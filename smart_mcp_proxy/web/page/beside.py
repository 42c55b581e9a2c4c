"""The page beside everything else that is served over HTTP."""

import asyncio
from functools import cached_property

from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn
from smart_mcp_proxy.web.common.streams import EndingStreams


class LatePage:
    """The page, loaded when somebody opens it."""

    def __init__(self, gateway: Gateway, is_over: asyncio.Event, sign_in: BrowserSignIn | None) -> None:
        self._gateway = gateway
        self._is_over = is_over
        self._sign_in = sign_in

    @cached_property
    def _page(self) -> ASGIApp:
        # Here and not above: templates take a tenth of a second and some megabytes, and few starts need them.
        from smart_mcp_proxy.web.page.app import build_page

        return EndingStreams(build_page(self._gateway, self._sign_in), self._is_over)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        await self._page(scope, receive, send)
