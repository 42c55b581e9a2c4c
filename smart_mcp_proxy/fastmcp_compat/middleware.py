"""SDK middleware around the methods: failures, visits, and what the greeting says.

Private names used: `FastMCP._mcp_server`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, NamedTuple

import mcp_types
from fastmcp import FastMCP
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import methods as wire_methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.fastmcp_compat.asking import find_client_channel
from smart_mcp_proxy.fastmcp_compat.handlers import ClientHandlers
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.names import GATEWAYS_CAPABILITY
from smart_mcp_proxy.telemetry import get_logger

CallNext = Callable[[ServerRequestContext[Any]], Awaitable[Any]]
EditBlock = Callable[[Mapping[str, Any]], Mapping[str, Any]]
NAME_CHARS = 100
"""Of what a client calls itself."""

log = get_logger("agent")


def gateway_failed() -> ProxyError:
    """Error for a failure inside the gateway; the catcher logs its cause."""
    return ProxyError("The gateway failed.", hint="Its log says why.", delivery="unknown")


async def hide_failures(ctx: ServerRequestContext[Any], call_next: CallNext) -> Any:
    """Answer without the gateway's inside; the SDK would send the text of any exception."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):  # they have an answer of their own
        raise
    except Exception as exc:  # boundary: top of a request's task; the agent gets an answer and no internals
        log.exception("%s failed inside the gateway", ctx.method)
        told = gateway_failed()
        raise MCPError(code=told.jsonrpc_code, message=str(told), data={"code": told.error_code}) from exc


class Visit(NamedTuple):
    """Identity and path of a modern request's client, which has no session.

    Attributes:
        client: As it calls itself.
        version: Likewise.
        protocol_version: That it speaks.
        transport: Which way it came.
        path: See `get_request_path`.
        principal: Id of the principal on whose behalf it came.
    """

    client: str
    version: str
    protocol_version: str
    transport: Literal["stdio", "http"]
    path: str
    principal: str


async def note_visit(
    visiting: Callable[[Visit], AbstractContextManager[None]], ctx: ServerRequestContext[Any], call_next: CallNext
) -> Any:
    """Note a modern client while its request is under way; calls of the fast path do not pass here."""
    if ctx.request_id is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return await call_next(ctx)
    meta = (ctx.params or {}).get("_meta")
    info = meta.get(mcp_types.CLIENT_INFO_META_KEY) if isinstance(meta, Mapping) else None
    stated = (info.get("name"), info.get("version")) if isinstance(info, Mapping) else ("", "")
    name, version = (text[:NAME_CHARS] if isinstance(text, str) else "" for text in stated)
    transport: Literal["stdio", "http"] = "stdio" if ctx.request is None else "http"
    with visiting(Visit(name, version, ctx.protocol_version, transport, get_request_path(), principal().id)):
        return await call_next(ctx)


async def hear_client(handlers: ClientHandlers, ctx: ServerRequestContext[Any], call_next: CallNext) -> Any:
    """Hand on log levels and changed roots of handshake-era clients; have the greeting offer it."""
    if ctx.method == "initialize":
        answer = await call_next(ctx)
        return {**answer, "capabilities": {**answer["capabilities"], **handlers.capabilities()}}
    line = find_client_channel(ctx)
    if line is None:  # the modern era, or before its greeting
        return await call_next(ctx)
    if ctx.method == "notifications/roots/list_changed":
        handlers.roots_changed(line.client)
    elif ctx.method == "logging/setLevel" and handlers.capabilities():
        await handlers.set_level(line.client, _parse_log_level(ctx))
        return {}
    return await call_next(ctx)


def _parse_log_level(ctx: ServerRequestContext[Any]) -> str:
    try:
        wire_methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
    except ValidationError as exc:
        words = "Invalid request parameters: 'level' is none of the protocol's levels."
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=words) from exc
    level: str = (ctx.params or {})["level"]
    return level


async def tell_gateways(
    name: str, gateways: Callable[[], list[str]], ctx: ServerRequestContext[Any], call_next: CallNext
) -> Any:
    """Name this gateway and those behind it to another gateway, so that none becomes its own server.

    Args:
        name: Ours; a client that calls itself so is a gateway.
        gateways: Their ids.
        ctx: The request.
        call_next: Answers it.
    """
    answer = await call_next(ctx)
    if ctx.method not in ("initialize", "server/discover") or _client_name(ctx.params or {}) != name:
        return answer
    told = {GATEWAYS_CAPABILITY: {"ids": gateways()}}
    return {**answer, "capabilities": {**answer["capabilities"], "experimental": told}}


def _client_name(params: Mapping[str, Any]) -> object:
    meta = params.get("_meta")
    info = params.get("clientInfo") or (isinstance(meta, Mapping) and meta.get(mcp_types.CLIENT_INFO_META_KEY))
    return info.get("name") if isinstance(info, Mapping) else None


def edit_handshake_content(server: FastMCP, tool: str, edit: EditBlock) -> None:
    """Have each content block in the results of a tool changed for clients of the handshake era.

    Behind all models, as the outermost middleware: those of FastMCP and the SDK drop what they do not know.

    Args:
        server: Lists the tool.
        tool: Its name.
        edit: Returns the block as it is sent.
    """
    server._mcp_server.middleware.insert(0, partial(_edit_content, tool, edit))


async def _edit_content(tool: str, edit: EditBlock, ctx: ServerRequestContext[Any], call_next: CallNext) -> Any:
    answer = await call_next(ctx)
    is_meant = ctx.method == "tools/call" and (ctx.params or {}).get("name") == tool
    if not is_meant or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return answer
    if isinstance(answer, BaseModel):
        answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {**answer, "content": [edit(block) for block in answer.get("content", ())]}
