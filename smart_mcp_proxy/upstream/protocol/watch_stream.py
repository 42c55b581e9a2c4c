"""Long-lived `subscriptions/listen` request for all watched resources, or tasks, of a server.

The modern era's way. With another set it is opened anew, the old one ended once the new one is open, so that nothing is
missed in between.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE
from smart_mcp_proxy.upstream.protocol.session import build_lost_error, timeout_error

_STREAM_S: Final = 86_400.0
"""A stream older than a day is opened anew; requests have an end."""
_PAUSE_S: Final = (1.0, 30.0)
"""Before an ended stream is opened again: first, and at most."""

_log = get_logger("upstream")


class Ask(Protocol):
    """Sends a request on the present connection."""

    async def __call__(self, method: str, params: Mapping[str, Any], timeout_s: float) -> RawResult:
        """The `result`; raises `UpstreamError` as a session does."""
        ...


def _build_resource_params(uris: frozenset[str]) -> Mapping[str, Any]:
    return {"notifications": {"resourceSubscriptions": sorted(uris)}}


class WatchStream:
    """Long-lived request for updates, opened again whenever it ends.

    Args:
        server: Configured name.
        ask: Sends a request.
        on_updated: Told of what may have changed while no stream was open.
        wanted: Makes the params of the request; resources or tasks.
    """

    def __init__(
        self,
        server: str,
        ask: Ask,
        on_updated: Callable[[str], None],
        wanted: Callable[[frozenset[str]], Mapping[str, Any]] = _build_resource_params,
    ) -> None:
        self._server = server
        self._ask = ask
        self._on_updated = on_updated
        self._wanted = wanted
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
        self.end()

    async def add(self, uris: frozenset[str], timeout_s: float) -> dict[str, UpstreamError]:
        """Watches these too, by a stream for all."""
        if not uris:
            return {}
        try:
            agreed = await self._replace(self.uris | uris, timeout_s)
        except UpstreamError as exc:
            return dict.fromkeys(uris, exc)
        return {uri: _build_unwatched_error(self._server, uri) for uri in uris - agreed}

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
            _log.debug("server %s goes on telling of %d more resources: %s", self._server, len(uris), exc)

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
            opened.add_done_callback(self._report_missed_updates)
            await self._listen(uris, opened)
            pause_s = _PAUSE_S[0] if opened.exception() is None else min(longest_s, pause_s * 2)

    def _report_missed_updates(self, opened: "asyncio.Future[frozenset[str]]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            for uri in self.uris:
                self._on_updated(uri)

    async def _listen(self, uris: frozenset[str], opened: "asyncio.Future[frozenset[str]]") -> None:
        """Run a stream from its opening to its end; `opened` is done afterwards."""
        self._opened = opened
        error = build_lost_error(self._server, "ended its stream of changed resources at once", was_sent=True)
        try:
            await self._ask(SUBSCRIBE, self._wanted(uris), timeout_s=_STREAM_S)
        except UpstreamError as exc:
            error = exc
            _log.debug("server %s: a stream of changed resources ended: %s", self._server, exc)
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
