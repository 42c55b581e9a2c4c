"""REST under `/api/v1` for the command line and the operator: one table of routes."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.fastmcp_compat.server import gateway_failed
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.roles import OWNER, Admitted, RoleOperation
from smart_mcp_proxy.web.broker.openapi import describe_broker
from smart_mcp_proxy.web.common.messages import json_response, not_served
from smart_mcp_proxy.web.rest import activity, agent_tokens, approvals, calls, config, servers, sign_ins, tools
from smart_mcp_proxy.web.rest.authorization import NetworkAuthorizer, operator_token
from smart_mcp_proxy.web.rest.openapi import (
    DOCS_PATH,
    OPENAPI_PATH,
    START_PATH,
    answer_start,
    describe,
    docs_page,
    docs_response,
)
from smart_mcp_proxy.web.rest.route import PREFIX, Admit, Answer, Endpoint

ROUTES: tuple[Endpoint, ...] = (
    *servers.ROUTES,
    *config.ROUTES,
    *tools.ROUTES,
    *calls.ROUTES,
    *approvals.ROUTES,
    *activity.ROUTES,
    *agent_tokens.ROUTES,
    *sign_ins.ROUTES,
)
PAGES = frozenset({START_PATH, DOCS_PATH, OPENAPI_PATH})
"""Pages that are served beside the routes, to everyone who may connect."""


class _NameConvertor(PathConvertor):
    """Path converter for any name: the framework's `path` stops at a line end."""

    regex = r"[\s\S]*"


register_url_convertor("any_name", _NameConvertor())


async def admit_user(request: Request, operation: RoleOperation) -> Admitted | None:
    """Admit the user, in this process."""
    return OWNER


def build_rest_app(gateway: Gateway, admit: Admit = admit_user) -> Starlette:
    """The ASGI app of all routes.

    Args:
        gateway: Answers.
        admit: Tells who sends a request. The one left out trusts its caller, which is in this process.
    """

    async def openapi(request: Request) -> Response:
        return json_response(_document())

    async def docs(request: Request) -> Response:
        return docs_response(await to_thread.run_sync(_render_docs_page))

    answers: dict[str, dict[str, Answer]] = {}
    for endpoint in ROUTES:
        answers.setdefault(PREFIX + endpoint.path, {})[endpoint.method] = endpoint.bind_handler(gateway, admit)
    # A path that ends in any name would also take in what stands behind it: those come last.
    paths = sorted(answers, key=lambda path: path.endswith(":path}"))
    app = Starlette(
        routes=[
            Route(START_PATH, answer_start),
            Route(DOCS_PATH, docs),
            Route(OPENAPI_PATH, openapi),
            *(Route(path.replace(":path}", ":any_name}"), _Resource(answers[path])) for path in paths),
        ],
        exception_handlers={404: _not_served, 405: _not_served, Exception: _answer_rest_failure},
    )
    app.router.redirect_slashes = False
    return app


@cache
def _document() -> dict[str, Any]:
    """The routes as programs read them, made when first asked for: few ask, and each start would wait."""
    return describe_broker(describe(ROUTES))


@cache
def _render_docs_page() -> str:
    return docs_page(_document())


class _Resource:
    """All that one path answers. A method that it has not is refused here, and not tried on a wider path.

    Args:
        answers: By HTTP method.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in self._answers:
            raise HTTPException(405, headers={"allow": ", ".join(self._answers)})
        response = await self._answers[method](Request(scope, receive, send))
        await response(scope, receive, send)


async def _not_served(request: Request, exc: Exception) -> Response:
    """The answer to a path or method that no route has."""
    assert isinstance(exc, HTTPException)
    error = not_served(request, exc)
    response = json_response({"error": error.to_dict()}, error)
    response.headers.update(exc.headers or {})
    return response


async def _answer_rest_failure(request: Request, exc: Exception) -> Response:
    """The answer where the gateway itself fails."""
    error = gateway_failed()
    return json_response({"error": error.to_dict()}, error)
