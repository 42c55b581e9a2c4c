"""Listener for unsolicited messages: one stream held open, and reopened when it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.http.endpoint import ServerEndpoint, is_event_stream
from smart_mcp_proxy.upstream.http.event_parser import BURST_EVENTS, EventParser, OversizedEventError
from smart_mcp_proxy.upstream.http.exchange import Response

_FIRST_PAUSE_S: Final = 1.0
"""Before the stream is opened again, where the server names no other pause."""
_LONGEST_PAUSE_S: Final = 30.0
_HEALTHY_S: Final = 30.0
"""A stream that held this long was cut by something on the way; a shorter one without a word is not worth hurrying."""

_log = get_logger("upstream")


class Announcements:
    """Reads one stream after the other until the server says that it has none.

    Args:
        server: Configured name, for messages.
        endpoint: Where the stream comes from.
        connect: Opens it; given the id of the last event heard, empty at first.
        take: Given the text of each message.
        max_event_bytes: A larger event ends the stream.
    """

    def __init__(
        self,
        server: str,
        endpoint: ServerEndpoint,
        connect: Callable[[str], Awaitable[Response]],
        take: Callable[[bytes], Awaitable[object]],
        max_event_bytes: int,
    ) -> None:
        self._server = server
        self._endpoint = endpoint
        self._connect = connect
        self._take = take
        self._max_event_bytes = max_event_bytes
        self._last_id = ""
        self._pause_s = _FIRST_PAUSE_S

    async def run(self) -> None:
        """Listens; returns when there is nothing to listen to."""
        while True:
            try:
                response = await self._open_stream()
                if response is None:
                    return
                await self._read(response)
            except (UpstreamError, OversizedEventError) as exc:
                _log.debug("server %s: its stream of announcements was lost: %r", self._server, exc)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)

    async def _open_stream(self) -> Response | None:
        """The beginning of the stream, None if the server offers none."""
        response = await self._connect(self._last_id)
        if is_event_stream(response):
            return response
        response.close()
        if response.status == 429 or response.status >= 500:
            raise self._endpoint.status_error(response)
        _log.debug("server %s announces nothing by itself (HTTP %d)", self._server, response.status)
        return None

    async def _read(self, response: Response) -> None:
        clock = asyncio.get_running_loop().time
        parser, opened_at, is_alive = EventParser(self._max_event_bytes), clock(), False
        try:
            while chunk := await self._endpoint.read_some(response):
                for number, event in enumerate(parser.feed(chunk), 1):
                    is_alive = True
                    if event.name == "message":
                        await self._take(event.data)
                    if number % BURST_EVENTS == 0:
                        await asyncio.sleep(0)
        finally:
            response.close()
            self._last_id = parser.last_id or self._last_id
            if parser.retry_s is not None:
                self._pause_s = min(_LONGEST_PAUSE_S, parser.retry_s)
            elif is_alive or clock() - opened_at >= _HEALTHY_S:
                self._pause_s = _FIRST_PAUSE_S
