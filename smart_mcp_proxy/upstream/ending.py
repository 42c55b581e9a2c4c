"""End of a session, and whether a request refused with 401 ends the whole session."""

import asyncio
from typing import Final

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession

_CHECK_S: Final = 10.0
"""Longest time for the request that shows whether the session is refused as a whole."""

_log = get_logger("upstream")


class Ending:
    """Waits for the end of a session.

    A 401 may be about one tool, or pass: the session goes on unless a plain request of the protocol is refused, too.

    Args:
        server: Configured name, for the names of tasks.
        session: The session.
    """

    def __init__(self, server: str, session: UpstreamSession) -> None:
        self._server = server
        self._session = session
        self._end: asyncio.Future[UpstreamError] = asyncio.get_running_loop().create_future()
        self._watcher = spawn(self._watch(), f"upstream-end-{server}")
        self._check: asyncio.Task[None] | None = None
        self._is_doubted = False

    async def wait(self) -> UpstreamError:
        """Why the session is over, once it is."""
        return await self._end

    def close(self) -> None:
        """Waits no longer."""
        self._watcher.cancel()
        if self._check is not None:
            self._check.cancel()

    def end(self, reason: UpstreamError) -> None:
        """Ends the session for this reason, unless it is over."""
        if not self._end.done():
            self._end.set_result(reason)

    def doubt(self) -> None:
        """Finds out, in the background, whether the server still takes any request of this session."""
        self._is_doubted = True
        if self._check is None or self._check.done():
            self._check = spawn(self._ask(), f"upstream-refused-{self._server}")

    async def _watch(self) -> None:
        self.end(await self._session.wait_closed())

    async def _ask(self) -> None:
        method = "ping" if self._session.era == "handshake" else "server/discover"
        while self._is_doubted and not self._end.done():
            self._is_doubted = False  # a refusal from here on may be later than the answer, and is asked about again
            try:
                await self._session.request(method, {}, timeout_s=_CHECK_S)
            except UpstreamAuthError as exc:
                self.end(exc)
            except UpstreamError as exc:
                _log.debug("server %s: whether it still takes requests is unclear: %s", self._server, exc)
