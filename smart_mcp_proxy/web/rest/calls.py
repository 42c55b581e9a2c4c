"""REST: searches and calls in the user's own name."""

from typing import Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.retrieval import Question
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.web.rest.route import COMMAND_LINE, Endpoint, body_of, integer

__all__ = ["ROUTES"]


async def _search(gateway: Gateway, request: Request) -> dict[str, Any]:
    query = request.query_params
    return await gateway.retrieval.retrieve(
        Question(
            query=query.get("q", ""),
            limit=integer(request, "limit", gateway.settings.top_k, 1, 50),
            detail="full" if query.get("detail") == "full" else "compact",
            servers=tuple(query.getlist("server")),
            read_only=query.get("read_only") == "true",
            session=COMMAND_LINE,
            explain=query.get("why") == "true",
        )
    )


async def _call(gateway: Gateway, request: Request) -> bytes:
    body = await body_of(request, NamedCall)
    return await gateway.calls.call(
        CallRequest(name=body.name, arguments=body.arguments, variant=None, session=COMMAND_LINE)
    )


class NamedCall(msgspec.Struct):
    """A tool, canonical or listed, and its arguments."""

    name: str
    arguments: dict[str, Any] = {}


_SEARCH = {
    "q": "What the tool should do, or its name.",
    "limit": "Most tools, 1 to 50.",
    "detail": "compact or full.",
    "server": "Only this one; may be repeated.",
    "read_only": "true: only tools marked read-only.",
    "why": "true: why each was found.",
}

ROUTES = (
    Endpoint("GET", "/search", _search, "The answer of retrieve_tools.", query=_SEARCH),
    Endpoint("POST", "/call", _call, "Calls a tool in the user's own name.", body=NamedCall),
)
