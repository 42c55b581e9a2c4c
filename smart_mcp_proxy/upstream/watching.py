"""Resources and tasks of one server that we hear of when they change, on its connection.

In the handshake era each is subscribed to by itself. In the modern era one long request (`subscriptions/listen`) names
them all, beside the one that tells of changed lists, and one all tasks, which that era alone has. With another set it
is opened anew, the old one ended once the new one is open, so that nothing is missed in between.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.extensions import TASKS
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE
from smart_mcp_proxy.upstream.protocol.session import (
    Acknowledged,
    ResourceUpdated,
    SessionEvent,
    TaskTold,
    UpdatesMissed,
    build_lost_error,
    has_updates,
    timeout_error,
)

_STREAM_S: Final = 86_400.0
"""A stream older than a day is opened anew; requests have an end."""
_PAUSE_S: Final = (1.0, 30.0)
"""Before an ended stream is opened again: first, and at most."""

OnResourceUpdated = Callable[[str, str], None]
"""Listener that gets server and URI of a resource that may have changed."""

_AT_ONCE: Final = 8
"""Requests under way when many resources are subscribed to, as after a reconnect."""
_MOST_TASKS: Final = 1_000
"""Most tasks of one server in a stream; those beyond are looked at alone."""
_OPEN_S: Final = 10.0
"""Seconds for a server to confirm a stream of tasks."""
_UNHEARD: Final = 16
"""States of one task that wait to be passed on; the oldest is dropped, for a later one says all."""
_TASKS_DECLARED: Final[Mapping[str, Any]] = {CLIENT_CAPABILITIES_META_KEY: {"extensions": {TASKS: {}}}}

_log = get_logger("upstream")


class Ask(Protocol):
    """Sends a request on the present connection."""

    async def __call__(self, method: str, params: Mapping[str, Any], timeout_s: float) -> RawResult:
        """The `result`; raises `UpstreamError` as a session does."""


@dataclass(eq=False, repr=False)
class WatchStream:
    """Long-lived request for updates, opened again whenever it ends.

    Attributes:
        server: Configured name.
        ask: Sends a request.
        on_updated: Told of what may have changed while no stream was open.
        wanted: Makes the params of the request; resources or tasks.
    """

    server: str
    ask: Ask
    on_updated: Callable[[str], None]
    wanted: Callable[[frozenset[str]], Mapping[str, Any]] = lambda uris: {
        "notifications": {"resourceSubscriptions": sorted(uris)}
    }

    def __post_init__(self) -> None:
        self.uris: frozenset[str] = frozenset()
        self._stream: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[frozenset[str]] | None = None
        """Done when the self.server has confirmed the stream that was asked for last."""
        self._heard_on: asyncio.Future[frozenset[str]] | None = None
        """That of the stream that is open; None while there is none."""
        self._is_replacing = False
        self._is_closed = False

    def close(self) -> None:
        """The connection is over."""
        self._is_closed = True
        self.end()

    async def add(self, uris: frozenset[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Watches these too, by a stream for all."""
        if not uris:
            return {}
        try:
            agreed = await self._replace(self.uris | uris, timeout_s)
        except UpstreamError as exc:
            return dict.fromkeys(uris, exc)
        return {uri: _build_unwatched_error(self.server, uri) for uri in uris - agreed}

    async def remove(self, uris: frozenset[str], timeout_s: float) -> None:
        """Watches the others only."""
        left = self.uris - uris
        if not left:
            self.end()
            self.uris = left
            return
        try:
            await self._replace(left, timeout_s)
        except UpstreamError as exc:
            _log.debug("server %s goes on telling of %d more resources: %s", self.server, len(uris), exc)

    def confirm_stream(self, uris: frozenset[str]) -> bool:
        """The server has confirmed a stream for these; False if none was waited for."""
        if self._opened is None or self._opened.done():
            return False
        self._heard_on = self._opened
        self._opened.set_result(uris)
        return True

    def end(self) -> None:
        """Ends the stream, if there is one."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _replace(self, uris: frozenset[str], timeout_s: float) -> frozenset[str]:
        """Opens a stream for these, then ends the one before; returns what the server agreed to.

        Raises:
            UpstreamError: It did not; the stream before goes on.
        """
        before, missed = self._stream, frozenset[str]() if self._heard_on is not None else self.uris
        opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._is_replacing = True
        stream = spawn(self._hold(uris, opened), f"upstream-watch-{self.server}")
        try:
            async with asyncio.timeout(timeout_s):
                agreed = await opened
        except BaseException as exc:
            stream.cancel()
            if (
                before is not None and before.done() and not self._is_closed
            ):  # it ended meanwhile, and left the rest to this one
                self._stream = spawn(self._renew(self.uris), f"upstream-watch-{self.server}")
            if isinstance(exc, TimeoutError):
                raise timeout_error(self.server, SUBSCRIBE, timeout_s, was_sent=True) from None
            raise
        finally:
            self._is_replacing = False
        if before is not None:
            before.cancel()
        self._stream, self.uris = stream, uris & agreed
        for uri in missed & self.uris:
            self.on_updated(uri)
        return agreed

    async def _hold(self, uris: frozenset[str], opened: "asyncio.Future[frozenset[str]]") -> None:
        """Keeps a stream open for these, if the server opens one at all."""
        await self._listen(uris, opened)
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            await self._renew(uris)

    async def _renew(self, uris: frozenset[str]) -> None:
        """Opens the stream again whenever it ends; what was watched may have changed in the gap."""
        pause_s, longest_s = _PAUSE_S
        while not self._is_closed:
            await asyncio.sleep(pause_s)
            if self._is_replacing:
                return
            opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
            opened.add_done_callback(self._report_missed_updates)
            await self._listen(uris, opened)
            pause_s = _PAUSE_S[0] if opened.exception() is None else min(longest_s, pause_s * 2)

    def _report_missed_updates(self, opened: "asyncio.Future[frozenset[str]]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            for uri in self.uris:
                self.on_updated(uri)

    async def _listen(self, uris: frozenset[str], opened: "asyncio.Future[frozenset[str]]") -> None:
        """Run a stream from its opening to its end; `opened` is done afterwards."""
        self._opened = opened
        error = build_lost_error(self.server, "ended its stream of changed resources at once", was_sent=True)
        try:
            await self.ask(SUBSCRIBE, self.wanted(uris), timeout_s=_STREAM_S)
        except UpstreamError as exc:
            error = exc
            _log.debug("server %s: a stream of changed resources ended: %s", self.server, exc)
        finally:
            if self._heard_on is opened:
                self._heard_on = None
        if not opened.done():
            opened.set_exception(error)


def _build_unwatched_error(server: str, uri: str) -> UpstreamError:
    return UpstreamError(
        f"Server '{server}' does not tell when '{uri}' changes.",
        hint="Read it again when you need it.",
        delivery="executed",
    )


class ResourceWatch:
    """Watched resources on the present connection of one server; empty at each new one.

    Args:
        server: Configured name.
        on_updated: Told of every resource that the server says is another one, watched or not.
    """

    def __init__(self, server: str, on_updated: OnResourceUpdated) -> None:
        self._server = server
        self._on_updated = partial(on_updated, server)
        self.others: Counter[str] = Counter()
        """URIs that other workers watch here, and how many of them."""
        self._turn = asyncio.Lock()
        self._present: _BySubscription | WatchStream | None = None
        self._session: UpstreamSession | None = None
        self.tasks = TaskWatch()

    def __repr__(self) -> str:
        return f"<ResourceWatch of {len(self.uris)} at {self._server}>"

    @property
    def uris(self) -> frozenset[str]:
        """URIs watched now."""
        return self._present.uris if self._present is not None else frozenset()

    @property
    def is_offered(self) -> bool:
        """Whether the server, as connected now, tells of single resources at all."""
        return self._session is not None and has_updates(self._session.capabilities)

    def attach(self, session: UpstreamSession, ask: Ask) -> None:
        """There is a new connection; `ask` sends a request on it."""
        is_modern = session.era == "modern"
        self._session = session
        if not is_modern:
            self._present = _BySubscription(self._server, ask)
            return
        self._present = WatchStream(self._server, ask, self._on_updated)
        self.tasks.attach(WatchStream(self._server, ask, lambda task: None, _build_task_params))

    def detach(self) -> None:
        """The connection is over."""
        if self._present is not None:
            self._present.close()
        self._session = self._present = None
        self.tasks.attach(None)

    async def add(self, uris: Collection[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Watches these too; returns why not, for those that cannot be watched."""
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                if self._present is None:
                    return dict.fromkeys(uris, build_lost_error(self._server, "is not connected", was_sent=False))
                return await self._present.add(frozenset(uris) - self.uris, timeout_s)
        except TimeoutError:
            late = timeout_error(self._server, "resources/subscribe", timeout_s, was_sent=True)
            return dict.fromkeys(frozenset(uris) - self.uris, late)

    async def keep(self, wanted: Callable[[], Collection[str]], timeout_s: float) -> None:
        """Watches no others than these any more; what the server thinks of that does not matter.

        Args:
            wanted: Asked when it is this change's turn.
            timeout_s: For each request.
        """
        async with self._turn:
            if self._present is not None and (gone := self.uris.difference(wanted(), +self.others)):
                await self._present.remove(gone, timeout_s)

    def hear(self, event: SessionEvent) -> None:
        """Handle an event of the server if it concerns single resources or tasks."""
        if isinstance(event, ResourceUpdated):
            self._on_updated(event.uri)
        elif isinstance(event, TaskTold):
            self.tasks.hear(event)
        elif isinstance(self._present, WatchStream) and isinstance(event, Acknowledged):
            if event.tasks or not self._present.confirm_stream(event.uris):
                self.tasks.confirm_stream(event.tasks)
        elif isinstance(self._present, _BySubscription) and isinstance(event, UpdatesMissed):
            for uri in self.uris:
                self._on_updated(uri)


class TaskWatch:
    """Tasks that one server tells of on its connection; it need not, so they are looked at, too."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._stream: WatchStream | None = None
        self._refused: frozenset[str] = frozenset()
        self._heard: dict[str, set[asyncio.Queue[bytes]]] = {}

    @property
    def active_tasks(self) -> frozenset[str]:
        """Tasks that the server has agreed to tell of."""
        return frozenset() if self._stream is None else self._stream.uris

    def attach(self, stream: WatchStream | None) -> None:
        """There is a new connection, or none any more."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._refused = stream, frozenset()
        self._settle_soon()

    @contextmanager
    def watch_task(self, task: str) -> Iterator["asyncio.Queue[bytes]"]:
        """States of a task as the server tells them, for as long as it is open."""
        states: asyncio.Queue[bytes] = asyncio.Queue(_UNHEARD)
        self._heard.setdefault(task, set()).add(states)
        self._settle_soon()
        try:
            yield states
        finally:
            self._heard[task].discard(states)
            if not self._heard[task]:
                del self._heard[task]
            self._settle_soon()

    def hear(self, told: TaskTold) -> None:
        """Hand a state to those that follow its task, and to nobody else."""
        for states in self._heard.get(told.task, ()):
            if states.full():
                states.get_nowait()
            states.put_nowait(told.state)

    def confirm_stream(self, tasks: frozenset[str]) -> None:
        """The server has confirmed a stream for these."""
        if self._stream is not None:
            self._stream.confirm_stream(tasks)

    def _settle_soon(self) -> None:
        if self._stream is not None:
            spawn(self._settle(), "upstream-tasks")

    async def _settle(self) -> None:
        """Have the server tell of the tasks that are followed now."""
        async with self._turn:
            stream, wanted = self._stream, frozenset(self._heard)
            if stream is None:
                return
            if gone := stream.uris - wanted:
                await stream.remove(gone, _OPEN_S)
            left = max(0, _MOST_TASKS - len(stream.uris))
            failures = await stream.add(frozenset(sorted(wanted - stream.uris - self._refused)[:left]), _OPEN_S)
            self._refused = wanted & (self._refused | failures.keys())
            if not stream.uris:
                stream.end()


def _build_task_params(tasks: frozenset[str]) -> Mapping[str, Any]:
    return {"notifications": {"taskIds": sorted(tasks)}, "_meta": _TASKS_DECLARED}


class _BySubscription:
    """The handshake era: a subscription for each resource.

    Args:
        server: Configured name.
        ask: Sends a request.
    """

    def __init__(self, server: str, ask: Ask) -> None:
        self._server = server
        self._ask = ask
        self.uris: frozenset[str] = frozenset()

    def close(self) -> None:
        """The connection is over, and all subscriptions with it."""

    async def add(self, uris: frozenset[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Subscribes to each."""

        def record_subscription(uri: str) -> None:
            self.uris |= {uri}

        return await self._each("resources/subscribe", uris, timeout_s, record_subscription)

    async def remove(self, uris: frozenset[str], timeout_s: float) -> None:
        """Ends the subscription to each."""
        self.uris -= uris
        failures = await self._each("resources/unsubscribe", uris, timeout_s, lambda uri: None)
        for uri, error in failures.items():
            _log.debug("server %s did not end the subscription to %s: %s", self._server, uri, error)

    async def _each(
        self, method: str, uris: frozenset[str], timeout_s: float, on_done: Callable[[str], None]
    ) -> dict[str, UpstreamError]:
        failures: dict[str, UpstreamError] = {}
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(uri: str) -> None:
            async with places:
                try:
                    await self._ask(method, {"uri": uri}, timeout_s=timeout_s)
                except UpstreamError as exc:
                    failures[uri] = exc
                else:
                    on_done(uri)

        await asyncio.gather(*map(one, sorted(uris)))
        return failures
