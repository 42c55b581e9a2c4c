"""The page put together: who is let in, its places, and its files."""

import hashlib
from functools import partial
from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from smart_mcp_proxy.errors import ProxyError, RefusedError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.page_sessions import ENTRY_PATH, SESSION_S
from smart_mcp_proxy.gateway.admin.roles import require_role
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream import CONNECT_PATH
from smart_mcp_proxy.web.auth.sign_in import PAGE_BACK_PATH, BrowserSignIn
from smart_mcp_proxy.web.common.forwarded import find_connected
from smart_mcp_proxy.web.common.refusals import guard_app
from smart_mcp_proxy.web.page.connecting import CONNECTED_PATH, PeopleConnect
from smart_mcp_proxy.web.page.operations import Operations, read_status
from smart_mcp_proxy.web.page.places import PLACES
from smart_mcp_proxy.web.page.provider_sign_in import BEGIN_PATH, ProviderSignIn
from smart_mcp_proxy.web.page.rendering import HEADERS, Renderer
from smart_mcp_proxy.web.page.visit import Form, PageRoute, PageVisit, cookie_name

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
log = get_logger("page")


class _File(NamedTuple):
    content: bytes
    etag: str
    media_type: str


class PageFiles:
    """The files beside the templates; whoever may connect may read them, they say nothing of this gateway."""

    def __init__(self) -> None:
        folder = files("smart_mcp_proxy.web.page") / "static"
        self._files: dict[str, _File] = {}
        for file in folder.iterdir():
            media_type = _TYPES.get(file.name[file.name.rfind(".") :])
            if media_type is not None:
                content = file.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
                self._files[file.name] = _File(content, etag, media_type)

    def __repr__(self) -> str:
        return f"<PageFiles, {len(self._files)} of them>"

    async def answer(self, request: Request) -> Response:
        """Answer with a file, or with 304 if the browser has it already."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        headers = {**HEADERS, "etag": found.etag, "cache-control": "no-cache"}
        known = request.headers.get("if-none-match", "").split(",")
        if found.etag in (each.strip() for each in known):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)


def build_page(gateway: Gateway, sign_in: BrowserSignIn | None = None) -> ASGIApp:
    """The ASGI app of the page, behind the checks of Host and Origin that REST has.

    Args:
        gateway: Answers.
        sign_in: Lets people sign in; None where they are not asked to.
    """
    page = _Page(gateway, sign_in)
    app = Starlette(
        routes=[
            Route("/ui", _redirect_to_start),
            Route(ENTRY_PATH + "{token}", page.enter),
            Route(BEGIN_PATH, page.begin),
            Route(CONNECT_PATH + "{server}", page.connect),
            Route(CONNECTED_PATH, page.connect),
            Route(PAGE_BACK_PATH, page.come_back),
            Route("/ui/leave", partial(page.answer_visit, PageRoute("POST", "/leave", page.leave)), methods=["POST"]),
            Route("/ui/static/{name}", PageFiles().answer),
            *(Route("/ui" + place.path, partial(page.answer_visit, place), methods=[place.method]) for place in PLACES),
        ],
        exception_handlers={
            404: page.not_found,
            405: page.not_found,
            ProxyError: page.answer_error,
            Exception: page.answer_failure,
        },
    )
    app.router.redirect_slashes = False
    return guard_app(app, gateway.settings)


async def _redirect_to_start(request: Request) -> Response:
    return RedirectResponse("/ui/", 303, headers=HEADERS)


class _Page:
    """Lets browsers in and answers them.

    Args:
        gateway: Its sessions, settings and operations.
        sign_in: Lets people sign in; None where they are not asked to.
    """

    def __init__(self, gateway: Gateway, sign_in: BrowserSignIn | None) -> None:
        self._sessions = gateway.admin.page_sessions
        self._doors = gateway.admin.doors
        self._operations = Operations(gateway)
        self._renderer = Renderer()
        self._plain = self._renderer.page
        self._provider: ProviderSignIn | None = None
        self._people: PeopleConnect | None = None
        if sign_in is not None and gateway.settings.public_url is not None:
            provider = ProviderSignIn(sign_in, gateway.settings.public_url, gateway.admin.page_sessions)
            self._people = PeopleConnect(gateway, provider, gateway.settings.public_url, self._plain)
            has_operators = gateway.settings.oidc_operators or gateway.settings.group_roles
            self._provider = provider if has_operators else None
        self._limit_bytes = gateway.settings.max_message_bytes
        self._public_host = urlsplit(gateway.settings.public_url or "").netloc or None
        self._is_https = (gateway.settings.public_url or "").startswith("https:")

    async def answer_visit(self, place: PageRoute, request: Request) -> Response | ASGIApp:
        """The place as those see it who are let in; all others learn how to get in."""
        secret = request.cookies.get(cookie_name(request, "page"), "")
        if not self._is_own(request):
            raise RefusedError(
                "Requests of other pages are not taken.",
                hint="Use this page's own links and forms.",
                code="origin_not_allowed",
            )
        session = await self._sessions.find(secret)
        if session is None:
            return self._build_locked_page(401)
        is_read = place.method == "GET"
        await self._doors.check_connection(find_connected(request.scope), request.scope["server"], is_read=is_read)
        is_https = self._is_https or request.url.scheme == "https"
        visit = PageVisit(
            request, secret, session, self._operations, self._renderer, self._limit_bytes, is_https=is_https
        )
        try:
            require_role(session.admitted.role, place.operation)
            return await (place.handler(visit, await visit.form()) if place.method == "POST" else place.handler(visit))
        except ClientDisconnect:  # before its form was whole: nobody sees this
            return Response(status_code=400)
        except ProxyError as error:
            try:
                return await visit.page("error.html", error, error=error)
            except ProxyError:  # of the status, which the head shows
                return self._plain("failed.html", read_status(error), error=error)

    def _is_own(self, request: Request) -> bool:
        """Whether a request comes from a page of this gateway, as far as the browser says where from.

        Pages of other ports of this machine are let in to REST. To a browser they are of the same site as this one, so
        that it sends them its cookie, too. They may lead somebody here, and ask for nothing unseen: a search costs
        and is recorded. Source: https://www.w3.org/TR/fetch-metadata/
        """
        headers = request.headers
        is_foreign = headers.get("sec-fetch-site") in ("same-site", "cross-site")
        if is_foreign and headers.get("sec-fetch-dest") != "document":
            return False
        origin = headers.get("origin")
        return origin is None or urlsplit(origin).netloc in (headers.get("host"), self._public_host)

    async def enter(self, request: Request) -> Response:
        """A link was opened: once it leads in."""
        return self._build_entry_page(request, await self._sessions.enter(request.path_params["token"]))

    async def begin(self, request: Request) -> Response:
        """A browser asks for the way to the provider."""
        if self._provider is None:
            raise HTTPException(404)
        response = await self._provider.begin(request)
        if self._people is not None:
            self._people.forget(request, response)
        return response

    async def come_back(self, request: Request) -> Response:
        """A browser comes back from the provider."""
        if self._people is not None and self._people.is_expected(request):
            return await self._people.go_on(request)
        if self._provider is None:
            raise HTTPException(404)
        return self._build_entry_page(request, await self._provider.finish(request))

    async def connect(self, request: Request) -> Response:
        """A person of a team begins to sign in at a server, or comes back from it."""
        if self._people is None:
            raise HTTPException(404)
        is_back = request.url.path == CONNECTED_PATH
        return await (self._people.finish(request) if is_back else self._people.begin(request))

    def _build_entry_page(self, request: Request, secret: str) -> Response:
        # Not a redirect: the cookie would not go with one that began at another site, for example a mail program.
        response = self._plain("entered.html", 200)
        response.set_cookie(
            cookie_name(request, "page"),
            secret,
            max_age=int(SESSION_S),
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=self._is_https or request.url.scheme == "https",
        )
        return response

    async def leave(self, visit: PageVisit, form: Form) -> Response:
        """The session ends."""
        await self._sessions.leave(visit.secret, visit.session.admitted)
        response = self._build_locked_page(200)
        response.delete_cookie(cookie_name(visit.request, "page"), path="/ui")
        return response

    async def not_found(self, request: Request, exc: Exception) -> Response:
        """The answer to a path or method that no place has; the same whoever asks."""
        assert isinstance(exc, HTTPException)
        return self._plain("missing.html", exc.status_code)

    async def answer_error(self, request: Request, exc: Exception) -> Response:
        """The answer to somebody who is not let in, or not yet."""
        assert isinstance(exc, ProxyError)
        return self._plain("failed.html", read_status(exc), error=exc)

    async def answer_failure(self, request: Request, exc: Exception) -> Response:
        """The answer where the page itself fails; the server logs why."""
        return self._plain("broken.html", 500)

    def _build_locked_page(self, status: int) -> Response:
        return self._plain("locked.html", status, begin_path=BEGIN_PATH if self._provider is not None else "")
