"""REST: searches and calls in the user's own name."""

from typing import Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.retrieval import Question
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.web.rest.route import COMMAND_LINE, Endpoint, integer

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
    try:
        body = msgspec.json.decode(await request.body(), type=_Call)
    except msgspec.MsgspecError as exc:
        raise RequestError(f"The body is not a call: {exc}.", hint='Send {"name": ..., "arguments": {}}.') from exc
    return await gateway.calls.call(
        CallRequest(name=body.name, arguments=body.arguments, variant=None, session=COMMAND_LINE)
    )


class _Call(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


ROUTES = (
    Endpoint("GET", "/search", _search, "q, limit, detail, server, read_only, why: the answer of retrieve_tools."),
    Endpoint("POST", "/call", _call, 'Calls a tool: {"name", "arguments"}.'),
)
