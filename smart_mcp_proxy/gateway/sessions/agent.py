"""The gateway as an agent meets it over MCP: the list it is shown and the calls it makes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from anyio import move_on_after
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from smart_mcp_proxy.errors import Delivery, ProxyError, RequestError, RpcAnswer, ShuttingDownError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession, Inbound
from smart_mcp_proxy.fastmcp_compat.list_changed import Following, ListChangedHub, Watching, watch_nothing
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient, request_error
from smart_mcp_proxy.fastmcp_compat.middleware import gateway_failed
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.gateway.calls.request_states import INVALID_STATE
from smart_mcp_proxy.gateway.observability.tracing import TOOL_CALL, Tracing
from smart_mcp_proxy.gateway.results.results import error_result, fit_to_era
from smart_mcp_proxy.gateway.sessions.app_calls import AppCalls, AppTool
from smart_mcp_proxy.gateway.sessions.content_lookup import build_caller
from smart_mcp_proxy.gateway.shared.changes import wait_change_settled
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.tool_offer import Audience, Session, ToolProvider, ToolProviders
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.gateway.visibility.cursors import unknown_cursor
from smart_mcp_proxy.models import Era, Principal
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn

UNKNOWN_TOOL = -32602
"""An unknown tool is a protocol error. Source: https://modelcontextprotocol.io/specification/2026-07-28/server/tools"""
NOT_FOUND = -32602
"""A path that holds no list is a parameter that is not valid."""
NAME_CHARS = 200
"""Of a name that is not listed, no more is shown or compared."""

DRAIN_S = 10.0
"""Calls in flight get this long when the gateway is told to stop. Source: docs/design/processes.md#stopping"""
RETRY_AFTER_STOP_S = 5.0
LAST_ANSWERS_S = 1.0
"""What the calls that are then ended get to say so."""

log = get_logger("agent")


class Questions(Protocol):
    """The servers' questions to clients, as far as it matters which way a call takes."""

    @property
    def is_on(self) -> bool:
        """Whether any server may ask a client something while it is called."""
        ...


class _NoQuestions(NamedTuple):
    is_on: bool = False


_NO_QUESTIONS = _NoQuestions()


class Agent:
    """Answers `tools/list` and `tools/call`, and tells clients when their list changes.

    Args:
        offers: Which client is offered what.
        on_first_answer: Called once, when a client has been answered for the first time.
        conduct: Learns how clients take announcements.
        on_list_changed: Called whenever clients are told that a list has changed.
        on_session: Called with every client of the handshake era that connects.
        watching: Subscribes to the resources that a client of the modern era names.
        questions: Says whether any server may ask a client something while it is called.
        may_need_line: Whether any server knows each client of the handshake era; a look-up.
        apps: Finds the tools that interfaces call; None where none does.
        following: Looks at the tasks that a client of the modern era names.
        tracing: Makes spans of the calls; None where nothing is traced.
    """

    def __init__(  # noqa: PLR0913  (each is another part of the gateway)
        self,
        offers: ToolProviders,
        on_first_answer: Callable[[], None],
        conduct: ClientBehavior | None = None,
        on_list_changed: Callable[[], None] | None = None,
        on_session: Callable[[Session], None] = lambda session: None,
        watching: Watching = watch_nothing,
        questions: Questions = _NO_QUESTIONS,
        may_need_line: Callable[[], bool] = lambda: False,
        *,
        apps: AppCalls | None = None,
        following: Following | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.offers = offers
        self._apps = apps
        self.questions = questions
        self.may_need_line = may_need_line
        self._tracing = tracing
        self._on_list_changed = on_list_changed
        self._on_session = on_session
        self.conduct = conduct or ClientBehavior()
        self.list_changes = ListChangedHub(
            is_announcing=lambda: offers.is_changing,
            on_listen=self._listen_at,
            on_leave=self._leave,
            watching=watching,
            following=following,
        )
        self._sessions: set[Session] = set()
        self._listeners: dict[tuple[str, Principal], Audience] = {}
        self._on_first_answer: Callable[[], None] | None = on_first_answer
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
        return self.offer_at(get_request_path(), principal()).instructions

    def open_session(self, client: HandshakeClient) -> Session:
        """Open the session of a client of the handshake era."""
        routed = self.offers.route(client)
        session = Session(
            client,
            routed,
            lambda changed: _require_offer(lambda: self.offers.to(client, routed, changed)),
            self.conduct.watch(client.name),
            on_told=self._report_list_change,
            on_close=self._sessions.discard,
        )
        if (
            session.offer.state() is not None
        ):  # a list that is known already may change before the client has asked for it
            session.note_shown()
        self._sessions.add(session)
        self._on_session(session)
        return session

    def offer_at(self, path: str, principal: Principal) -> ToolProvider:
        """Return the offer for a modern client at a path.

        Raises:
            MCPError: Nothing is at this path, or not for this principal.
        """
        return _require_offer(lambda: self.offers.at(path, principal))

    def find_offer(self, path: str, principal: Principal) -> ToolProvider | None:
        """Return the offer for a modern client; None without one at this path for this principal."""
        try:
            return self.offers.at(path, principal)
        except RequestError:
            return None

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool that is listed where the present request came in; a look-up."""
        offer = self.find_offer(get_request_path(), principal())
        return offer.input_schema(name) if offer is not None else None  # whoever answers the request says so

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        """List the tools on one page; the modern era also gets lifetime and scope of the list.

        Raises:
            MCPError: Another page is asked for, or nothing is at this path.
        """
        if inbound.params.get("cursor"):
            error = unknown_cursor()
            raise request_error(error.jsonrpc_code, str(error), error.to_dict())
        offer = self.offer_to(inbound.session, inbound.path, inbound.principal)
        await offer.wait_listed()
        tools = offer.definitions(inbound.era)
        listing = {"tools": tools} if self._apps is None else self._apps.build_listing(tools, inbound)
        if isinstance(inbound.session, Session):
            inbound.session.note_listed()
        if inbound.era == "handshake":
            return listing
        listing |= {"ttlMs": offer.list_ttl_ms, "cacheScope": "private"}
        whole = fit_to_era(RawResult(msgspec.json.encode(listing)), inbound.era)
        return dict(msgspec.json.decode(whole.text))

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        """The result of a listed tool, errors included.

        Raises:
            MCPError: The tool is not one that is listed, or its server answered with a JSON-RPC error.
        """
        name = inbound.params["name"]
        offer = self.offer_to(inbound.session, inbound.path, inbound.principal)
        await offer.wait_listed()
        found = None if self._apps is None else await self._apps.way(inbound, is_listed=offer.has(name))
        if found is None and not offer.has(name):
            raise request_error(UNKNOWN_TOOL, f"Unknown tool {name[:NAME_CHARS]!r}. {offer.hint(name[:NAME_CHARS])}")
        caller = build_caller(inbound, is_root=False)
        raw = await self.answer(found or offer, name, inbound.params.get("arguments") or {}, caller, inbound.era)
        return _read(name, raw.text, inbound.era)

    async def announce_changes(self, changes: Callable[[], asyncio.Event]) -> None:
        """Notify every client once when its list differs from the one it knows; never returns.

        Args:
            changes: An event that is set when the catalog or a server changes next.
        """
        was_changing = False
        while True:
            next_change, is_changing = changes(), self.offers.is_changing
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
        if self._on_list_changed is not None:
            self._on_list_changed()

    def offer_to(self, session: ClientSession | None, path: str, principal: Principal) -> ToolProvider:
        """Return the offer for a client's session, or for its path.

        Raises:
            MCPError: Nothing is at this path, or not for this principal.
        """
        return session.offer if isinstance(session, Session) else self.offer_at(path, principal)

    def _listen_at(self, path: str, principal: Principal) -> None:
        audience = Audience(
            self.offer_at(path, principal),
            partial(self.list_changes.announce, path, principal),
            on_told=self._report_list_change,
        )
        audience.note_shown()
        self._listeners[path, principal] = audience

    def _leave(self, path: str, principal: Principal) -> None:
        del self._listeners[path, principal]

    def answer(
        self, offer: "ToolProvider | AppTool", name: str, arguments: Mapping[str, Any], caller: Caller, era: Era
    ) -> Coroutine[Any, Any, RawResult]:
        """The result of a listed tool as one era knows it; a failure is a result with `isError`.

        Raises:
            MCPError: The offer passes JSON-RPC errors on, and the server answered with one; the request does not
                declare a capability that the server needs; or it brings a requestState that is not its own.
        """
        work = self._answer(offer, name, arguments, caller, era)
        if self._tracing is None:
            return work
        return self._tracing.serve(TOOL_CALL, name, caller.meta, work)

    async def _answer(
        self, offer: "ToolProvider | AppTool", name: str, arguments: Mapping[str, Any], caller: Caller, era: Era
    ) -> RawResult:
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        self._idle.clear()
        try:
            if self._is_draining:
                raise _build_shutdown_error("not_sent")
            return fit_to_era(await offer.call(name, arguments, caller), era)
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
        if self._on_first_answer is not None:
            report, self._on_first_answer = self._on_first_answer, None
            report()


def _require_offer(look: Callable[[], ToolProvider]) -> ToolProvider:
    try:
        return look()
    except RequestError as error:
        raise request_error(NOT_FOUND, f"{error.message} {error.hint}".strip()) from error


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
