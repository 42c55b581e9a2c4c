"""FastMCP server for agents in both eras: raw JSON, and the middleware around its methods.

FastMCP and the SDK keep everything around their methods: negotiation, sessions, header checks, authentication,
spans, pings, cancellation. The methods themselves are answered by an innermost SDK middleware, because the
SDK's own handlers rebuild every result as a model and lose what the model does not know.

Private names used: `FastMCP._mcp_server`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import mcp_types
from fastmcp import FastMCP
from fastmcp.server import low_level
from fastmcp.server.low_level import LowLevelServer
from mcp.server.context import ServerRequestContext
from mcp.shared._context_streams import create_context_streams
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import methods as wire_methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.fastmcp_compat.asking import find_client_channel
from smart_mcp_proxy.fastmcp_compat.handlers import ClientHandlers, RequestHandlers
from smart_mcp_proxy.fastmcp_compat.methods import AgentHandlers, CheckedClient, RawMethods
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


_UNSERVED = (
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "logging/setLevel",
)
"""Methods FastMCP registers for every server; the gateway answers some of them itself, and claims no others."""


def build_server(
    name: str,
    version: str,
    handlers: AgentHandlers,
    contents: RequestHandlers | None = None,
    clients: ClientHandlers | None = None,
    gateways: Callable[[], list[str]] | None = None,
    visiting: Callable[[Visit], AbstractContextManager[None]] | None = None,
) -> FastMCP:
    """Build a FastMCP server whose tools `handlers` answer; the serving app authenticates.

    Args:
        name: Shown to clients.
        version: Ours.
        handlers: Answers `tools/list` and `tools/call`.
        contents: Answers what is asked of prompts and resources; None where there are tools alone.
        clients: Hears what clients say of themselves; None where nobody wants to know.
        gateways: Ids of this gateway and of those behind it, for other gateways; None where none is told.
        visiting: Entered while a request of the modern era is under way; None where nobody wants to know.
    """
    # FastMCP's rich log handler wraps lines at 80 columns; our own handlers format everything.
    logging.getLogger("fastmcp").handlers.clear()
    logging.getLogger("fastmcp").propagate = True
    with _leave_states_unsealed() as security:
        server: FastMCP = FastMCP(name, version=version, dereference_schemas=False, request_state_security=security)
    low = server._mcp_server
    low.middleware.remove(cast(Any, security))
    for method in _UNSERVED:
        del low._request_handlers[method]
    _claim_only_tools(low, handlers.list_changes.is_announcing)
    handlers.list_changes.serve(low)
    low.middleware.append(hide_failures)
    if visiting is not None:
        low.middleware.append(partial(note_visit, visiting))
    if clients is not None:
        low.middleware.append(partial(hear_client, clients))
    if gateways is not None:
        low.middleware.append(partial(tell_gateways, name, gateways))
    low.middleware.append(RawMethods(handlers, contents))
    low.get_tool_input_schema = handlers.input_schema
    return server


@contextmanager
def _leave_states_unsealed() -> Iterator[Any]:
    """Have FastMCP make servers without its seal of request states while open; yields what stands for it.

    It holds in this process alone, and its cryptography takes 6 MB; ours are sealed for the whole data directory.
    """
    module: Any = low_level
    seal, instead = module.RequestStateBoundary, SimpleNamespace(audience="")
    module.RequestStateBoundary = lambda *_, **__: instead
    try:
        yield instead
    finally:
        module.RequestStateBoundary = seal


def _claim_only_tools(low: LowLevelServer[Any], is_announcing: Callable[[], bool]) -> None:
    """Has the server say what it can do: tools, and whether it announces that their list changed."""
    # FastMCP's own method claims the MCP Apps extension for every server.
    derive = super(type(low), low).get_capabilities

    def get_capabilities(*args: Any, **kwargs: Any) -> mcp_types.ServerCapabilities:
        # In the modern era the SDK takes an answer to subscriptions/listen for a promise that something will come.
        tools = mcp_types.ToolsCapability(list_changed=is_announcing())
        return derive(*args, **kwargs).model_copy(update={"tools": tools})

    low.get_capabilities = get_capabilities  # type: ignore[method-assign]  # there is no setting for it


def get_checked_clients(server: FastMCP) -> Mapping[str | None, CheckedClient]:
    """The clients that the SDK has let call a tool, by session id (None: the one client of a pipe)."""
    return _raw_tools(server).checked


def askable_sessions(server: FastMCP) -> Set[str]:
    """Ids of the open sessions whose clients declared that they can be asked for something."""
    return _raw_tools(server).askable


def _raw_tools(server: FastMCP) -> RawMethods:
    return next(each for each in server._mcp_server.middleware if isinstance(each, RawMethods))


def message_streams() -> tuple[Any, Any]:
    """A connected pair of message streams: one to send into, one to iterate over."""
    return create_context_streams[SessionMessage | Exception](0)


def parse_message(line: bytes) -> SessionMessage:
    """The JSON-RPC message in `line`.

    Raises:
        ValidationError: It is not one.
    """
    return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))


def dump_message(message: SessionMessage) -> bytes:
    """Serialise a message as one line of JSON without line end; an error if it cannot be."""
    try:
        return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except PydanticSerializationError:
        error = mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="The answer cannot be written as JSON.")
        reply = mcp_types.JSONRPCError(jsonrpc="2.0", id=response_id(message), error=error)
        return reply.model_dump_json(by_alias=True, exclude_unset=True).encode()


def response_id(message: SessionMessage) -> int | str | None:
    """The id of the request that the message answers; None if it answers none."""
    reply = message.message
    return reply.id if isinstance(reply, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError) else None


def has_good_envelope(version: str, meta: Mapping[str, Any]) -> bool:
    """Whether the SDK finds nothing wrong with the members of a modern request's envelope."""
    try:
        wire_methods.validate_client_request("tools/call", version, {"name": "", "_meta": meta})
    except ValidationError:
        return False
    return True


def extract_request(message: SessionMessage | Exception) -> mcp_types.JSONRPCRequest | None:
    """The request in `message`; None if it is something else."""
    request = message.message if isinstance(message, SessionMessage) else None
    return request if isinstance(request, mcp_types.JSONRPCRequest) else None
