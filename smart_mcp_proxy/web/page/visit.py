"""A request to the page by a browser that was let in."""

import base64
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError
from smart_mcp_proxy.gateway.admin.page_sessions import PageSession, signature
from smart_mcp_proxy.gateway.admin.roles import PAGE, RoleOperation
from smart_mcp_proxy.web.common.messages import read_body
from smart_mcp_proxy.web.page.operations import OperationError, Operations, read_status
from smart_mcp_proxy.web.page.rendering import HEADERS, Renderer

FORM_TYPE: Final = "application/x-www-form-urlencoded"
MOST_FIELDS: Final = 2_000
_NOTE_CHARS: Final = 1_500
"""Limit on the words for the next page: a cookie holds 4,096 bytes."""
_NOTE_S: Final = 60
_ATTENTION: Final = ("needs_auth", "needs_env", "error", "quarantined")


def cookie_name(request: Request, noun: str) -> str:
    """Name of a cookie of this gateway: gateways at other ports of the same host get them all."""
    host = request.headers.get("host", "").encode()
    return f"mcpproxy-{noun}-{hmac.digest(b'page', host, 'sha256').hex()[:8]}"


class Form:
    """The fields of a form that was sent.

    Args:
        pairs: Names and values in their order.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def __repr__(self) -> str:
        return f"<Form of {len(self._pairs)} fields>"

    def text(self, name: str, default: str = "") -> str:
        """The first value of a field."""
        return next((value for key, value in self._pairs if key == name), default)

    def texts(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self._pairs if key == name]

    def has(self, name: str) -> bool:
        """Whether the form has the field."""
        return any(key == name for key, _ in self._pairs)


class PageVisit:
    """A request, who sent it, and what is needed to answer it.

    Args:
        request: What was sent.
        secret: Of its session.
        session: Whose rights it has.
        operations: Of REST.
        renderer: Of templates.
        limit_bytes: Longest form that is read.
        is_https: Whether the browser came over TLS.

    Attributes:
        request: What was sent.
        secret: Of its session.
        session: Whose rights it has.
    """

    def __init__(
        self,
        request: Request,
        secret: str,
        session: PageSession,
        operations: Operations,
        renderer: Renderer,
        limit_bytes: int,
        *,
        is_https: bool,
    ) -> None:
        self.request = request
        self.secret = secret
        self.session = session
        self._is_https = is_https
        self._operations = operations
        self._renderer = renderer
        self._limit_bytes = limit_bytes
        self._status: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<PageVisit of {self.request.url.path}>"

    def read_parameter(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default)

    def read_parameters(self, names: Iterable[str]) -> dict[str, str]:
        """Parameters of the query that say something, without blanks around."""
        found = {name: self.read_parameter(name).strip() for name in names}
        return {name: text for name, text in found.items() if text}

    def number(self, name: str) -> int:
        """A count in the address; 0 where it is none."""
        text = self.read_parameter(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < len("10000000") else 0

    async def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Ask an operation of REST; raises what `Operations.ask` does."""
        return await self._operations.ask(self.session.admitted, method, path, query, body)

    async def read_status(self) -> dict[str, Any]:
        """The gateway's status, asked once for a page."""
        if self._status is None:
            self._status = await self.ask("GET", "status")
        return self._status

    async def try_ask(self, path: str, query: Mapping[str, Any], default: Any) -> tuple[Any, OperationError | None]:
        """The answer of a look-up, or a default with the reason why there is none."""
        try:
            return await self.ask("GET", path, query), None
        except OperationError as error:
            return default, error

    async def stream_operation(self, path: str, query: Mapping[str, Any]) -> ASGIApp:
        """An app whose answer is the stream of an operation."""
        return await self._operations.stream(self.session.admitted, self.request, path, query)

    async def form(self) -> Form:
        """The form that was sent.

        Raises:
            RefusedError: It does not carry the token of this session: it may come from another site.
            RequestError: It is no form, or longer than a message may be.
        """
        if self.request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
            raise RequestError("The body is not a form.", hint=f"Send it as {FORM_TYPE}.")
        text = await read_body(self.request, self._limit_bytes, "Raise MCPPROXY_MAX_MESSAGE_BYTES.")
        try:
            form = Form(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError as exc:
            raise RequestError(f"The form cannot be read: {exc}.", hint="Reload the page.") from exc
        if not hmac.compare_digest(form.text("csrf").encode(), self.session.csrf.encode()):
            raise RefusedError(
                "The form does not belong to this session of the page.",
                hint="Reload the page and try again.",
                code="form_expired",
            )
        return form

    async def page(self, template: str, problem: ProxyError | None = None, /, **values: Any) -> HTMLResponse:
        """A page with the head that all have, and with the status of what went wrong, if something did."""
        status = 200 if problem is None else read_status(problem)
        gateway = await self.read_status()
        servers = gateway["servers"]
        troubled = [each for each in servers if is_troubled(each)]
        note, is_bad = self._read_note()
        common = {
            "gateway": gateway,
            "troubled": troubled,
            "attention": len(troubled) + sum(server["waiting"] for server in servers),
            "path": self.request.url.path,
            "here": self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else ""),
            "is_place": self.request.method == "GET",
            "csrf": self.session.csrf,
            "note": note,
            "note_is_bad": is_bad,
            "problem": problem,
        }
        # What servers say may be long, and calls are not to wait until it is escaped.
        response = await to_thread.run_sync(partial(self._renderer.page, template, status, **common | values))
        if note:
            response.delete_cookie(cookie_name(self.request, "note"), path="/ui")
        return response

    def go_back(self, form: Form, note: str, *, default: str = "/ui/", is_bad: bool = False) -> Response:
        """The way back to the place that a form was on, which then shows a note once."""
        return self.go_to(_keep_local(form.text("back"), default), note, is_bad=is_bad)

    def go_to(self, address: str, note: str = "", *, is_bad: bool = False) -> Response:
        """The way to a place of the page, which then shows a note once."""
        response = RedirectResponse(address, 303, headers=HEADERS | {"cache-control": "no-store"})
        if note:
            text = base64.urlsafe_b64encode(msgspec.json.encode((note[:_NOTE_CHARS], is_bad))).decode()
            response.set_cookie(
                cookie_name(self.request, "note"),
                f"{signature(self.secret, text.encode())}.{text}",
                max_age=_NOTE_S,
                path="/ui",
                httponly=True,
                samesite="strict",
                secure=self._is_https,
            )
        return response

    def _read_note(self) -> tuple[str, bool]:
        proof, _, text = self.request.cookies.get(cookie_name(self.request, "note"), "").partition(".")
        if not text or not hmac.compare_digest(proof.encode(), signature(self.secret, text.encode()).encode()):
            return "", False
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, bool])


def is_troubled(server: Mapping[str, Any]) -> bool:
    """Whether a server needs somebody."""
    return server["state"] in _ATTENTION or server["severity"] == "warning"


def _keep_local(address: str, default: str) -> str:
    """An address of the page itself; the default in place of any other."""
    is_ours = address.startswith("/ui/") and address.isprintable() and "\\" not in address
    return address if is_ours else default


class DisplayLimits(NamedTuple):
    """Limits of what a place shows of a definition; the rest is counted.

    Attributes:
        fields: Of its fields.
        path: Characters of a field's path.
        text: Characters of a run of words.
    """

    fields: int
    path: int
    text: int


class PageRoute(NamedTuple):
    """A place that is shown, or an action that a form asks for.

    Attributes:
        method: GET for places, POST for actions.
        path: Below `/ui`.
        handler: Given the visit, and of an action the form; a `ProxyError` becomes a page that says it.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[..., Awaitable[Response | ASGIApp]]

    @property
    def operation(self) -> RoleOperation:
        """The row that says who may use it.

        Raises:
            KeyError: The table has none.
        """
        return PAGE[f"{self.method} {self.path}"]
