"""Sign-in of a person of a team at a server where each person has their own.

The link is the same for everybody, so that it gives nothing away: whoever opens it first shows at the provider of the
gateway's users who they are, and connects an account to themselves, never to somebody who sent them the link.
"""

import json
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from smart_mcp_proxy.errors import RefusedError, ServerNotFoundError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.page.provider_sign_in import ProviderSignIn
from smart_mcp_proxy.web.page.rendering import HEADERS
from smart_mcp_proxy.web.page.visit import cookie_name

CONNECTED_PATH: Final = "/ui/connected"
_COOKIE: Final = "connect"
_WAIT_S: Final = 600
"""For passwords and second factors, at two places."""


class PeopleConnect:
    """The way of a person's browser to a server's sign-in and back.

    Args:
        gateway: Begins and finishes the sign-in.
        provider: Says who the person is.
        public_url: The gateway's public address.
        plain: Makes a page for somebody who has no session of the page.
    """

    def __init__(
        self, gateway: Gateway, provider: ProviderSignIn, public_url: str, plain: Callable[..., Response]
    ) -> None:
        self._gateway = gateway
        self._provider = provider
        self._base = public_url.rstrip("/")
        self._plain = plain

    def is_expected(self, request: Request) -> bool:
        """Whether a browser that comes back from the provider is on its way to a server."""
        return cookie_name(request, _COOKIE) in request.cookies

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider first."""
        response = await self._provider.begin(request)
        self._keep(request, response, [request.path_params["server"]])
        return response

    async def go_on(self, request: Request) -> Response:
        """Send the browser on to the server, now that it is known whose it is.

        Raises:
            ProxyError: It did not begin here, may not use the server, or nobody signs in there.
        """
        server, *_ = self._read(request)
        who = await self._provider.identify(request)
        views = self._gateway.lists.views
        view = views.at("", views.reach(who))
        config = None if view is None else view.servers.get(server)
        if config is None or not config.is_personal:
            raise ServerNotFoundError(f"You sign in to no server named {server[:100]!r}.", hint="Check the link.")
        shown = await self._gateway.admin.server_sign_ins.begin(server, who.id, self._base + CONNECTED_PATH)
        if shown.state != "waiting":
            problem = shown.problem or "The server did not say where to sign in."
            raise RefusedError(problem, hint=f"{shown.hint} Begin again with the link.".lstrip())
        response = RedirectResponse(shown.url, 303, headers=HEADERS)
        self._keep(request, response, [server, who.id])
        return response

    async def finish(self, request: Request) -> Response:
        """Take a browser that comes back from the server.

        Raises:
            ProxyError: It did not begin here, or nobody is waited for.
        """
        server, *person = self._read(request)
        if not person:
            raise _build_unknown_error()
        address = f"{self._base}{CONNECTED_PATH}?{request.url.query}"
        await self._gateway.admin.server_sign_ins.take(server, address, person[0])
        response = self._plain("connected.html", 200, server=server)
        self.forget(request, response)
        return response

    def forget(self, request: Request, response: Response) -> None:
        """Let the browser forget what it was on its way to."""
        response.delete_cookie(cookie_name(request, _COOKIE), path="/ui")

    def _keep(self, request: Request, response: Response, facts: list[str]) -> None:
        response.set_cookie(
            cookie_name(request, _COOKIE),
            json.dumps(facts).encode().hex(),
            max_age=_WAIT_S,
            path="/ui",
            httponly=True,
            samesite="lax",  # it comes back from another site
            secure=self._base.startswith("https:"),
        )

    def _read(self, request: Request) -> list[str]:
        try:
            facts = json.loads(bytes.fromhex(request.cookies.get(cookie_name(request, _COOKIE), "")))
        except ValueError:
            facts = None
        if not isinstance(facts, list) or not facts or not all(isinstance(fact, str) for fact in facts):
            raise _build_unknown_error()
        return facts


def _build_unknown_error() -> RefusedError:
    return RefusedError(
        "This sign-in was not begun in this browser, or too long ago.",
        hint="Begin again with the link.",
        code="sign_in_unknown",
    )
