"""Answers with a head that came before: they say what they would say if every head were read anew."""

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.io.header_cache import KnownHeads
from smart_mcp_proxy.upstream.http.connection import Connection
from smart_mcp_proxy.upstream.http.exchange import Response

FIELDS = [
    b"Content-Type: application/json",
    b"x: Content-Length: 4",
    b"set-cookie: a=b",
    b"connection: close",
    b"date: today",
    b"x-a:",
    b"x-b: 1\r\n content-length: 4",
    b"transfer-encoding: chunked",
]
LENGTHS = [b"content-length: %d", b"Content-Length: %d", b"CONTENT-LENGTH:%d"]
STARTS = [b"HTTP/1.1 200 OK"] * 6 + [
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 500 So What",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 100 Go",
]
BODIES = [b"", b"{}", b"a longer one", b"x\r\n\r\ny", b"content-length: 2\r\n\r\n{}"]


class Pipe(asyncio.Transport):
    """Where requests go; says whether the connection was given up."""

    is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody reads it."""

    def is_closing(self) -> bool:
        return self.is_over

    def abort(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True


class Line:
    """One connection to a server that answers in single packets."""

    def __init__(self, end: socket.socket) -> None:
        self.freed = 0
        self.heads: KnownHeads[Any] = KnownHeads(8)
        self.connection = self._connection(end)

    def _connection(self, end: socket.socket) -> Connection:
        connection = Connection(("http", "x", 80), self.heads, self._free, lambda _: None)
        connection.connection_made(Pipe({"socket": end}))
        return connection

    def _free(self, connection: Connection) -> None:
        self.freed += 1

    def forget(self) -> None:
        """Reads the next head anew."""
        self.connection._heads = KnownHeads(1)

    def answered(self, packet: bytes) -> tuple[Any, ...]:
        """All that is known after an answer."""
        response = self.connection.send(b"", None, "")
        self.connection.get_buffer(-1)[: len(packet)] = packet
        self.connection.buffer_updated(len(packet))
        return (*_facts(response), self.freed, self.connection.is_open)


def _facts(response: Response) -> tuple[Any, ...]:
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    whole = (response.available_body, response.is_complete, type(response._error))
    return response.status, response.reason, headers, response.cookies, *whole


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    body = draw(st.sampled_from(BODIES))
    said = len(body) + draw(st.sampled_from([0] * 8 + [-1, 1]))
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=2))
    for _ in range(draw(st.sampled_from([1] * 8 + [0, 2]))):
        fields.insert(draw(st.integers(0, len(fields))), draw(st.sampled_from(LENGTHS)) % max(0, said))
    return b"\r\n".join([draw(st.sampled_from(STARTS)), *fields, b"", b""]) + body


@given(st.lists(answers(), min_size=2, max_size=6).map(lambda packets: [*packets, *packets]))
@settings(max_examples=500, deadline=None)
@pytest.mark.long  # many generated examples
def test_a_known_head_says_what_it_said(packets: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        remembering, reading = Line(ours), Line(ours)
        for packet in packets:
            reading.forget()
            outcome = remembering.answered(packet)
            assert outcome == reading.answered(packet)
            if not (outcome[5] and outcome[-1]):  # it is over, or waits for the rest
                break


def test_a_head_without_a_body_is_read_each_time() -> None:
    """After a 204 there is none, whatever length it gives."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        remembering, reading = Line(ours), Line(ours)
        for body in (b"", b"hello"):
            packet = b"HTTP/1.1 204 No Content\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            reading.forget()
            assert remembering.answered(packet) == reading.answered(packet)


def test_a_head_that_came_before_is_not_read_again() -> None:
    """Else nothing of the above would be shown."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours)
        first = line.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        line.connection._parser = None  # type: ignore[assignment]  # whoever uses it fails
        second = line.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n[{}]")
        assert first[:4] == second[:4]
        assert second[4] == b"[{}]"
        assert line.freed == 2
