"""REST: the gateway and its servers."""

from typing import Any

from starlette.requests import Request

from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.models import ServerStatus
from smart_mcp_proxy.web.rest.route import Endpoint, integer

__all__ = ["ROUTES"]

LOG_LINES = 50
LOG_LINES_MOST = 1000


async def _status(gateway: Gateway, request: Request) -> dict[str, Any]:
    status = gateway.status()
    return {
        "version": status.version,
        "pid": status.pid,
        "generation": status.generation,
        "is_loaded": status.is_loaded,
        "is_settled": gateway.is_settled(),
        "tools": sum(status.tools.values()),
        "catalog_tokens": status.catalog_tokens,
        "degraded": list(status.degraded),
        "servers": _all(status),
    }


async def _list(gateway: Gateway, request: Request) -> list[dict[str, Any]]:
    return _all(gateway.status())


async def _logs(gateway: Gateway, request: Request) -> dict[str, Any]:
    name = request.path_params["name"]
    gateway.visible.require_servers([name])
    upstream = gateway.fleet.get(name)
    lines = integer(request, "lines", LOG_LINES, 1, LOG_LINES_MOST)
    return {"server": name, "lines": upstream.logs(lines) if upstream is not None else []}


def _all(status: GatewayStatus) -> list[dict[str, Any]]:
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


ROUTES = (
    Endpoint("GET", "/status", _status, "The gateway and its servers."),
    Endpoint("GET", "/servers", _list, "All servers."),
    Endpoint("GET", "/servers/{name}/logs", _logs, "Last lines of a stdio server's stderr (lines=50)."),
)
