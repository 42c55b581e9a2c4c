"""Methods answered for agents as raw JSON, in both eras, after the SDK's checks.

The innermost SDK middleware: the SDK's own handlers rebuild every result as a model and lose what the model does not
know.

Private names used: `ServerSession._connection`.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, cast

import mcp_types
import msgspec
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import methods as wire_methods
from mcp_types.jsonrpc import HEADER_MISMATCH
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from smart_mcp_proxy.extensions import EXTENSIONS, Extensions, read_client_extensions
from smart_mcp_proxy.fastmcp_compat import list_changed
from smart_mcp_proxy.fastmcp_compat.asking import (
    CHANNEL_STATE,
    Asking,
    ClientChannel,
    build_client_input,
    find_client_channel,
    is_askable,
    read_input_capabilities,
)
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession, Inbound, RequestHandlers
from smart_mcp_proxy.fastmcp_compat.list_changed import ContentGroup, ListChangedHub
from smart_mcp_proxy.fastmcp_compat.paths import get_pipe_clients, get_request_path, principal
from smart_mcp_proxy.models import Era, OnProgress, Principal, ProgressReport
from smart_mcp_proxy.trace_context import with_context

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

_SESSION_STATE = "smart_mcp_proxy"
"""Key in a connection's own scratch space of its session."""


_EXTENSION_PARAMS: Final[Mapping[str, Mapping[str, type]]] = {
    method: params for extension in EXTENSIONS.values() for method, params in extension.methods.items()
}
"""Methods of extensions, which the SDK does not know, and the params that each cannot do without."""


async def _tell_nobody(what: str) -> None:
    """For clients that nobody tells of prompts and resources."""


class HandshakeClient(msgspec.Struct, frozen=True):
    """A client of the handshake era that has just connected.

    Attributes:
        name: As it calls itself.
        version: Likewise.
        path: Where it came in, see `get_request_path`.
        principal: On whose behalf.
        tell_list_changed: Tells it, and nobody else, that its list is another one.
        tell_contents_changed: Likewise of its prompts or resources.
        tell_resource_updated: Tells it that the resource of this URI is another one.
        asking: Asks it outside of its requests, and says what it can be asked for.
        extensions: What it declared of extensions; None where nothing.
        protocol_version: That was agreed on.
        transport: Which way it came.
        session_id: Of its session; None on a pipe.
    """

    name: str
    version: str
    path: str
    principal: Principal
    tell_list_changed: Callable[[], Awaitable[None]]
    tell_contents_changed: Callable[[ContentGroup], Coroutine[Any, Any, None]] = _tell_nobody
    tell_resource_updated: Callable[[str], Awaitable[None]] = _tell_nobody
    asking: Asking | None = None
    extensions: Extensions | None = None
    protocol_version: str = ""
    transport: Literal["stdio", "http"] = "stdio"
    session_id: str | None = None


class CheckedClient(msgspec.Struct, frozen=True):
    """A client that the SDK has let call a tool.

    Attributes:
        protocol_version: Its own.
        session: What is kept for it; None in the modern era.
        is_askable: Whether it declared that it can be asked for something.
        extensions: What it declared of extensions in its greeting; None where nothing, and in the modern era.
    """

    protocol_version: str
    session: ClientSession | None
    is_askable: bool = False
    extensions: Extensions | None = None


class AgentHandlers(Protocol):
    """Handlers that the gateway implements.

    Attributes:
        list_changes: Knows the modern clients that are to be told when a list changes.
    """

    list_changes: ListChangedHub

    def instructions(self) -> str:
        """Instructions for a model, at the path of the present request."""

    def open_session(self, client: HandshakeClient) -> ClientSession:
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

    async def send(report: ProgressReport) -> None:
        await session.send_progress_notification(
            token, report.progress, report.total, report.message, related_request_id=request_id
        )

    return send


def _inbound(ctx: ServerRequestContext[Any]) -> Inbound:
    params = ctx.params or {}
    meta = params.get("_meta") or {}
    rest = {key: value for key, value in meta.items() if key not in _CONNECTION_META}
    era: Era = "modern" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"
    stated = meta.get(mcp_types.CLIENT_CAPABILITIES_META_KEY)
    return Inbound(
        params=params,
        meta=rest if ctx.request is None else with_context(rest, ctx.request.headers),
        era=era,
        protocol_version=ctx.protocol_version,
        principal=principal(),
        session_id=ctx.session._connection.session_id,
        on_progress=_progress_to(ctx),
        path=get_request_path(),
        session=ctx.session._connection.state.get(_SESSION_STATE),
        method=ctx.method,
        input=build_client_input(ctx),
        line=find_client_channel(ctx),
        extensions=read_client_extensions(stated, era)
        if era == "modern"
        else _read_handshake_extensions(ctx.session._connection),
    )


def _read_handshake_extensions(connection: Connection) -> Extensions | None:
    """Extensions that a client of the handshake era declared in its greeting."""
    capabilities = connection.client_capabilities
    if connection.protocol_version in MODERN_PROTOCOL_VERSIONS or capabilities is None:
        return None
    return read_client_extensions(capabilities.model_dump(by_alias=True, mode="json", exclude_none=True), "handshake")


def _require_params(params: Mapping[str, Any], wanted: Mapping[str, type]) -> None:
    """Raise `MCPError` where a member is missing or of another type."""
    for name, kind in wanted.items():
        if not isinstance(params.get(name), kind):
            words = "an object" if kind is dict else "a text"
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"The params have no '{name}', or it is not {words}.")


def _require_name(ctx: ServerRequestContext[Any]) -> None:
    """Raise `MCPError` where a request over HTTP names another task in its header, or none.

    Source: https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md
    """
    task_id = (ctx.params or {}).get("taskId")
    if task_id is None or ctx.request is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    stated = ctx.request.headers.get(MCP_NAME_HEADER)
    if stated is None or decode_header_value(stated) != task_id:
        message = f"The header {MCP_NAME_HEADER} is missing, or differs from params.taskId."
        raise MCPError(code=HEADER_MISMATCH, message=message)


class RawMethods:
    """Innermost SDK middleware: answers for tools, prompts and resources after its checks."""

    def __init__(self, handlers: AgentHandlers, contents: RequestHandlers | None) -> None:
        self._handlers = handlers
        self._contents = contents
        self._methods = {"tools/list", "tools/call"} | (contents.methods if contents is not None else frozenset())
        self.checked: dict[str | None, CheckedClient] = {}
        """Clients that the SDK has let call a tool, by session id (None: the one client of a pipe)."""
        self.askable: set[str] = set()
        """Ids of the open sessions whose clients declared that they can be asked for something."""

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Answer a request, or hand it on."""
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS  # it does not know initialize, the SDK says so
        if ctx.method == "initialize" and not is_modern and ctx.session._connection.initialize_accepted:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message="This session has been initialized already.")
        if ctx.method in ("initialize", "server/discover"):
            answer = await call_next(ctx)
            if ctx.method == "initialize":
                self._open_session(ctx, answer["protocolVersion"])
            self._handlers.first_answered()
            era: Era = "handshake" if ctx.method == "initialize" else "modern"
            more = self._contents.capabilities(era) if self._contents is not None else {}
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

    def _open_session(self, ctx: ServerRequestContext[Any], version: str) -> None:
        connection, greeting = ctx.session._connection, ctx.params or {}
        info, inputs = greeting["clientInfo"], read_input_capabilities(greeting["capabilities"])
        asking = Asking(inputs, connection.protocol_version, connection.outbound)
        client = HandshakeClient(
            info["name"],
            info["version"],
            get_request_path(),
            principal(),
            partial(list_changed.tell, connection),
            partial(list_changed.tell, connection),
            partial(list_changed.tell, connection, "resources"),
            asking,
            read_client_extensions(greeting["capabilities"], "handshake"),
            version,
            "stdio" if ctx.request is None else "http",
            connection.session_id,
        )
        connection.exit_stack.callback(connection.state.clear)  # after all else: what is in it refers to the connection
        session = connection.state[_SESSION_STATE] = self._handlers.open_session(client)
        connection.state[CHANNEL_STATE] = ClientChannel(session, asking)
        connection.exit_stack.callback(session.close)
        if connection.session_id is not None and asking.capabilities:
            self.askable.add(connection.session_id)
            connection.exit_stack.callback(self.askable.discard, connection.session_id)

    def _check(self, ctx: ServerRequestContext[Any]) -> None:
        wanted = _EXTENSION_PARAMS.get(ctx.method)
        try:
            # Of a method that the SDK does not know, it knows the envelope and the cursor.
            method = ctx.method if wanted is None else "resources/list"
            wire_methods.validate_client_request(method, ctx.protocol_version, ctx.params)
            if wanted is not None:
                _require_params(ctx.params or {}, wanted)
                _require_name(ctx)
        except KeyError:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found", data=ctx.method) from None
        except ValidationError as exc:
            raise invalid_parameters(exc) from exc
        connection = ctx.session._connection
        if not connection.initialize_accepted:
            raise MCPError(
                code=mcp_types.INVALID_PARAMS, message=f"{ctx.method} came before initialize. Send initialize first."
            )
        checked = get_pipe_clients(self.checked)
        if connection.session_id not in checked:
            state, extensions = connection.state.get(_SESSION_STATE), _read_handshake_extensions(connection)
            known = CheckedClient(ctx.protocol_version, state, is_askable(connection), extensions)
            checked[connection.session_id] = known
            # Only a session can end before the server does: a pipe has one client, and modern HTTP keeps nothing.
            if connection.session_id is not None:
                connection.exit_stack.callback(self.checked.pop, connection.session_id, None)


def invalid_parameters(error: ValidationError) -> MCPError:
    """The answer to a request whose parameters are not its method's: which one, and what is wrong with it.

    Where several forms are allowed, it is about the one that the request says it has.
    """
    faults: Sequence[Mapping[str, Any]] = error.errors(include_url=False, include_input=False)
    kinds = [fault for fault in faults if fault["type"] == "literal_error"]
    others = {fault["loc"][:-1] for fault in kinds}
    meant = [fault for fault in faults if fault["loc"][:-1] not in others]
    if meant or not kinds:
        fault = (meant or faults)[0]
        wrong = "is missing" if fault["type"] == "missing" else "is not what the method takes"
        where = _place(fault["loc"])
    else:
        where, wrong = _place(kinds[0]["loc"]), "is none of " + ", ".join(kind["ctx"]["expected"] for kind in kinds)
    return MCPError(code=mcp_types.INVALID_PARAMS, message=f"Invalid request parameters: '{where}' {wrong}.")


def _place(location: Sequence[str | int]) -> str:
    """Without the SDK's names of the forms that a member may have, which are names of its classes."""
    return ".".join(part for part in map(str, location) if not (part[:1].isupper() and hasattr(mcp_types, part)))
