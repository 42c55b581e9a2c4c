"""Operations of REST, asked in this process with the rights of a session."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.roles import Admitted, RoleOperation
from smart_mcp_proxy.web.page.asking import build_scope, call_asgi_app
from smart_mcp_proxy.web.rest import PREFIX, build_rest_app

_ADMITTED: Final = "smart_mcp_proxy.admitted"
"""In the scope of a request, which no header reaches."""


class OperationError(ProxyError):
    """An operation was refused or failed, as REST says it.

    Args:
        message: As of the error.
        status: Its HTTP status.
        facts: The rest of the error.
    """

    def __init__(self, message: str, *, status: int, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.status = status


def read_status(error: ProxyError) -> int:
    """The HTTP status that goes with an error: of an operation's, the one that it was answered with."""
    return error.status if isinstance(error, OperationError) else error.http_status


async def _admit_session(request: Request, operation: RoleOperation) -> Admitted | None:
    """Admit what the page asks, as the one that the page names."""
    admitted: Admitted = request.scope[_ADMITTED]
    return admitted


class Operations:
    """The operations of one gateway.

    Args:
        gateway: Answers.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._app: ASGIApp = build_rest_app(gateway, _admit_session)

    async def ask(
        self, admitted: Admitted, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> Any:
        """Return the answer of an operation.

        Args:
            admitted: Whose rights count.
            method: HTTP method.
            path: Below REST's prefix, its names quoted by `part`.
            query: Parameters; those that are None are left out, of a list each is sent.
            body: What is sent as JSON.

        Raises:
            OperationError: It was refused, or failed.
        """
        words = {key: value for key, value in (query or {}).items() if value is not None}
        text = b"" if body is None else msgspec.json.encode(body)
        status, answer = await call_asgi_app(self._app, _make_scope(admitted, method, path, words, text), text)
        value = msgspec.json.decode(answer)
        if status >= 400:
            raise OperationError.from_dict(value["error"], status=status)
        return value

    async def stream(self, admitted: Admitted, request: Request, path: str, query: Mapping[str, Any]) -> ASGIApp:
        """Return an ASGI app whose answer to this request is that of an operation, passed on as it comes."""
        last = request.headers.get("last-event-id")
        scope = _make_scope(admitted, "GET", path, query, b"")
        if last is not None:
            scope["headers"].append((b"last-event-id", last.encode("latin-1")))

        async def forward_request(_: Scope, receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)

        return forward_request


def part(name: str) -> str:
    """A name as a part of an operation's path."""
    return quote(name, safe="")


def _make_scope(admitted: Admitted, method: str, path: str, query: Mapping[str, Any], text: bytes) -> Scope:
    words = urlencode(query, doseq=True)
    return {**build_scope(method, f"{PREFIX}/{path}", "http://gateway", text, query=words), _ADMITTED: admitted}
