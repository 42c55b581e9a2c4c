"""Sessions of servers that know each client: routing of requests, questions and messages."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, get_args

import msgspec
from mcp_types import LoggingLevel

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.desktop.present import get_present_client
from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError, UpstreamTimeoutError
from smart_mcp_proxy.fastmcp_compat.asking import ClientChannel
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.inputs import ANSWER_S
from smart_mcp_proxy.gateway.results.cleaning import clean, clean_message, fence_notification
from smart_mcp_proxy.gateway.shared.app_pages import UNLISTED_KEY, hash_without_digest
from smart_mcp_proxy.gateway.shared.refusals import differs_here
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ClientLine, Principal, ToolRecord
from smart_mcp_proxy.names import IDENTITIES, identity_on
from smart_mcp_proxy.policy.inputs import InputFault, input_fault, label_inputs, without_secrets
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity, fields, get_logger, has_secret, redact, spawn
from smart_mcp_proxy.upstream import Fleet, OwnConnection, Upstream
from smart_mcp_proxy.upstream.per_client import LISTINGS, restless_error
from smart_mcp_proxy.upstream.protocol.server_requests import ClientSide

NAME_CHARS: Final = 100
"""Characters of the name that a client gives itself."""
_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)
"""From the least to the most severe."""

log = get_logger("clients")


@dataclass(eq=False, repr=False)
class Sender:
    """A session that belongs to one client, as the call path uses it.

    Attributes:
        connection: The session.
        line: The way back to the client while the request is under way; None where there is none.
        left_s: Seconds that the request has left, what comes before it included.
    """

    connection: OwnConnection
    line: ClientLine | None
    left_s: float

    def __post_init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._deadline_s = self._clock() + self.left_s

    async def confirm(self, record: ToolRecord) -> None:
        """Passes if the server lists the item on this session as it was approved.

        Raises:
            QuarantinedError: It lists another definition, or none.
            UpstreamError: It gives no list, or not in time, or another one each time.
        """
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._confirm(record)
        except TimeoutError:
            server, _, _ = record.key.server.partition(":")
            raise _too_late(server, "say what it lists on this client's connection", self.left_s) from None

    async def _confirm(self, record: ToolRecord) -> None:
        server, _, place = record.key.server.partition(":")
        kind = next((kind for kind in IDENTITIES if kind == place), None)
        identity, wanted = identity_on(record.key.server), record.key.tool
        if UNLISTED_KEY.encode() in record.raw:  # a page, which its content is checked by
            return
        approved = hash_without_digest(record)
        for _ in range(LISTINGS):
            listing = await self.connection.fetch_listing(kind or "tools")
            found = next((each for each in listing.definitions if each[identity] == wanted), None)
            if found is None or await asyncio.to_thread(_hash, record.key.server, found) != approved:
                raise differs_here(record.key)
            if self.connection.get_fresh_listing(kind or "tools") is listing:  # nothing was announced meanwhile
                return
        raise restless_error(server, kind or "tools")

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> RawResult:
        """The result of one request; options as of `OwnConnection.request`."""
        left_s = max(0.0, self._deadline_s - self._clock())
        return await self.connection.request(method, params, self.line, timeout_s=left_s, **options)


@dataclass(eq=False, repr=False)
class Clients:
    """The connected clients of the handshake era, as servers know them that have a session with each.

    Attributes:
        fleet: The servers.
        recorder: Gets one record per question.
        look: What may be seen at a path on behalf of a principal; None where the place has tools alone.
        settings: Whether what servers ask and log is cleaned, and the text of log messages marked as theirs.
        clock: Monotonic seconds.
    """

    fleet: Fleet
    recorder: Recorder[Activity]
    look: Callable[[str, Principal], CatalogView | None]
    settings: Settings
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._levels: dict[object, str] = {}
        self._open: set[object] = set()

    def begin(self, session: Session) -> None:
        """A client has connected."""
        self._open.add(session)
        session.on_close.append(self._end)

    def _end(self, session: Session) -> None:
        self._open.discard(session)
        self._levels.pop(session, None)
        for upstream in self.fleet:
            if upstream.own is not None:
                spawn(upstream.own.drop(session), f"leave {upstream.name}")

    @asynccontextmanager
    async def sender(
        self, upstream: Upstream, line: ClientLine | None, left_s: float | None
    ) -> AsyncIterator[Sender | None]:
        """Open the client's own session with a server; None where the shared one serves it.

        Args:
            upstream: The server.
            line: The way back to the client; None for one of the modern era, which has none.
            left_s: Seconds that the request has; None for the server's own limit.

        Raises:
            RateLimitedError: As many clients as may have a session already.
            UpstreamError: None can be opened.
        """
        own, (client, side) = upstream.own, self._find_side(upstream.name, line)
        if own is None or side is None:
            yield None
            return
        limits, began_s = upstream.config.limits, self.clock()
        limit_s = limits.call_s if left_s is None else left_s
        open_s = min(limit_s, limits.patience_s)
        is_new = own.find(client) is None
        try:
            async with asyncio.timeout(open_s) as opening, own.use_connection(client, side) as connection:
                if connection is not None and is_new and (level := self._levels.get(client)) is not None:
                    await connection.set_level(level)
                opening.reschedule(None)
                if connection is None:
                    yield None
                    return
                yield Sender(connection, line, max(0.0, limit_s - (self.clock() - began_s)))
        except TimeoutError:
            raise _too_late(upstream.name, "open a connection for this client", open_s) from None

    def _find_side(self, server: str, line: ClientLine | None) -> tuple[object, ClientSide | None]:
        """The client of a request, and how a server sees it; None where it is not told from others."""
        client = None if line is None else line.client
        if isinstance(client, Session):
            is_here = client in self._open and client.client.asking is not None
            asking = client.client.asking if is_here else None
            return client, None if asking is None else _Side(self, server, client, ClientChannel(client, asking))
        joined = get_present_client()
        return joined, None if joined is None else _Unasked()

    async def leave(self, client: object) -> None:
        """Ends the sessions that servers had with a client."""
        await asyncio.gather(*(each.own.drop(client) for each in self.fleet if each.own is not None))

    # --- what clients say of themselves

    def capabilities(self) -> dict[str, Any]:
        """Capabilities for the greeting: log messages, where a server can send any."""
        visible = self.look(get_request_path(), principal())
        return {"logging": {}} if visible is not None and visible.per_client else {}

    async def set_level(self, session: ClientSession, level: str) -> None:
        """Has the client's servers send log messages from this level on, those to come included."""
        self._levels[session] = level
        await asyncio.gather(*(connection.set_level(level) for connection in self._connections(session)))

    def roots_changed(self, session: ClientSession) -> None:
        """Tells the client's servers."""
        for connection in self._connections(session):
            connection.roots_changed()

    def stop_asking(self, session: ClientSession | None) -> None:
        """Has no server wait for an answer of a client that will send nothing more."""
        for connection in self._connections(session):
            connection.stop_asking()

    def is_wanted(self, session: ClientSession, level: object) -> bool:
        """Whether the client wants log messages of this level."""
        least = self._levels.get(session)
        return least is None or level not in _LEVELS or _LEVELS.index(str(level)) >= _LEVELS.index(least)

    def _connections(self, session: ClientSession | None) -> Iterator[OwnConnection]:
        for upstream in self.fleet:
            if upstream.own is not None and (connection := upstream.own.find(session)) is not None:
                yield connection

    # --- what servers ask

    @contextmanager
    def record_question(self, server: str, method: str, session: Session) -> Iterator[dict[str, Any]]:
        """Writes one question down when it is over; not what was asked, nor what was answered."""
        started, outcome, detail = self.clock(), "internal", {"method": method}
        try:
            yield detail
            outcome = "ok"
        except ProxyError as error:
            outcome = error.error_code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            duration_ms = (self.clock() - started) * 1000
            name = session.client.name
            record = Activity(
                kind="question",
                principal=session.client.principal.id,
                subject=f"{server}:{method}",
                outcome=outcome,
                duration_ms=duration_ms,
                at_s=time.time(),
                detail=detail | ({"client": name[:NAME_CHARS]} if name else {}),
                server=server,
            )
            self.recorder.record(record)

    def shape_notification(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Shape the params of a server's notification for its client; see `clean_message`."""
        said: dict[str, Any] = clean_message(params, is_cleaned=self.settings.clean_results)
        return fence_notification(said) if self.settings.fence_results else said

    def prepare_question(self, server: str, method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> Any:
        """The question as the client gets it: judged, cleaned, with the server's name.

        Raises:
            ProxyError: It is not passed on.
        """
        if self.settings.clean_results:
            params = msgspec.json.decode(clean(msgspec.json.encode({"asked": params})))["asked"]
        try:
            question = without_secrets({"question": {"method": method, "params": params}}, redact)
            fault = input_fault(question, declared, has_secret)
        except RecursionError:
            fault = InputFault("malformed", "it is nested too deeply")
        if fault is not None:
            log.warning(
                "server %s: a question (%s) was not passed on: %s",
                server,
                method,
                fault.what,
                extra=fields(server=server),
            )
            raise _build_question_error(server, fault)
        return label_inputs(server, question)["question"].get("params") or {}


class _Side:
    """A client as one server sees it: answers its questions and takes its notifications.

    Args:
        clients: All of them.
        server: Configured name.
        session: The client.
        standing: The way back to it outside of its requests.
    """

    def __init__(self, clients: Clients, server: str, session: Session, standing: ClientChannel) -> None:
        declared = session.client.extensions
        self.capabilities: Mapping[str, Any] = standing.asking.capabilities
        if declared is not None:
            self.capabilities = {**self.capabilities, "extensions": declared}
        self._clients = clients
        self._server = server
        self._session = session
        self._standing = standing

    async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
        """The client's answer; see `ClientSide`."""
        with self._clients.record_question(self._server, method, self._session) as detail:
            shown = await asyncio.to_thread(
                self._clients.prepare_question, self._server, method, params, self.capabilities
            )
            answer = await (line or self._standing).ask(method, shown, ANSWER_S)
            if isinstance(action := answer.get("action"), str):
                detail["action"] = action
        return answer

    async def hear(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> None:
        """Tells the client; see `ClientSide`."""
        is_log = method == "notifications/message"
        if is_log and not self._clients.is_wanted(self._session, params.get("level")):
            return
        try:
            said = await asyncio.to_thread(self._clients.shape_notification, params)
        except RecursionError:
            log.debug(
                "server %s: dropped %s: it is nested too deeply",
                self._server,
                method,
                extra=fields(server=self._server),
            )
            return
        if is_log:
            name = said.get("logger")
            said["logger"] = f"{self._server}/{name}" if isinstance(name, str) else self._server
        await (line or self._standing).tell(method, said)


class _Unasked:
    """A client of the modern era, which is asked in the answers to its requests alone."""

    capabilities: Mapping[str, Any] = MappingProxyType({})

    async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
        """Refuse; see `ClientSide`."""
        raise RequestError(f"The client cannot be asked for '{method[:NAME_CHARS]}'.", hint="Go on without an answer.")

    async def hear(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> None:
        """Drop what is not part of an answer."""


def _hash(server: str, definition: Mapping[str, Any]) -> str:
    """The change hash; empty for what has none."""
    try:
        return change_hash(server, definition)
    except (TypeError, ValueError, RecursionError):
        return ""


def _too_late(server: str, what: str, limit_s: float) -> UpstreamTimeoutError:
    """The error for a call that was not sent because what comes before it took all its time."""
    return UpstreamTimeoutError(
        f"Server '{server}' did not {what} within {limit_s:g} s.", hint="Try again.", delivery="not_sent"
    )


def _build_question_error(server: str, fault: InputFault) -> ProxyError:
    """The error that the server gets for its question."""
    if fault.kind == "secret":
        return RefusedError(
            f"Server '{server}' asks the user for {fault.what}, which no form may ask for.",
            hint="Ask by url, and let the user type it on your own page.",
            code="secret_asked",
        )
    if fault.kind == "telling":
        return RefusedError(
            f"Server '{server}' shows, in {fault.what}, what it was trusted with, and no client is to see that.",
            hint="Ask again without the values of the server's own settings.",
            code="secret_shown",
        )
    words = f"the client did not declare {fault.what}" if fault.kind == "undeclared" else fault.what
    return RequestError(
        f"The question of server '{server}' is not passed on: {words}.",
        hint="Ask for what the client declared, in the form that the protocol knows.",
        code="input_failed",
    )
