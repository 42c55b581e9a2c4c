"""HTTP replies, whatever pieces they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.desktop.http.reply import BrokenReplyError, HttpReply

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def read(data: bytes, cuts: list[int]) -> tuple[HttpReply, bytes]:
    """A reply that comes in pieces, and its body."""
    reply, body, start = HttpReply(), b"", 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        body += b"".join(reply.feed(data[start:end]))
        start = end
    return reply, body


@given(st.lists(st.integers(0, 1_000)))
def test_chunks_are_read_wherever_they_are_cut(cuts: list[int]) -> None:
    """With extensions, trailers and a further reply of the class 1xx before."""
    data = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    data += b"5\r\nhello\r\n9;x=1\r\n, \r\n0\r\n\r\n\r\n0\r\nSum: 1\r\n\r\n"
    reply, body = read(data, cuts)
    assert (reply.status, reply.media_type, reply.is_whole, reply.is_reusable) == (200, "text/event-stream", True, True)
    assert body == b"hello, \r\n0\r\n\r\n"


@given(st.lists(st.integers(0, 1_000)))
def test_bodies_of_known_length_are_read_wherever_they_are_cut(cuts: list[int]) -> None:
    """And the connection can carry another request."""
    reply, body = read(HEAD + b"Content-Length: 5\r\n\r\nhello", cuts)
    assert (body, reply.is_whole, reply.is_reusable) == (b"hello", True, True)


def test_a_body_may_end_with_the_connection() -> None:
    """Then nothing else can come over it."""
    reply, body = read(HEAD + b"\r\nhello", [])
    assert not reply.is_whole
    reply.end()
    assert (body, reply.is_whole, reply.is_reusable) == (b"hello", True, False)


@pytest.mark.parametrize("fields", [b"Connection: close\r\nContent-Length: 0\r\n\r\n", b"Content-Length: 1\r\n\r\nabc"])
def test_some_connections_are_not_used_again(fields: bytes) -> None:
    """The gateway says that it closes them, or sends more than it said."""
    reply, _ = read(HEAD + fields, [])
    assert reply.is_whole and not reply.is_reusable


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
def test_a_reply_that_is_none_is_refused(data: bytes) -> None:
    """Rather than read as something else."""
    with pytest.raises(BrokenReplyError):
        read(data, [])


@pytest.mark.parametrize("data", [b"", HEAD, HEAD + b"Content-Length: 5\r\n\r\nhell"])
def test_a_reply_that_is_cut_off_is_noticed(data: bytes) -> None:
    """The connection has ended before all of it was there."""
    reply, _ = read(data, [])
    with pytest.raises(ConnectionResetError):
        reply.end()
