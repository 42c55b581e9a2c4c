"""REST: what the command line asks a gateway, in one table of routes.

GET    /api/v1/status                the gateway and its servers
GET    /api/v1/servers               all servers
GET    /api/v1/servers/{name}/logs   last lines of a stdio server's stderr (lines=50)
GET    /api/v1/tools                 all visible tools (server=NAME to narrow)
GET    /api/v1/tools/{name}          one tool's whole definition, and what was learned about it
GET    /api/v1/search                q, limit, detail, server, read_only, why: the answer of retrieve_tools
POST   /api/v1/call                  {"name", "arguments"}: a call in the user's own name
DELETE /api/v1/examples              tool, question: forgets what was learned, about all tools if none is named
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smart_mcp_proxy.catalog import Example
from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.gateway.learning import forget_examples
from smart_mcp_proxy.gateway.retrieval import Question
from smart_mcp_proxy.models import CallRequest, ServerStatus

__all__ = ["build_rest_app"]

COMMAND_LINE = "command line"
"""Session of a person's own searches and calls: theirs teach, but not together with an agent's."""
LOG_LINES = 50
LOG_LINES_MOST = 1000


def build_rest_app(gateway: Gateway) -> Starlette:
    """The ASGI app of the routes above. It trusts its caller: serve it on a private socket only."""
    rest = _Rest(gateway)
    routes: list[tuple[str, Literal["GET", "POST", "DELETE"], Callable[[Request], Awaitable[Any]]]] = [
        ("/api/v1/status", "GET", rest.status),
        ("/api/v1/servers", "GET", rest.servers),
        ("/api/v1/servers/{name}/logs", "GET", rest.logs),
        ("/api/v1/tools", "GET", rest.tools),
        ("/api/v1/tools/{name:path}", "GET", rest.tool),
        ("/api/v1/search", "GET", rest.search),
        ("/api/v1/call", "POST", rest.call),
        ("/api/v1/examples", "DELETE", rest.forget_examples),
    ]
    return Starlette(routes=[Route(path, _answering(handler), methods=[method]) for path, method, handler in routes])


def _answering(handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            value, status = await handler(request), 200
        except ProxyError as error:
            value, status = {"error": error.to_dict()}, error.http_status
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return Response(body, status_code=status, media_type="application/json")

    return endpoint


class _Rest:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def status(self, request: Request) -> dict[str, Any]:
        status = self._gateway.status()
        return {
            "version": status.version,
            "pid": status.pid,
            "generation": status.generation,
            "is_loaded": status.is_loaded,
            "is_settled": self._gateway.is_settled(),
            "tools": sum(status.tools.values()),
            "catalog_tokens": status.catalog_tokens,
            "degraded": list(status.degraded),
            "servers": _servers(status),
        }

    async def servers(self, request: Request) -> list[dict[str, Any]]:
        return _servers(self._gateway.status())

    async def logs(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        self._gateway.visible.require_servers([name])
        upstream = self._gateway.fleet.get(name)
        lines = _integer(request, "lines", LOG_LINES, 1, LOG_LINES_MOST)
        return {"server": name, "lines": upstream.logs(lines) if upstream is not None else []}

    async def tools(self, request: Request) -> list[dict[str, Any]]:
        server = request.query_params.get("server")
        if server is not None:
            self._gateway.visible.require_servers([server])
        records = (record for record in self._gateway.visible.records() if server in (None, record.key.server))
        return [self._gateway.retrieval.summarize(record) for record in sorted(records, key=lambda one: one.key)]

    async def tool(self, request: Request) -> dict[str, Any]:
        record = await self._gateway.visible.require(request.path_params["name"])
        examples = await self._gateway.catalog.examples_of(record.key)
        return self._gateway.retrieval.describe(record) | {"examples": [_example(example) for example in examples]}

    async def search(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        return await self._gateway.retrieval.retrieve(
            Question(
                query=query.get("q", ""),
                limit=_integer(request, "limit", self._gateway.settings.top_k, 1, 50),
                detail="full" if query.get("detail") == "full" else "compact",
                servers=tuple(query.getlist("server")),
                read_only=query.get("read_only") == "true",
                session=COMMAND_LINE,
                explain=query.get("why") == "true",
            )
        )

    async def call(self, request: Request) -> bytes:
        try:
            body = msgspec.json.decode(await request.body(), type=_Call)
        except msgspec.MsgspecError as exc:
            raise RequestError(f"The body is not a call: {exc}.", hint='Send {"name": ..., "arguments": {}}.') from exc
        return await self._gateway.calls.call(
            CallRequest(name=body.name, arguments=body.arguments, variant=None, session=COMMAND_LINE)
        )

    async def forget_examples(self, request: Request) -> dict[str, int]:
        query = request.query_params
        count = await forget_examples(self._gateway.catalog, query.get("tool"), query.get("question"))
        await self._gateway.indexer.follow()
        return {"forgotten": count}


class _Call(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


def _example(example: Example) -> dict[str, Any]:
    return {
        "question": example.question,
        "uses": example.uses,
        "last_used_s": example.last_used_s,
        "is_confirmed": example.is_confirmed,
    }


def _servers(status: GatewayStatus) -> list[dict[str, Any]]:
    return [_server(server, status.tools.get(server.name, 0)) for server in status.servers]


def _server(server: ServerStatus, tools: int) -> dict[str, Any]:
    return {
        "name": server.name,
        "transport": server.transport,
        "state": server.state.value,
        "tools": tools,
        "error": server.error,
        "hint": server.hint,
        "era": server.era,
        "protocol_version": server.protocol_version,
        "server_info": server.server_info,
        "restarts": server.restarts,
    }


def _integer(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise RequestError(f"{name} is {text[:40]!r}.", hint=f"Use an integer from {least} to {most}.")
    return int(text)
