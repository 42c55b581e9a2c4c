"""Resources of one server that we hear of when they change, on whichever connection there is.

In the handshake era each is subscribed to by itself. In the modern era one long request names them all, beside the one
that tells of changed lists: with another set of resources it is opened anew, the old one ended once the new one is
open, so that nothing is missed in between.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, Protocol

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE
from smart_mcp_proxy.upstream.protocol.session import (
    Acknowledged,
    ResourceUpdated,
    SessionEvent,
    UpdatesMissed,
    UpstreamSession,
    has_updates,
    lost_error,
    timeout_error,
)

__all__ = ["OnResourceUpdated", "ResourceWatch"]

OnResourceUpdated = Callable[[str, str], None]
"""Told server and URI of a resource that may be another one now."""

_AT_ONCE: Final = 8
"""Requests under way when many resources are subscribed to, as after a reconnect."""
_STREAM_S: Final = 86_400.0
"""A stream older than a day is opened anew; requests have an end."""
_PAUSE_S: Final = (1.0, 30.0)
"""Before an ended stream is opened again: first, and at most."""

_log = get_logger("upstream")


class _Ask(Protocol):
    async def __call__(self, method: str, params: Mapping[str, Any], timeout_s: float) -> RawResult: ...


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
        self._present: _BySubscription | _ByStream | None = None
        self._session: UpstreamSession | None = None

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

    def attach(self, session: UpstreamSession, ask: _Ask) -> None:
        """There is a new connection; `ask` sends a request on it."""
        is_modern = session.era == "modern"
        self._session = session
        self._present = (
            _ByStream(self._server, ask, self._on_updated) if is_modern else _BySubscription(self._server, ask)
        )

    def detach(self) -> None:
        """The connection is over."""
        if self._present is not None:
            self._present.close()
        self._session = self._present = None

    async def add(self, uris: Collection[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Watches these too; returns why not, for those that cannot be watched."""
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                if self._present is None:
                    return dict.fromkeys(uris, lost_error(self._server, "is not connected", was_sent=False))
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
        """Handle an event of the server if it concerns single resources."""
        if isinstance(event, ResourceUpdated):
            self._on_updated(event.uri)
        elif isinstance(self._present, _ByStream) and isinstance(event, Acknowledged):
            self._present.acknowledged(event.uris)
        elif isinstance(self._present, _BySubscription) and isinstance(event, UpdatesMissed):
            for uri in self.uris:
                self._on_updated(uri)


class _BySubscription:
    """The handshake era: a subscription for each resource.

    Args:
        server: Configured name.
        ask: Sends a request.
    """

    def __init__(self, server: str, ask: _Ask) -> None:
        self._server = server
        self._ask = ask
        self.uris: frozenset[str] = frozenset()

    def close(self) -> None:
        """The connection is over, and all subscriptions with it."""

    async def add(self, uris: frozenset[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Subscribes to each."""

        def subscribed(uri: str) -> None:
            self.uris |= {uri}

        return await self._each("resources/subscribe", uris, timeout_s, subscribed)

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


class _ByStream:
    """The modern era: one long request for all resources.

    Args:
        server: Configured name.
        ask: Sends a request.
        on_updated: Told of what may have changed while no stream was open.
    """

    def __init__(self, server: str, ask: _Ask, on_updated: Callable[[str], None]) -> None:
        self._server = server
        self._ask = ask
        self._on_updated = on_updated
        self.uris: frozenset[str] = frozenset()
        self._stream: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[frozenset[str]] | None = None
        """Done when the server has confirmed the stream that was asked for last."""
        self._heard_on: asyncio.Future[frozenset[str]] | None = None
        """That of the stream that is open; None while there is none."""
        self._is_replacing = False
        self._is_closed = False

    def close(self) -> None:
        """The connection is over."""
        self._is_closed = True
        self._end()

    async def add(self, uris: frozenset[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Watches these too, by a stream for all."""
        if not uris:
            return {}
        try:
            agreed = await self._replace(self.uris | uris, timeout_s)
        except UpstreamError as exc:
            return dict.fromkeys(uris, exc)
        return {uri: _unwatched(self._server, uri) for uri in uris - agreed}

    async def remove(self, uris: frozenset[str], timeout_s: float) -> None:
        """Watches the others only."""
        left = self.uris - uris
        if not left:
            self._end()
            self.uris = left
            return
        try:
            await self._replace(left, timeout_s)
        except UpstreamError as exc:
            _log.debug("server %s goes on telling of %d more resources: %s", self._server, len(uris), exc)

    def acknowledged(self, uris: frozenset[str]) -> None:
        """The server has confirmed a stream for these."""
        if self._opened is not None and not self._opened.done():
            self._heard_on = self._opened
            self._opened.set_result(uris)

    def _end(self) -> None:
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
        stream = spawn(self._hold(uris, opened), f"upstream-watch-{self._server}")
        try:
            async with asyncio.timeout(timeout_s):
                agreed = await opened
        except BaseException as exc:
            stream.cancel()
            if (
                before is not None and before.done() and not self._is_closed
            ):  # it ended meanwhile, and left the rest to this one
                self._stream = spawn(self._renew(self.uris), f"upstream-watch-{self._server}")
            if isinstance(exc, TimeoutError):
                raise timeout_error(self._server, SUBSCRIBE, timeout_s, was_sent=True) from None
            raise
        finally:
            self._is_replacing = False
        if before is not None:
            before.cancel()
        self._stream, self.uris = stream, uris & agreed
        for uri in missed & self.uris:
            self._on_updated(uri)
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
            opened.add_done_callback(self._renewed)
            await self._listen(uris, opened)
            pause_s = _PAUSE_S[0] if opened.exception() is None else min(longest_s, pause_s * 2)

    def _renewed(self, opened: "asyncio.Future[frozenset[str]]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            for uri in self.uris:
                self._on_updated(uri)

    async def _listen(self, uris: frozenset[str], opened: "asyncio.Future[frozenset[str]]") -> None:
        """One stream, from its opening to its end; `opened` is done afterwards."""
        self._opened = opened
        error = lost_error(self._server, "ended its stream of changed resources at once", was_sent=True)
        try:
            await self._ask(SUBSCRIBE, {"notifications": {"resourceSubscriptions": sorted(uris)}}, timeout_s=_STREAM_S)
        except UpstreamError as exc:
            error = exc
            _log.debug("server %s: a stream of changed resources ended: %s", self._server, exc)
        finally:
            if self._heard_on is opened:
                self._heard_on = None
        if not opened.done():
            opened.set_exception(error)


def _unwatched(server: str, uri: str) -> UpstreamError:
    return UpstreamError(
        f"Server '{server}' does not tell when '{uri}' changes.",
        hint="Read it again when you need it.",
        delivery="executed",
    )
