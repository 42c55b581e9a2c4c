"""The load client: blocking pipes and sockets that find where a reply ends and which request it answers, no more."""

import contextlib
import itertools
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from subprocess import Popen
from types import FrameType
from typing import Any, Protocol

from bench.wire import FIRST_ID, BadReplyError, Era, Template, check, decode_http, encode, http_head, template

__all__ = ["HttpLink", "PipeLink", "UpstreamSession", "time_limit"]

_ID = re.compile(rb'"id"\s*:\s*(\d+)')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_BUFFER = memoryview(bytearray(1 << 20))
"""Read into by all: large, so that big replies take few reads; one, because to allocate that for each read costs more
than the read."""
_LEAST_CALLS = 5
"""Measured whatever time they take, so that a median means something."""
_IDLE_S = 2.0
"""Connections from longer ago are made anew; uvicorn closes one that has been idle for 5 s."""
_CHUNKED = -1
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class UpstreamSession(Protocol):
    """A client's connection, shared by any number of callers."""

    def open(self, era: Era) -> Any:
        """Greets the server; the result of `initialize` or `server/discover`."""

    def template(self, tool: str, params: dict[str, Any], reply_bytes: int = 0, *, has_token: bool = False) -> Template:
        """A `tools/call` for this link."""

    def ask(self, request: Template) -> Any:
        """The decoded reply to one call."""

    def sequential(self, request: Template, calls: int, seconds: float) -> list[float]:
        """Calls one after another; milliseconds of each."""

    def flood(self, request: Template, callers: int, calls: int, seconds: float) -> tuple[int, float]:
        """Calls by so many callers, each of which waits for its reply; how many, and in how many seconds."""

    def close(self) -> None:
        """Closes all connections."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raises TimeoutError in the block after so many seconds, even out of a blocking read."""

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{what}: no end after {seconds:g} s")

    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class PipeLink:
    """A client on the pipes of a process."""

    def __init__(self, process: "Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._sink, self._source = process.stdin.fileno(), process.stdout.fileno()
        self._rest = b""
        self._ids = itertools.count(FIRST_ID)
        self._era: Era = "handshake"

    def open(self, era: Era) -> Any:
        self._era = era
        request_id = next(self._ids)
        method = "initialize" if era == "handshake" else "server/discover"
        reply = self._exchange(encode(era, request_id, method, {}) + b"\n", request_id)
        if era == "handshake":
            os.write(self._sink, encode(era, None, "notifications/initialized", {}) + b"\n")
        return _result(json.loads(reply))

    def template(self, tool: str, params: dict[str, Any], reply_bytes: int = 0, *, has_token: bool = False) -> Template:
        return template(self._era, tool, params, reply_bytes=reply_bytes, http=None, has_token=has_token)

    def ask(self, request: Template) -> Any:
        request_id = next(self._ids)
        return json.loads(self._exchange(request.with_id(request_id), request_id))

    def sequential(self, request: Template, calls: int, seconds: float) -> list[float]:
        times = []
        end = time.perf_counter() + seconds
        for request_id in itertools.islice(self._ids, calls):
            data = request.with_id(request_id)
            start = time.perf_counter()
            reply = self._exchange(data, request_id)
            done = time.perf_counter()
            check(reply, request_id, request.reply_bytes)
            times.append((done - start) * 1000)
            if done > end and len(times) >= _LEAST_CALLS:
                break
        return times

    def flood(self, request: Template, callers: int, calls: int, seconds: float) -> tuple[int, float]:
        waiting = set(itertools.islice(self._ids, callers))
        count = 0
        start = time.perf_counter()
        os.write(self._sink, b"".join(map(request.with_id, waiting)))
        while waiting:
            free = 0
            for line in self._lines():
                match = _ID.search(line)
                if match is None:  # a notification
                    continue
                request_id = int(match[1])
                if request_id not in waiting:
                    raise BadReplyError(f"a reply to {request_id}, which is not waiting")
                waiting.remove(request_id)
                check(line, request_id, request.reply_bytes)
                free += 1
            count += free
            if free and count + len(waiting) < calls and time.perf_counter() - start < seconds:
                ids = list(itertools.islice(self._ids, free))
                waiting.update(ids)
                os.write(self._sink, b"".join(map(request.with_id, ids)))
        return count, time.perf_counter() - start

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()

    def _exchange(self, data: bytes, request_id: int) -> bytes:
        os.write(self._sink, data)
        mark = b"%d" % request_id
        while True:
            for line in self._lines():
                if mark in line[:256] or mark in line[-256:]:
                    return line

    def _lines(self) -> list[bytes]:
        """The lines that the next read completes."""
        parts = [self._rest]
        while True:
            chunk = bytes(_BUFFER[: os.readv(self._source, [_BUFFER])])
            if not chunk:
                raise BadReplyError("the process closed its output")
            parts.append(chunk)
            if b"\n" in chunk:
                *lines, self._rest = b"".join(parts).split(b"\n")
                return lines


class _Connection:
    """One kept HTTP connection with at most one request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request_id = 0
        self.used_at = time.monotonic()
        self._parts: list[bytes] = []
        self._left: int | None = None
        """Bytes still to come, or _CHUNKED; None until the head is there."""

    def exchange(self, data: bytes) -> bytes:
        self.socket.sendall(data)
        while not (reply := self.receive()):
            pass
        return reply

    def receive(self) -> bytes:
        """The whole reply if the next read completes it, else nothing."""
        chunk = bytes(_BUFFER[: self.socket.recv_into(_BUFFER)])
        if not chunk:
            raise BadReplyError("the server closed the connection")
        self._parts.append(chunk)
        if self._left is None:
            self._left = _left_after(b"".join(self._parts))
        elif self._left != _CHUNKED:
            self._left -= len(chunk)
        if self._left == 0 or (self._left == _CHUNKED and self._has_last_chunk(chunk)):
            reply = b"".join(self._parts)
            self._parts.clear()
            self._left = None
            return reply
        return b""

    def _has_last_chunk(self, chunk: bytes) -> bool:
        tail = chunk if len(chunk) >= len(_LAST_CHUNK) else b"".join(self._parts)
        return tail.endswith(_LAST_CHUNK)


def _left_after(data: bytes) -> int | None:
    """How much of a reply that starts with `data` is still to come; see `_Connection`."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = _LENGTH.search(data, 0, end)
    if length is not None:
        return end + 4 + int(length[1]) - len(data)
    return 0 if data[9:12] in (b"202", b"204") else _CHUNKED


class HttpLink:
    """A client with one session and as many connections as it has callers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[_Connection] = []
        self._ids = itertools.count(FIRST_ID)
        self._era: Era = "handshake"
        self._session: dict[str, str] = {}

    def open(self, era: Era) -> Any:
        self._era = era
        [connection] = self._first(1)
        body = encode(era, next(self._ids), method := "initialize" if era == "handshake" else "server/discover", {})
        reply = connection.exchange(http_head(era, method, len(body), {}) + body)
        if match := re.search(rb"mcp-session-id:\s*([^\r]+)", reply, re.IGNORECASE):
            self._session = {"Mcp-Session-Id": match[1].decode()}
        if era == "handshake":
            body = encode(era, None, method := "notifications/initialized", {})
            connection.exchange(http_head(era, method, len(body), self._session) + body)
        return _result(decode_http(reply))

    def template(self, tool: str, params: dict[str, Any], reply_bytes: int = 0, *, has_token: bool = False) -> Template:
        return template(self._era, tool, params, reply_bytes=reply_bytes, http=self._session, has_token=has_token)

    def ask(self, request: Template) -> Any:
        [connection] = self._first(1)
        return decode_http(connection.exchange(request.with_id(next(self._ids))))

    def request(self, method: str) -> Any:
        """The result of a method that takes no parameters."""
        [connection] = self._first(1)
        body = encode(self._era, next(self._ids), method, {})
        return _result(decode_http(connection.exchange(http_head(self._era, method, len(body), self._session) + body)))

    def sequential(self, request: Template, calls: int, seconds: float) -> list[float]:
        times = []
        [connection] = self._first(1)
        end = time.perf_counter() + seconds
        for request_id in itertools.islice(self._ids, calls):
            data = request.with_id(request_id)
            start = time.perf_counter()
            reply = connection.exchange(data)
            done = time.perf_counter()
            check(reply, request_id, request.reply_bytes)
            times.append((done - start) * 1000)
            if done > end and len(times) >= _LEAST_CALLS:
                break
        return times

    def flood(self, request: Template, callers: int, calls: int, seconds: float) -> tuple[int, float]:
        connections = {connection.socket.fileno(): connection for connection in self._first(callers)}
        count, waiting = 0, callers
        with select.epoll() as poll:
            for descriptor in connections:
                poll.register(descriptor, select.EPOLLIN)
            start = time.perf_counter()
            for connection in connections.values():
                self._send(connection, request)
            while waiting:
                for descriptor, _ in poll.poll():
                    connection = connections[descriptor]
                    if not (reply := connection.receive()):
                        continue
                    check(reply, connection.request_id, request.reply_bytes)
                    count += 1
                    if count + waiting <= calls and time.perf_counter() - start < seconds:
                        self._send(connection, request)
                    else:
                        waiting -= 1
            return count, time.perf_counter() - start

    def close(self) -> None:
        for connection in self._connections:
            connection.socket.close()
        self._connections.clear()

    def _send(self, connection: _Connection, request: Template) -> None:
        connection.request_id = next(self._ids)
        connection.socket.sendall(request.with_id(connection.request_id))

    def _first(self, count: int) -> list[_Connection]:
        """So many connections that the server has had no reason to close."""
        now = time.monotonic()
        for connection in [old for old in self._connections if now - old.used_at > _IDLE_S]:
            connection.socket.close()
            self._connections.remove(connection)
        while len(self._connections) < count:
            self._connections.append(_Connection(self._port))
        used = self._connections[:count]
        for connection in used:
            connection.used_at = now
        return used


def _result(message: Any) -> Any:
    if "result" not in message:
        raise BadReplyError(f"answered with {message}")
    return message["result"]
