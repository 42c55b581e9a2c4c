"""The faulty server over the older transport on loopback: one stream for all answers, an address to post to.

Usage: python -S on_sse.py DIRECTORY handshake [PORT]; writes `port` into the directory once it listens.
"""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from answers import MEBIBYTE
from exchange import Connection, Request, read_request
from replies import knows, replies
from server import Ask, Server, dump

LOOPBACK = "127.0.0.1"
STREAM_PATH = "/sse"
ENDPOINT = "/messages?session="
Streamed = Callable[[Connection, Ask], Awaitable[None]]
FAULTS: dict[str, Streamed] = {}
"""What happens on the stream instead of an answer; the POST has been accepted."""
POSTS: dict[str, int] = {"post-500": 500, "post-404": 404, "post-redirect": 307}
"""Status of the POST; nothing comes on the stream."""
ENDPOINTS: dict[str, bytes] = {
    "endpoint-missing": b"",
    "endpoint-elsewhere": b"http://localhost.invalid/messages",
    "endpoint-other-port": b"http://127.0.0.1:9/messages",
    "endpoint-https": b"https://127.0.0.1/messages",
    "endpoint-file": b"file:///etc/passwd",
    "endpoint-garbled": b"http://[",
}
"""What the stream names as the address to post to."""


def fault(function: Streamed) -> Streamed:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


@fault
async def stream_cut(stream: Connection, ask: Ask) -> None:
    """The stream ends in good order in the middle of a call."""
    assert ask.good
    await stream.end_stream()
    stream.close()


@fault
async def stream_reset(stream: Connection, ask: Ask) -> None:
    await stream.chunk(b"event: message\ndata: " + dump(ask.good)[:20])
    stream.reset()


@fault
async def stream_endless_event(stream: Connection, ask: Ask) -> None:
    assert ask.good
    while ask.is_on():
        await stream.chunk(b"data: " + b"x" * MEBIBYTE + b"\n")
    stream.close()


@fault
async def stream_crash(stream: Connection, ask: Ask) -> None:
    assert ask.good
    os._exit(7)


class SseServer:
    """Streams by session around the common server.

    Args:
        server: What it answers.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: dict[str, Connection] = {}
        self._numbers = itertools.count()
        self._serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection in turn."""
        connection, task = Connection(writer), asyncio.current_task()
        self._serving.add(task)  # the event loop alone would forget it
        try:
            while not connection.is_over and (request := await read_request(reader)):
                self._server.see(request.body, verb=request.verb, **request.headers)
                await (self._open(connection) if request.verb == "GET" else self._post(connection, request))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            connection.close()
            self._serving.discard(task)

    async def _open(self, connection: Connection) -> None:
        session = f"{os.getpid()}-{next(self._numbers)}"
        stage, _, name = self._server.switched_on().partition(" ")
        endpoint = ENDPOINTS.get(name) if stage == "init" else None
        await connection.begin_stream()
        if endpoint is None:
            self._streams[session] = connection
            endpoint = ENDPOINT.encode() + session.encode()
        if endpoint:
            await connection.chunk(b"event: endpoint\ndata: " + endpoint + b"\n\n")
        await connection.until_closed()

    async def _post(self, connection: Connection, request: Request) -> None:
        message = json.loads(request.body)
        stream = self._streams.get(request.target.partition(ENDPOINT)[2])
        if stream is None:
            await connection.status(404, b"no such session")
        elif message.get("id") is None or "method" not in message:
            await connection.status(202)
        else:
            await self._answer(connection, stream, Ask(self._server, message))

    async def _answer(self, connection: Connection, stream: Connection, ask: Ask) -> None:
        fault = ask.fault
        if fault in POSTS:
            await connection.status(POSTS[fault], b"", {"Location": "http://localhost.invalid/"})
            return
        await connection.status(202)
        if fault in FAULTS:
            await FAULTS[fault](stream, ask)
            return
        assert not fault or knows(fault) or fault in ENDPOINTS, fault
        for reply in replies(ask, fault):
            await (asyncio.sleep(reply) if isinstance(reply, float) else stream.event(reply))


async def main(directory: Path, port: int) -> None:
    sse = SseServer(Server(directory, "handshake"))
    listener = await asyncio.start_server(sse.serve, LOOPBACK, port, limit=1 << 26)
    staged = directory / "port.new"
    staged.write_text(str(listener.sockets[0].getsockname()[1]))
    staged.replace(directory / "port")
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int((sys.argv[3:] or ["0"])[0])))
