"""Server for agents in both eras: raw JSON, and the middleware around its methods.

The SDK keeps everything around the methods: negotiation, sessions, pings, cancellation; over HTTP FastMCP and it keep
header checks and authentication too, see `fastmcp_server`. The methods themselves are answered by an innermost SDK
middleware, because the SDK's own handlers rebuild every result as a model and lose what the model does not know.

Private names used: `ServerRunner._on_request`, `ServerRunner._on_notify`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner
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
from smart_mcp_proxy.fastmcp_compat.methods import AgentHandlers, RawMethods
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.names import GATEWAYS_CAPABILITY
from smart_mcp_proxy.telemetry import get_logger

CallNext = Callable[[ServerRequestContext[Any]], Awaitable[Any]]
NAME_CHARS = 100
"""Characters of the name that a client gives itself."""

log = get_logger("agent")


def gateway_failed() -> ProxyError:
    """Error for a failure inside the gateway; the catcher logs its cause."""
    return ProxyError("The gateway failed.", hint="Its log says why.", delivery="unknown")


async def shape_greeting(ctx: ServerRequestContext[Any], call_next: CallNext) -> Any:
    """Give greetings the form of their models, as FastMCP does."""
    answer = await call_next(ctx)
    if ctx.method == "initialize":
        return mcp_types.InitializeResult.model_validate(answer)
    return mcp_types.DiscoverResult.model_validate(answer) if ctx.method == "server/discover" else answer


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


class MethodEntry(NamedTuple):
    """A method as the SDK looks it up.

    Attributes:
        params_type: Model of its params.
        handler: Answers, given the request and its params.
    """

    params_type: type[BaseModel]
    handler: Callable[[ServerRequestContext[Any], Any], Awaitable[Any]]


@dataclass(eq=False, repr=False)
class AgentServer:
    """Server for agents: what the SDK asks of one where it serves a stream.

    The SDK's own class has its HTTP server with it, and FastMCP's all of FastMCP: 170 modules of no use on a pipe.

    Attributes:
        name: Shown to clients.
        version: Ours.
        handlers: Answers `tools/list` and `tools/call`.
        contents: Answers what is asked of prompts and resources; None where there are tools alone.
        clients: Hears what clients say of themselves; None where nobody wants to know.
        gateways: Ids of this gateway and of those behind it, for other gateways; None where none is told.
        visiting: Entered while a request of the modern era is under way; None where nobody wants to know.
    """

    name: str
    version: str
    handlers: AgentHandlers
    contents: RequestHandlers | None = None
    clients: ClientHandlers | None = None
    gateways: Callable[[], list[str]] | None = None
    visiting: Callable[[Visit], AbstractContextManager[None]] | None = None

    def __post_init__(self) -> None:
        free_ended_connections()
        self.cache_hints: Mapping[str, Any] = {}
        """None: the handlers say themselves what may be kept."""
        listen = self.handlers.list_changes.listen
        self.methods = {
            "ping": MethodEntry(mcp_types.RequestParams, _answer_ping),
            "server/discover": MethodEntry(mcp_types.RequestParams, self._discover),
            "subscriptions/listen": MethodEntry(mcp_types.SubscriptionsListenRequestParams, listen),
        }
        """Those of which the SDK's models lose nothing."""
        self.get_request_handler = self.methods.get
        self.raw_methods = RawMethods(self.handlers, self.contents)
        self.middleware: list[Any] = [shape_greeting, hide_failures]
        """Around each message, outermost first."""
        if self.visiting is not None:
            self.middleware.append(partial(note_visit, self.visiting))
        if self.clients is not None:
            self.middleware.append(partial(hear_client, self.clients))
        if self.gateways is not None:
            self.middleware.append(partial(tell_gateways, self.name, self.gateways))
        self.middleware.append(self.raw_methods)

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """Name and version, for each answer of the modern era."""
        return {"name": self.name, "version": self.version}

    def get_notification_handler(self, method: str) -> None:
        """Return None: what notifications say is heard by the middleware."""

    def get_capabilities(self, *_: Any, **__: Any) -> mcp_types.ServerCapabilities:
        """Offer tools, and say whether it is announced that their list changed.

        In the modern era the SDK takes an answer to subscriptions/listen for a promise that something will come.
        """
        tools = mcp_types.ToolsCapability(list_changed=self.handlers.list_changes.is_announcing())
        return mcp_types.ServerCapabilities(tools=tools)

    def create_initialization_options(self) -> InitializationOptions:
        """Build the greeting of the handshake era."""
        offered = self.get_capabilities()
        return InitializationOptions(server_name=self.name, server_version=self.version, capabilities=offered)

    async def _discover(self, ctx: ServerRequestContext[Any], params: object) -> mcp_types.DiscoverResult:
        versions = list(MODERN_PROTOCOL_VERSIONS)
        return mcp_types.DiscoverResult(supported_versions=versions, capabilities=self.get_capabilities())


async def _answer_ping(ctx: ServerRequestContext[Any], params: object) -> dict[str, Any]:
    return {}


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


def free_ended_connections() -> None:
    """Stop each connection's runner from referring to itself.

    The SDK keeps the runner's bound methods on the runner. It then lives until a collection of the oldest generation,
    and with it all that belonged to the connection: 14 KB for each session that was opened and never ended. The
    collector of a serving process does not look at all objects again, see web/collector.py.
    """
    for name, own in (("on_request", "_on_request"), ("on_notify", "_on_notify")):
        setattr(ServerRunner, name, property(attrgetter(own)))
