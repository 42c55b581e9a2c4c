"""The event stream of one reply over HTTP: opened when something has to be said before the result."""

import asyncio
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

TICK_S: Final = 5.0
_QUIET_TICKS: Final = 3
"""After 10 to 15 s in which nothing was said a line without meaning is sent: what stands in between closes silent
connections, and clients that asked for progress take long silence for the end. The SDK's own streams wait 15 s."""

_FIELDS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"transfer-encoding", b"chunked"),
)
_PING: Final = b": ping\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Pings:
    """Timer shared by all replies to keep alive: one for each would cost more than its call.

    Attributes:
        discard: Keeps a stream alive no longer.
    """

    def __init__(self) -> None:
        self._streams: set[ReplyStream] = set()
        self.discard = self._streams.discard
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: "ReplyStream") -> None:
        """Keeps it alive from now on."""
        self._streams.add(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for stream in tuple(self._streams):
            stream.tick()
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)


class ReplyStream:
    """The reply to a client that asked for progress: the form is decided by what has to be sent first.

    Args:
        transport: Of the connection.
        flow: Says whether the client takes what it is sent.
        state: Has the fields of every answer.
        pings: Keep it alive until it is closed.

    Attributes:
        is_open: Whether the client has been told that a stream comes; until then the reply may still be one body.
    """

    __slots__ = ("_flow", "_pings", "_quiet_ticks", "_state", "_transport", "is_open")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, state: ServerState, pings: Pings) -> None:
        self.is_open = False
        self._transport = transport
        self._flow = flow
        self._state = state
        self._pings = pings
        self._quiet_ticks = 0
        pings.add(self)

    async def tell(self, message: bytes) -> None:
        """Sends one message as an event, and returns when the client has taken enough of what was sent."""
        if not self._transport.is_closing():
            self._quiet_ticks = 0
            self._write(_event(message))
            if self._flow.write_paused:
                await self._flow.drain()

    def end(self, *pieces: bytes) -> None:
        """Sends the last message, in pieces, and nothing more."""
        self._transport.writelines((*_event(*pieces), _LAST_CHUNK))

    def close(self) -> None:
        """Nothing more is sent."""
        self._pings.discard(self)

    def tick(self) -> None:
        """Time goes by."""
        self._quiet_ticks += 1
        if self._quiet_ticks == _QUIET_TICKS:
            self._quiet_ticks = 0
            if not self._flow.write_paused and not self._transport.is_closing():  # else there is enough to read
                self._write((b"%x\r\n" % len(_PING), _PING, b"\r\n"))

    def _write(self, parts: tuple[bytes, ...]) -> None:
        head = b"" if self.is_open else self._head()
        self.is_open = True
        self._transport.write(b"".join((head, *parts)))

    def _head(self) -> bytes:
        fields = b"".join([b"%b: %b\r\n" % field for field in (*self._state.default_headers, *_FIELDS)])
        return b"%b%b\r\n" % (STATUS_LINE[200], fields)


def _event(*pieces: bytes) -> tuple[bytes, ...]:
    """Encode a message, which has no line ends, as an HTTP chunk with a single event."""
    start, end = b"event: message\r\ndata: ", b"\r\n\r\n"
    return (b"%x\r\n%b" % (len(start) + sum(map(len, pieces)) + len(end), start), *pieces, end, b"\r\n")
