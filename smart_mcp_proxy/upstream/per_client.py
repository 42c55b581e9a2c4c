"""Sessions with one server for one client each: opened when needed, closed when idle."""

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, Literal

from smart_mcp_proxy.errors import ConfigError, ProxyError, RateLimitedError, UpstreamError
from smart_mcp_proxy.models import ClientLine, ContentKind, Era, OnMessage, OnProgress, ProgressReport
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig, collect_secrets
from smart_mcp_proxy.telemetry import await_shielded, fields, get_logger, secrets_hidden, spawn
from smart_mcp_proxy.upstream.http_failures import LostSessionError
from smart_mcp_proxy.upstream.listing import ToolListing, fetch_contents, fetch_tools, is_listed
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.server_requests import ClientRequest, ClientSide, Conversation
from smart_mcp_proxy.upstream.protocol.session import (
    STOPPED,
    ContentsChanged,
    LogLine,
    OnEvent,
    SessionEvent,
    ToolsChanged,
    build_lost_error,
    ends_at_s,
    late_error,
)

LISTINGS: Final = 3
"""Readings of a list that is said to have changed each time; nobody changes theirs faster than it is read."""

_LONGEST_ASKED_S: Final = 3_600.0
"""A request whose deadline stands still again and again ends after this time all the same."""
_PROBE_S: Final = 1.0
"""Seconds for a server that did not answer in time to answer a ping; the session itself then looks closer."""
_FULL_RETRY_S: Final = 1.0
"""Seconds that a client should wait where nobody can know how long the requests of the others take."""
_LIST_AGAIN_S: Final = 300.0
"""Lists that are older are looked at again. Source: docs/design/protocol-surface.md#changes-of-lists"""

ListKind = Literal["tools"] | ContentKind

_log = get_logger("upstream")


class OwnConnection:
    """An open session that belongs to one client.

    Args:
        config: The server.
        session: The session.
        conversation: What the server asks and tells the client on it.
        clock: Monotonic seconds.
    """

    def __init__(
        self, config: ServerConfig, session: UpstreamSession, conversation: Conversation, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._session = session
        self._conversation = conversation
        self._clock = clock
        self._lists: dict[ListKind, tuple[float, ToolListing]] = {}
        self._changes = 0
        self._listing = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the server declared."""
        return self._session.capabilities

    def forget_lists(self) -> None:
        """The server says that it lists something else now."""
        self._changes += 1
        self._lists.clear()

    def get_fresh_listing(self, kind: ListKind) -> ToolListing | None:
        """The server's list on this session, as far as it is known now."""
        at_s, listing = self._lists.get(kind, (0.0, None))
        return listing if self._clock() - at_s < _LIST_AGAIN_S else None

    async def fetch_listing(self, kind: ListKind) -> ToolListing:
        """The server's list on this session: fetched once, and again after a list_changed.

        Raises:
            UpstreamError: The list cannot be had, or is another one each time. No request was sent for that.
        """
        async with self._listing:
            for _ in range(LISTINGS):
                if (listing := self.get_fresh_listing(kind)) is not None:
                    return listing
                changes = self._changes
                try:
                    fetched = await self._fetch(kind)
                except UpstreamError as exc:
                    raise _unsent(exc) from exc
                if changes == self._changes:
                    listing = fetched.read()
                    self._lists[kind] = (self._clock(), listing)
                    return listing
        raise restless_error(self._config.name, kind)

    async def _fetch(self, kind: ListKind) -> ToolListing:
        name, limit_s = self._config.name, self._config.limits.list_s
        is_offered = self.capabilities.get(kind) is not None if kind == "tools" else is_listed(kind, self.capabilities)
        if not is_offered:
            return ToolListing()
        ask = partial(self._session.request, timeout_s=limit_s)
        if kind == "tools":
            return await fetch_tools(name, ask, timeout_s=limit_s)
        return await fetch_contents(name, kind, ask, timeout_s=limit_s)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        line: ClientLine | None,
        *,
        timeout_s: float,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> RawResult:
        """The `result` of one request; see `UpstreamSession.request`.

        The time in which the client itself is asked does not count.

        Args:
            line: The way back to the client while the request is under way; None where there is none.
        """
        name, limits, began_s = self._config.name, self._config.limits, asyncio.get_running_loop().time()
        exchange: ClientRequest | None = None
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                with self._conversation.under_way(line, deadline) as exchange:
                    if on_progress is not None or (limits.call_max_s is not None and method == "tools/call"):
                        end_s = partial(ends_at_s, limits, began_s, timeout_s)
                        on_progress = partial(_renew, exchange, end_s, on_progress)
                    result = await self._session.request(
                        method,
                        params,
                        timeout_s=timeout_s + _LONGEST_ASKED_S,
                        on_progress=on_progress,
                        on_message=on_message,
                    )
        except TimeoutError:
            spawn(self._doubt(), f"upstream-doubt-{name}")
            heard_s = exchange.heard_s if exchange is not None else 0.0
            raise late_error(name, method, limits, began_s, timeout_s, heard_s) from None
        await self._conversation.flush()
        return result

    def roots_changed(self) -> None:
        """Send `roots/list_changed` to the server, until it has taken it once."""
        if self._telling is None or self._telling.done():
            self._telling = spawn(self._tell_of_roots(), f"upstream-roots-{self._config.name}")

    async def _tell_of_roots(self) -> None:
        with contextlib.suppress(UpstreamError, TimeoutError):  # a session that is ending, or a server that is stuck
            async with asyncio.timeout(self._config.limits.patience_s):
                await self._session.notify("notifications/roots/list_changed", {})

    async def set_level(self, level: str) -> None:
        """Tells the server from which level on it is to send log messages, where it sends any."""
        if self.capabilities.get("logging") is None:
            return
        name = self._config.name
        try:
            await self._session.request("logging/setLevel", {"level": level}, timeout_s=self._config.limits.patience_s)
        except UpstreamError as exc:
            _log.warning("server %s did not take the client's log level: %s", name, exc, extra=fields(server=name))

    def stop_asking(self) -> None:
        """Refuses what the server asks from now on, and what is open: the client cannot answer any more."""
        self._conversation.stop_asking()

    async def _doubt(self) -> None:
        with contextlib.suppress(UpstreamError):
            await self._session.request("ping", {}, timeout_s=_PROBE_S)


async def _renew(
    exchange: ClientRequest, end_s: Callable[[float], float], on_progress: OnProgress | None, report: ProgressReport
) -> None:
    """Moves the deadline of a request because there is progress, and passes that on."""
    exchange.renew(end_s(asyncio.get_running_loop().time()))
    if on_progress is not None:
        await on_progress(report)


class _Place:
    """A client's place at a server, from before its session is opened until after it is closed."""

    def __init__(self, now_s: float) -> None:
        self.opened: asyncio.Future[OwnConnection | None] = asyncio.get_running_loop().create_future()
        self.users = 0
        self.used_s = now_s
        self.keeper: asyncio.Task[None] | None = None


@dataclass(eq=False, repr=False)
class OwnConnections:
    """The sessions of single clients with one server.

    Attributes:
        config: The server as it is configured now.
        expanded: The same with its variables filled in.
        open_session: Opens one.
        clock: Monotonic seconds.
    """

    config: Callable[[], ServerConfig]
    expanded: Callable[[], Awaitable[ServerConfig]]
    open_session: Callable[[ServerConfig, Era, OnEvent, Conversation], Awaitable[UpstreamSession]]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._places: dict[object, _Place] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._is_modern = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<OwnConnections to {self.config().name}, {len(self)} of clients>"

    def __len__(self) -> int:
        return len(self._places)

    def find(self, client: object) -> OwnConnection | None:
        """The client's open session, None if it has none."""
        place = self._places.get(client)
        if place is None or not place.opened.done() or place.opened.exception() is not None:
            return None
        return place.opened.result()

    def open(self) -> None:
        """Lets clients have sessions again after `close()`."""
        self._is_closed = False

    @asynccontextmanager
    async def use_connection(self, client: object, side: ClientSide) -> AsyncIterator[OwnConnection | None]:
        """Open the client's session and keep it while in use; None if the server left its era.

        Raises:
            RateLimitedError: As many clients as may have one already.
            UpstreamError: It cannot be opened, or the server was stopped. No request was sent.
        """
        if self._is_closed:
            raise build_lost_error(self.config().name, STOPPED, was_sent=False)
        if self._is_modern:
            yield None
            return
        place = self._places.get(client)
        if place is None:
            place = self._new_place(client, side)
        place.users += 1
        try:
            yield await await_shielded(place.opened)
        except LostSessionError:
            self._leave(client, place)  # at once: the next request opens a new one
            raise
        finally:
            place.users -= 1
            place.used_s = self.clock()

    async def drop(self, client: object) -> None:
        """Closes the session of a client that is gone."""
        if (place := self._places.pop(client, None)) is not None:
            await self._end([place])

    async def close(self) -> None:
        """Closes all; requests under way fail, and none is opened until `open()`."""
        self._is_closed = True
        places, keepers = list(self._places.values()), set(self._keepers)
        self._places.clear()
        self._is_modern = False
        await self._end(places)
        if keepers:  # of sessions that were ending by themselves, too
            await asyncio.wait(keepers)

    async def _end(self, places: list[_Place]) -> None:
        keepers = {place.keeper for place in places if place.keeper is not None}
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)
        for place in places:  # of one that had not even begun, nobody else says so
            _fail(place, build_lost_error(self.config().name, STOPPED, was_sent=False))

    def _new_place(self, client: object, side: ClientSide) -> _Place:
        config = self.config()
        if len(self._places) >= config.limits.client_connections and not self._make_room():
            raise RateLimitedError(
                f"Server '{config.name}' has connections of {len(self._places)} clients in use, its limit.",
                hint="Try again when one of them is done. "
                "The user can raise 'client_connections' under 'limits' in the server's entry.",
                retry_after_s=_FULL_RETRY_S,
                code="too_many_connections",
            )
        place = self._places[client] = _Place(self.clock())
        keeper = place.keeper = spawn(self._keep(client, place, side), f"upstream-own-{config.name}")
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)
        return place

    def _make_room(self) -> bool:
        """Ends the session that was idle longest, without waiting for its end; False if all are in use."""
        idle = [(place.used_s, client) for client, place in self._places.items() if not place.users]
        if not idle:
            return False
        _, longest = min(idle, key=itemgetter(0))
        if (keeper := self._places.pop(longest).keeper) is not None:
            keeper.cancel()
        return True

    async def _keep(self, client: object, place: _Place, side: ClientSide) -> None:
        """Open the session of a client, hold it until its end, and clean up."""
        conversation = Conversation(self.config().name, side)
        try:
            await self._hold(client, place, conversation)
        except ProxyError as exc:
            _fail(place, _unsent(exc))
        finally:
            self._leave(client, place)
            _fail(place, build_lost_error(self.config().name, STOPPED, was_sent=False))
            await conversation.close()

    async def _hold(self, client: object, place: _Place, conversation: Conversation) -> None:
        connection: OwnConnection | None = None

        def hear(event: SessionEvent) -> None:
            if isinstance(event, LogLine):  # not among the server's lines, which agents may read: it is of one client
                name = self.config().name
                _log.debug("server %s, for one client: %s", name, event.text, extra=fields(server=name))
            elif isinstance(event, ToolsChanged | ContentsChanged) and connection is not None:
                connection.forget_lists()

        try:
            config = await self.expanded()
        except ConfigError as exc:  # of this client: the others may have what it lacks
            raise UpstreamError(exc.message, hint=exc.hint) from exc
        with secrets_hidden(collect_secrets(config)):
            session = await self.open_session(config, "handshake", hear, conversation)
            try:
                self._is_modern = session.era == "modern"
                if not self._is_modern:
                    connection = OwnConnection(config, session, conversation, self.clock)
                place.opened.set_result(connection)
                if connection is not None:
                    await self._wait_over(client, place, session)
            finally:
                await session.close()

    async def _wait_over(self, client: object, place: _Place, session: UpstreamSession) -> None:
        """Returns when the session has ended, or nobody has used it for long; the place is free then."""
        ended = spawn(session.wait_closed(), f"upstream-own-end-{self.config().name}")
        try:
            while True:
                idle_s = self.config().limits.client_idle_s
                left_s = idle_s if place.users else idle_s - (self.clock() - place.used_s)
                if left_s <= 0 or ended.done():
                    return
                await asyncio.wait({ended}, timeout=left_s)
        finally:
            self._leave(client, place)  # before anything waits: the next request opens a new one
            ended.cancel()

    def _leave(self, client: object, place: _Place) -> None:
        if self._places.get(client) is place:
            del self._places[client]


def restless_error(server: str, kind: ListKind) -> UpstreamError:
    """Error for a server whose list differs each time it is fetched."""
    return UpstreamError(
        f"Server '{server}' says again and again that its {kind} have changed: their list does not hold still.",
        hint="Nothing was sent. The server is at fault; try again later.",
    )


def _unsent(error: ProxyError) -> ProxyError:
    """Turn a failure before a request into the request's own: not sent, not answered."""
    unsent = copy.copy(error)
    unsent.delivery = "not_sent"
    facts = {name: fact for name, fact in (error.data or {}).items() if not name.startswith("rpc_")}
    unsent.data = facts or None
    return unsent


def _fail(place: _Place, error: ProxyError) -> None:
    if not place.opened.done():
        place.opened.set_exception(error)
        place.opened.exception()  # seen: nobody may be waiting
