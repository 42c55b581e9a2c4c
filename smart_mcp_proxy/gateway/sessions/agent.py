"""The gateway as an agent meets it over MCP: the list it is shown and the calls it makes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import msgspec
from anyio import move_on_after
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from smart_mcp_proxy.errors import Delivery, ProxyError, RpcAnswer, ShuttingDownError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession, Inbound
from smart_mcp_proxy.fastmcp_compat.list_changed import Following, ListChangedHub, Watching, watch_nothing
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient, request_error
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.fastmcp_compat.server import gateway_failed
from smart_mcp_proxy.gateway.calls.inputs import InputRounds
from smart_mcp_proxy.gateway.calls.request_states import INVALID_STATE
from smart_mcp_proxy.gateway.observability.tracing import TOOL_CALL, Tracing
from smart_mcp_proxy.gateway.results.results import error_result, fit_to_era
from smart_mcp_proxy.gateway.sessions.app_calls import AppCalls
from smart_mcp_proxy.gateway.sessions.content_lookup import build_caller
from smart_mcp_proxy.gateway.sessions.tool_surface import Routing
from smart_mcp_proxy.gateway.shared.agent_tools import CallTool, ToolList
from smart_mcp_proxy.gateway.shared.changes import wait_change_settled
from smart_mcp_proxy.gateway.shared.sessions import Audience, Session
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.gateway.visibility.items import unknown_cursor
from smart_mcp_proxy.models import Era, Principal
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn

UNKNOWN_TOOL = -32602
"""An unknown tool is a protocol error. Source: https://modelcontextprotocol.io/specification/2026-07-28/server/tools"""
NOT_FOUND = -32602
"""A path that holds no list is a parameter that is not valid."""
PATH_CHARS = 100
"""Characters shown of a path that holds no list."""
NAME_CHARS = 200
"""Characters shown or compared of a name that is not listed."""

DRAIN_S = 10.0
"""Seconds that calls in flight get when the gateway has to stop. Source: docs/design/processes.md#stopping"""
RETRY_AFTER_STOP_S = 5.0
LAST_ANSWERS_S = 1.0
"""Seconds that calls which are then ended get to say so."""

log = get_logger("agent")


@dataclass(eq=False, repr=False)
class Agent:
    """Answers `tools/list` and `tools/call`, and tells clients when their list changes.

    Attributes:
        routing: Which client sees which tools.
        on_first_answer: Called once, when a client has been answered for the first time.
        questions: Says whether any server may ask a client something while it is called.
        on_list_changed: Called whenever clients are told that a list has changed.
        on_session: Called with every client of the handshake era that connects.
        watching: Subscribes to the resources that a client of the modern era names.
        may_need_line: Whether any server knows each client of the handshake era; a look-up.
        apps: Finds the tools that interfaces call; None where none does.
        following: Looks at the tasks that a client of the modern era names.
        tracing: Makes spans of the calls; None where nothing is traced.
    """

    routing: Routing
    on_first_answer: Callable[[], None] | None
    questions: InputRounds
    on_list_changed: Callable[[], None] | None = None
    on_session: Callable[[Session], None] = lambda session: None
    watching: Watching = watch_nothing
    may_need_line: Callable[[], bool] = lambda: False
    _: KW_ONLY
    apps: AppCalls | None = None
    following: Following | None = None
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        self.list_changes = ListChangedHub(
            is_announcing=lambda: self.routing.is_changing,
            on_listen=self._listen_at,
            on_leave=self._leave,
            watching=self.watching,
            following=self.following,
        )
        self._sessions: set[Session] = set()
        self._listeners: dict[tuple[str, Principal], Audience] = {}
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The connected clients of the handshake era."""
        return tuple(self._sessions)

    def instructions(self) -> str:
        """Instructions for a model, for the path of the present request."""
        return self.require_tools(get_request_path(), principal()).instructions

    def open_session(self, client: HandshakeClient) -> Session:
        """Open the session of a client of the handshake era."""
        route = self.routing.route(client)
        session = Session(
            client,
            route,
            lambda changed: _require(self.routing.open_tools(client, route, changed), client.path),
            self.routing.conduct.watch(client.name),
            on_told=self._report_list_change,
            on_close=self._sessions.discard,
        )
        if session.tool_list.state() is not None:
            session.note_shown()  # a list that is known already may change before the client has asked for it
        self._sessions.add(session)
        self.on_session(session)
        return session

    def require_tools(self, path: str, principal: Principal) -> ToolList:
        """Return the tools of a modern client at a path.

        Raises:
            MCPError: Nothing is at this path, or not for this principal.
        """
        return _require(self.routing.find_tools(path, principal), path)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool that is listed where the present request came in; a look-up."""
        tools = self.routing.find_tools(get_request_path(), principal())
        return tools.input_schema(name) if tools is not None else None  # whoever answers the request says so

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        """List the tools on one page; the modern era also gets lifetime and scope of the list.

        Raises:
            MCPError: Another page is asked for, or nothing is at this path.
        """
        if inbound.params.get("cursor"):
            error = unknown_cursor()
            raise request_error(error.jsonrpc_code, str(error), error.to_dict())
        tools = self.choose_tools(inbound.session, inbound.path, inbound.principal)
        await tools.wait_listed()
        shown = tools.definitions(inbound.era)
        listing = {"tools": shown} if self.apps is None else self.apps.build_listing(shown, inbound)
        if isinstance(inbound.session, Session):
            inbound.session.note_listed()
        if inbound.era == "handshake":
            return listing
        listing |= {"ttlMs": tools.list_ttl_ms, "cacheScope": "private"}
        whole = fit_to_era(RawResult(msgspec.json.encode(listing)), inbound.era)
        return dict(msgspec.json.decode(whole.text))

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        """The result of a listed tool, errors included.

        Raises:
            MCPError: The tool is not one that is listed, or its server answered with a JSON-RPC error.
        """
        name = inbound.params["name"]
        tools = self.choose_tools(inbound.session, inbound.path, inbound.principal)
        await tools.wait_listed()
        call = None if self.apps is None else await self.apps.way(inbound, is_listed=tools.has(name))
        if call is None and not tools.has(name):
            raise request_error(UNKNOWN_TOOL, f"Unknown tool {name[:NAME_CHARS]!r}. {tools.hint(name[:NAME_CHARS])}")
        caller = build_caller(inbound, is_root=False)
        raw = await self.answer(call or tools.call, name, inbound.params.get("arguments") or {}, caller, inbound.era)
        return _read(name, raw.text, inbound.era)

    async def announce_changes(self, changes: Callable[[], asyncio.Event]) -> None:
        """Notify every client once when its list differs from the one it knows; never returns.

        Args:
            changes: An event that is set when the catalog or a server changes next.
        """
        was_changing = False
        while True:
            is_growing = any(session.route.kind == "DYNAMIC" for session in self._sessions)
            next_change, is_changing = changes(), is_growing or self.routing.is_changing
            if is_changing or was_changing:  # else everybody's list is the fixed one
                self.refresh()
            was_changing = is_changing
            await wait_change_settled(next_change)

    def refresh(self) -> None:
        """Has everybody told whose list has changed; nobody waits for a client that does not read."""
        for audience in (*self._sessions, *self._listeners.values()):
            if audience.is_behind:
                spawn(audience.refresh(), "list changed")

    def _report_list_change(self) -> None:
        if self.on_list_changed is not None:
            self.on_list_changed()

    def choose_tools(self, session: ClientSession | None, path: str, principal: Principal) -> ToolList:
        """Return the tools of a client's session, else those at its path.

        Raises:
            MCPError: Nothing is at this path, or not for this principal.
        """
        return session.tool_list if isinstance(session, Session) else self.require_tools(path, principal)

    def _listen_at(self, path: str, principal: Principal) -> None:
        audience = Audience(
            self.require_tools(path, principal),
            partial(self.list_changes.announce, path, principal),
            on_told=self._report_list_change,
        )
        audience.note_shown()
        self._listeners[path, principal] = audience

    def _leave(self, path: str, principal: Principal) -> None:
        del self._listeners[path, principal]

    def answer(
        self, call: CallTool, name: str, arguments: Mapping[str, Any], caller: Caller, era: Era
    ) -> Coroutine[Any, Any, RawResult]:
        """The result of a listed tool as one era knows it; a failure is a result with `isError`.

        Raises:
            MCPError: The tool list passes JSON-RPC errors on, and the server answered with one; the request does not
                declare a capability that the server needs; or it brings a requestState that is not its own.
        """
        work = self._answer(call, name, arguments, caller, era)
        if self.tracing is None:
            return work
        return self.tracing.serve(TOOL_CALL, name, caller.meta, work)

    async def _answer(
        self, call: CallTool, name: str, arguments: Mapping[str, Any], caller: Caller, era: Era
    ) -> RawResult:
        # As `in_flight`, written out: this is the way of each call.
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        self._idle.clear()
        try:
            if self._is_draining:
                raise _build_shutdown_error("not_sent")
            return fit_to_era(await call(name, arguments, caller), era)
        except MCPError:
            raise
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()  # our own wish, see drain(): its client gets an answer
            return _build_error_result(name, _build_shutdown_error("unknown"), era)
        except ProxyError as error:
            if error.error_code == INVALID_STATE:
                raise request_error(error.jsonrpc_code, str(error), error.data) from error
            if era == "modern" and (undeclared := _find_undeclared(error, caller)) is not None:
                raise request_error(undeclared.code, undeclared.message, undeclared.data) from error
            return _build_error_result(name, error, era)
        except RecursionError as exc:
            return _build_error_result(name, _unreadable(name, exc), era)
        except Exception:  # boundary: top of a request's task; the agent gets an answer and no internals
            log.exception("%s failed inside the gateway", name)
            return _build_error_result(name, gateway_failed(), era)
        finally:
            self._release_task(task)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """While open, let a stop of the gateway wait for the current task before ending it.

        Raises:
            ShuttingDownError: On entering, or in the place of the cancellation that ends the task.
        """
        if self._is_draining:
            raise _build_shutdown_error("not_sent")
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        self._idle.clear()
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise _build_shutdown_error("unknown") from None
        finally:
            self._release_task(task)

    def _release_task(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        self._ended.discard(task)
        if not self._in_flight:
            self._idle.set()

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Refuses new calls and returns when those under way have ended; after `timeout_s` it ends them."""
        self._is_draining = True
        self.list_changes.close()
        with move_on_after(timeout_s):
            await self._idle.wait()
        if self._in_flight:
            log.warning("%d calls did not end in time and are given up", len(self._in_flight))
        self._ended |= self._in_flight
        for task in self._ended:
            task.cancel()
        with move_on_after(LAST_ANSWERS_S):
            await self._idle.wait()

    def first_answered(self) -> None:
        """Reports the first answer once."""
        if self.on_first_answer is not None:
            report, self.on_first_answer = self.on_first_answer, None
            report()


def _require(tools: ToolList | None, path: str) -> ToolList:
    if tools is None:
        raise request_error(NOT_FOUND, f"Nothing is served at /mcp/{path[:PATH_CHARS]}. Use /mcp.")
    return tools


def _find_undeclared(error: ProxyError, caller: Caller) -> RpcAnswer | None:
    """The server's error for a capability that the request does not declare, else None.

    What a client declares and a server may not ask for is told by the result, whose hint says who can allow it.
    """
    answer = error.answer if isinstance(error, UpstreamError) else None
    if answer is None or answer.code != MISSING_REQUIRED_CLIENT_CAPABILITY:
        return None
    required = answer.data.get("requiredCapabilities") if isinstance(answer.data, dict) else None
    declared = caller.input.capabilities if caller.input is not None else {}
    has_declared = isinstance(required, dict) and bool(required) and required.keys() <= declared.keys()
    return None if has_declared else answer


def _build_shutdown_error(delivery: Delivery) -> ShuttingDownError:
    """The error for calls that come too late, or take too long."""
    return ShuttingDownError(
        "The gateway is shutting down.",
        hint="Call again when it is back.",
        retry_after_s=RETRY_AFTER_STOP_S,
        delivery=delivery,
    )


def _read(name: str, raw: bytes, era: Era) -> dict[str, Any]:
    """Parse a result for the SDK, or return an error: JSON may be deeper or larger than it holds."""
    try:
        result: dict[str, Any] = read_writable(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        result = msgspec.json.decode(_build_error_result(name, _unreadable(name, exc), era).text)
    return result


def _unreadable(name: str, exc: Exception) -> UpstreamError:
    """The error for a result that holds something too deep or too large."""
    return UpstreamError(
        f"The result of '{name}' holds a value that cannot be passed on: {exc}.",
        hint="The server is at fault; the call was most likely carried out.",
        delivery="unknown",
    )


def _build_error_result(name: str, error: ProxyError, era: Era) -> RawResult:
    """The result that tells of `error`."""
    log.debug("%s failed: %s", name, error)
    return fit_to_era(error_result(error), era)
