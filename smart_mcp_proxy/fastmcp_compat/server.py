"""FastMCP server for agents in both eras, with tools, prompts and resources as raw JSON.

FastMCP and the SDK keep everything around their methods: negotiation, sessions, header checks, authentication,
spans, pings, cancellation. The methods themselves are answered by an innermost SDK middleware, because the
SDK's own handlers rebuild every result as a model and lose what the model does not know.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import mcp_types
from fastmcp import FastMCP
from fastmcp.server.low_level import LowLevelServer
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary
from mcp.shared._context_streams import create_context_streams
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import methods as wire_methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from smart_mcp_proxy.fastmcp_compat import list_changed
from smart_mcp_proxy.fastmcp_compat.asking import Asking, input_of, is_askable
from smart_mcp_proxy.fastmcp_compat.client_channel import Line, keep_line, line_of, standing_asking
from smart_mcp_proxy.fastmcp_compat.client_words import ClientWords
from smart_mcp_proxy.fastmcp_compat.failures import HideFailures
from smart_mcp_proxy.fastmcp_compat.handlers import ClientHandlers, ClientSession, ContentHandlers, Inbound
from smart_mcp_proxy.fastmcp_compat.list_changed import ContentGroup, ListChangedHub
from smart_mcp_proxy.fastmcp_compat.loop_detection import TellGateways
from smart_mcp_proxy.fastmcp_compat.parameters import invalid_parameters
from smart_mcp_proxy.fastmcp_compat.paths import principal, served_path
from smart_mcp_proxy.fastmcp_compat.visits import NoteVisits, Visit
from smart_mcp_proxy.models import OnProgress, Principal, Progress
from smart_mcp_proxy.trace_context import with_context

__all__ = [
    "AgentHandlers",
    "CheckedClient",
    "Client",
    "ClientSession",
    "ContentGroup",
    "ContentHandlers",
    "Inbound",
    "askable_sessions",
    "build_server",
    "checked_clients",
    "dump_message",
    "has_good_envelope",
    "message_streams",
    "parse_message",
    "request_error",
    "request_of",
    "response_id",
]

_CONNECTION_META = frozenset(
    {
        mcp_types.PROTOCOL_VERSION_META_KEY,
        mcp_types.CLIENT_INFO_META_KEY,
        mcp_types.CLIENT_CAPABILITIES_META_KEY,
        mcp_types.SERVER_INFO_META_KEY,
        mcp_types.LOG_LEVEL_META_KEY,
        "progressToken",
        "progress_token",
    }
)
"""`_meta` keys that belong to one connection and are never passed to another."""

_ENVELOPE_KEYS = (
    mcp_types.PROTOCOL_VERSION_META_KEY,
    mcp_types.CLIENT_INFO_META_KEY,
    mcp_types.CLIENT_CAPABILITIES_META_KEY,
)
_SESSION_STATE = "smart_mcp_proxy"
"""Where a connection's own scratch space holds its session."""

_UNSERVED = (
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "logging/setLevel",
)
"""Methods FastMCP registers for every server; the gateway answers some of them itself, and claims no others."""


async def _tell_nobody(what: str) -> None:
    """For clients that nobody tells of prompts and resources."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of the handshake era that has just connected.

    Attributes:
        name: As it calls itself.
        version: Likewise.
        path: Where it came in, see `served_path`.
        principal: On whose behalf.
        tell_list_changed: Tells it, and nobody else, that its list is another one.
        tell_contents_changed: Likewise of its prompts or resources.
        tell_resource_updated: Tells it that the resource of this URI is another one.
        asking: Asks it outside of its requests, and says what it can be asked for.
    """

    name: str
    version: str
    path: str
    principal: Principal
    tell_list_changed: Callable[[], Awaitable[None]]
    tell_contents_changed: Callable[[ContentGroup], Coroutine[Any, Any, None]] = _tell_nobody
    tell_resource_updated: Callable[[str], Awaitable[None]] = _tell_nobody
    asking: Asking | None = None


@dataclass(frozen=True, slots=True)
class CheckedClient:
    """A client that the SDK has let call a tool.

    Attributes:
        protocol_version: Its own.
        session: What is kept for it; None in the modern era.
        is_askable: Whether it declared that it can be asked for something.
    """

    protocol_version: str
    session: ClientSession | None
    is_askable: bool = False


class AgentHandlers(Protocol):
    """Handlers that the gateway implements.

    Attributes:
        list_changes: Knows the modern clients that are to be told when a list changes.
    """

    list_changes: ListChangedHub

    def instructions(self) -> str:
        """Instructions for a model, at the path of the present request."""

    def open_session(self, client: Client) -> ClientSession:
        """Open the state of a handshake-era client, kept until it is gone."""

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        """The `tools/list` result, whole: nothing is added to it on its way."""

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        """The `tools/call` result, whole."""

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool; called for every modern HTTP call, so it must be a look-up."""

    def first_answered(self) -> None:
        """Called when a client's first request has been answered."""


def request_error(code: int, message: str, data: Any = None) -> MCPError:
    """An exception that reaches the wire as this JSON-RPC error."""
    return MCPError(code=code, message=message, data=data)


def _progress_to(ctx: ServerRequestContext[Any]) -> OnProgress | None:
    token = (ctx.meta or {}).get("progress_token")
    if token is None:
        return None
    # The annotation says str; JSON-RPC ids are strings or integers, and the transports take both.
    session, request_id = ctx.session, cast("str | None", ctx.request_id)

    async def send(report: Progress) -> None:
        await session.send_progress_notification(
            token, report.progress, report.total, report.message, related_request_id=request_id
        )

    return send


def _inbound(ctx: ServerRequestContext[Any]) -> Inbound:
    params = ctx.params or {}
    meta = params.get("_meta") or {}
    rest = {key: value for key, value in meta.items() if key not in _CONNECTION_META}
    return Inbound(
        params=params,
        meta=rest if ctx.request is None else with_context(rest, ctx.request.headers),
        era="modern" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake",
        protocol_version=ctx.protocol_version,
        principal=principal(),
        session_id=ctx.session._connection.session_id,
        on_progress=_progress_to(ctx),
        path=served_path(),
        session=_session_of(ctx.session._connection),
        method=ctx.method,
        input=input_of(ctx),
        line=line_of(ctx),
    )


def _session_of(connection: Connection) -> ClientSession | None:
    session: ClientSession | None = connection.state.get(_SESSION_STATE)
    return session


class _RawTools:
    """Innermost SDK middleware: answers for tools, prompts and resources after its checks."""

    def __init__(self, handlers: AgentHandlers, contents: ContentHandlers | None) -> None:
        self._handlers = handlers
        self._contents = contents
        self._methods = {"tools/list", "tools/call"} | (contents.methods if contents is not None else frozenset())
        self.checked: dict[str | None, CheckedClient] = {}
        self.askable: set[str] = set()

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS  # it does not know initialize, the SDK says so
        if ctx.method == "initialize" and not is_modern and ctx.session._connection.initialize_accepted:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message="This session has been initialized already.")
        if ctx.method in ("initialize", "server/discover"):
            answer = await call_next(ctx)
            if ctx.method == "initialize":
                self._open_session(ctx.session._connection, ctx.params or {})
            self._handlers.first_answered()
            more = self._contents.capabilities() if self._contents is not None else {}
            capabilities = {**answer["capabilities"], **more}
            return {**answer, "capabilities": capabilities, "instructions": self._handlers.instructions()}
        if ctx.request_id is None or ctx.method not in self._methods:
            return await call_next(ctx)
        self._check(ctx)
        if ctx.method == "tools/list":
            return await self._handlers.list_tools(_inbound(ctx))
        if self._contents is not None and ctx.method in self._contents.methods:
            return await self._contents.answer(ctx.method, _inbound(ctx))
        return await self._handlers.call_tool(_inbound(ctx))

    def _open_session(self, connection: Connection, greeting: Mapping[str, Any]) -> None:
        info, asking = greeting["clientInfo"], standing_asking(connection, greeting["capabilities"])
        client = Client(
            info["name"],
            info["version"],
            served_path(),
            principal(),
            partial(list_changed.tell, connection),
            partial(list_changed.tell_contents, connection),
            partial(list_changed.tell_updated, connection),
            asking,
        )
        connection.exit_stack.callback(connection.state.clear)  # after all else: what is in it refers to the connection
        session = connection.state[_SESSION_STATE] = self._handlers.open_session(client)
        keep_line(connection, Line(session, asking))
        connection.exit_stack.callback(session.close)
        if connection.session_id is not None and asking.capabilities:
            self.askable.add(connection.session_id)
            connection.exit_stack.callback(self.askable.discard, connection.session_id)

    def _check(self, ctx: ServerRequestContext[Any]) -> None:
        try:
            wire_methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found", data=ctx.method) from None
        except ValidationError as exc:
            raise invalid_parameters(exc) from exc
        connection = ctx.session._connection
        if not connection.initialize_accepted:
            raise MCPError(
                code=mcp_types.INVALID_PARAMS,
                message=f"{ctx.method} came before initialize. Send initialize first.",
            )
        if connection.session_id not in self.checked:
            known = CheckedClient(ctx.protocol_version, _session_of(connection), is_askable(connection))
            self.checked[connection.session_id] = known
            # Only a session can end before the server does: a pipe has one client, and modern HTTP keeps nothing.
            if connection.session_id is not None:
                connection.exit_stack.callback(self.checked.pop, connection.session_id, None)


def build_server(
    name: str,
    version: str,
    handlers: AgentHandlers,
    contents: ContentHandlers | None = None,
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
    server: FastMCP = FastMCP(name, version=version, dereference_schemas=False)
    low = server._mcp_server
    for method in _UNSERVED:
        del low._request_handlers[method]
    _claim_only_tools(low, handlers.list_changes.is_announcing)
    handlers.list_changes.serve(low)
    # FastMCP's own seal of request states holds in this process alone; ours are sealed for the whole data directory.
    low.middleware[:] = [each for each in low.middleware if not isinstance(each, RequestStateBoundary)]
    low.middleware.append(HideFailures())
    if visiting is not None:
        low.middleware.append(NoteVisits(visiting))
    if clients is not None:
        low.middleware.append(ClientWords(clients))
    if gateways is not None:
        low.middleware.append(TellGateways(name, gateways))
    low.middleware.append(_RawTools(handlers, contents))
    low.get_tool_input_schema = handlers.input_schema
    return server


def _claim_only_tools(low: LowLevelServer[Any], is_announcing: Callable[[], bool]) -> None:
    """Has the server say what it can do: tools, and whether it announces that their list changed."""
    # FastMCP's own method claims the MCP Apps extension for every server.
    derive = super(type(low), low).get_capabilities

    def get_capabilities(*args: Any, **kwargs: Any) -> mcp_types.ServerCapabilities:
        # In the modern era the SDK takes an answer to subscriptions/listen for a promise that something will come.
        tools = mcp_types.ToolsCapability(list_changed=is_announcing())
        return derive(*args, **kwargs).model_copy(update={"tools": tools})

    low.get_capabilities = get_capabilities  # type: ignore[method-assign]  # there is no setting for it


def checked_clients(server: FastMCP) -> Mapping[str | None, CheckedClient]:
    """The clients that the SDK has let call a tool, by session id (None: the one client of a pipe)."""
    return _raw_tools(server).checked


def askable_sessions(server: FastMCP) -> Set[str]:
    """Ids of the open sessions whose clients declared that they can be asked for something."""
    return _raw_tools(server).askable


def _raw_tools(server: FastMCP) -> _RawTools:
    return next(each for each in server._mcp_server.middleware if isinstance(each, _RawTools))


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
    members = {key: meta[key] for key in _ENVELOPE_KEYS if key in meta}
    try:
        wire_methods.validate_client_request("tools/call", version, {"name": "", "_meta": members})
    except ValidationError:
        return False
    return True


def request_of(message: SessionMessage | Exception) -> mcp_types.JSONRPCRequest | None:
    """The request in `message`; None if it is something else."""
    request = message.message if isinstance(message, SessionMessage) else None
    return request if isinstance(request, mcp_types.JSONRPCRequest) else None
