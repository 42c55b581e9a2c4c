"""The faulty server over streamable HTTP on loopback, with the faults that only HTTP has.

Usage: python -S on_http.py DIRECTORY ERA [PORT]; writes `port` into the directory once it listens.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from exchange import Connection, Request, read_request
from http_faults import FAULTS
from replies import is_streamed, knows, replies
from server import Ask, Server

LOOPBACK = "127.0.0.1"


class HttpServer:
    """Sessions and streams around the common server.

    Args:
        server: What it answers.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sessions: set[str] = set()
        self._serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection in turn, until either side has enough."""
        connection, task = Connection(writer), asyncio.current_task()
        assert task is not None
        self._serving.add(task)  # the event loop alone would forget it
        try:
            while not connection.is_over and (request := await read_request(reader)):
                self._server.see(request.body, verb=request.verb, **request.headers)
                await self._answer(connection, request)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            connection.close()
            self._serving.discard(task)

    async def _answer(self, connection: Connection, request: Request) -> None:
        session = request.headers.get("mcp-session-id")
        if session is not None and session not in self._sessions:
            await connection.status(404, b"no such session")
        elif request.verb == "GET" and session is not None:
            await connection.begin_stream()
            await connection.until_closed()
        elif request.verb == "DELETE":
            self._sessions.discard(session or "")
            await connection.status(200)
        elif request.verb != "POST":
            await connection.status(405)
        else:
            message = json.loads(request.body)
            if message.get("id") is None or "method" not in message:
                await connection.status(202)
            else:
                await self._answer_ask(connection, Ask(self._server, message))

    async def _answer_ask(self, connection: Connection, ask: Ask) -> None:
        fault = ask.fault
        headers: dict[str, str] = {}
        if ask.method == "initialize" and self._server.era == "handshake":
            session = f"session-{os.getpid()}-{len(self._sessions)}"
            self._sessions.add(session)
            headers["Mcp-Session-Id"] = session
        if ask.method == "subscriptions/listen":
            await connection.begin_stream()
            await connection.event(self._server.acknowledged(ask))
            await connection.until_closed()
        elif fault == "session-forgotten":
            self._sessions.clear()
            await connection.status(404, b"no such session")
        elif fault in FAULTS:
            await FAULTS[fault](connection, ask)
        else:
            assert not fault or knows(fault), fault
            await self._reply(connection, ask, fault, headers)

    async def _reply(self, connection: Connection, ask: Ask, fault: str, headers: dict[str, str]) -> None:
        messages: list[Any] = [] if is_streamed(fault) else list(replies(ask, fault))
        if len(messages) == 1:
            await connection.status(200, messages[0], {"Content-Type": "application/json", **headers})
        elif not messages and not is_streamed(fault):
            await connection.until_closed()
        else:
            await connection.begin_stream(headers)
            for reply in messages or replies(ask, fault):
                await (asyncio.sleep(reply) if isinstance(reply, float) else connection.event(reply))
            await connection.end_stream()


async def main(directory: Path, era: str, port: int) -> None:
    http = HttpServer(Server(directory, era))
    listener = await asyncio.start_server(http.serve, LOOPBACK, port, limit=1 << 26)
    staged = directory / "port.new"
    staged.write_text(str(listener.sockets[0].getsockname()[1]))
    staged.replace(directory / "port")
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int((sys.argv[3:] or ["0"])[0])))
