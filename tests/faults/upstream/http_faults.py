"""Faults that only an HTTP server has."""

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable

from answers import MEBIBYTE, TICK_S
from exchange import Connection
from server import Ask, dump

FaultOverHttp = Callable[[Connection, Ask], Awaitable[None]]
FAULTS: dict[str, FaultOverHttp] = {}
BOMB_MEBIBYTES = 200
ELSEWHERE = "http://localhost.invalid/mcp"


def fault(function: FaultOverHttp) -> FaultOverHttp:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def status(name: str, code: int, *, executes: bool = False, **headers: str) -> None:
    """Registers an answer with this status; a server that `executes` did the work first."""

    async def answer(connection: Connection, ask: Ask) -> None:
        assert not executes or ask.good
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        await connection.status(code, b"<h1>no</h1>", {"Content-Type": "text/html", **named})

    FAULTS[name] = answer


status("401", 401, WWW_Authenticate="Bearer")
status("403", 403)
status("404", 404)
status("404-after", 404, executes=True)
status("405", 405)
status("413", 413)
status("429", 429, Retry_After="1")
status("429-date", 429, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT")
status("500", 500, executes=True)
status("500-before", 500)
status("502", 502, executes=True)
status("503", 503, Retry_After="1")
status("204", 204, executes=True)
status("202", 202, executes=True)
status("999", 999, executes=True)
status("html", 200, executes=True)
status("redirect-elsewhere", 307, Location=ELSEWHERE)
status("redirect-308-elsewhere", 308, Location=ELSEWHERE)
status("redirect-to-get", 302, Location="/mcp")
status("redirect-see-other", 303, executes=True, Location="/done")
status("redirect-loop", 307, Location="/mcp")
status("redirect-file", 307, Location="file:///etc/passwd")
status("redirect-nowhere", 307)


@fault
async def rpc_error_400(connection: Connection, ask: Ask) -> None:
    await connection.status(400, ask.with_envelope(result=None, error={"code": -32602, "message": "refused"}),
                            {"Content-Type": "application/json"})  # fmt: skip


@fault
async def reset_before(connection: Connection, ask: Ask) -> None:
    connection.reset()


@fault
async def reset(connection: Connection, ask: Ask) -> None:
    assert ask.good
    connection.reset()


@fault
async def reset_in_head(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    connection.reset()


@fault
async def reset_in_body(connection: Connection, ask: Ask) -> None:
    body = dump(ask.good)
    await connection.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    await connection.send(body[:20])
    connection.reset()


@fault
async def close_silently(connection: Connection, ask: Ask) -> None:
    assert ask.good
    connection.close()


@fault
async def close_after(connection: Connection, ask: Ask) -> None:
    """Answers, and does not keep the connection, which it had promised."""
    await connection.json(dump(ask.good))
    connection.close()


@fault
async def truncated(connection: Connection, ask: Ask) -> None:
    body = dump(ask.good)
    await connection.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body) + 10)})
    await connection.send(body)
    connection.close()


@fault
async def length_short(connection: Connection, ask: Ask) -> None:
    body = dump(ask.good)
    await connection.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body) - 5)})
    await connection.send(body)
    connection.close()


@fault
async def length_word(connection: Connection, ask: Ask) -> None:
    await connection.head(200, {"Content-Type": "application/json", "Content-Length": "many"})
    await connection.send(dump(ask.good))
    connection.close()


@fault
async def length_missing(connection: Connection, ask: Ask) -> None:
    await connection.head(200, {"Content-Type": "application/json"})
    await connection.send(dump(ask.good))
    connection.close()


@fault
async def header_200_kb(connection: Connection, ask: Ask) -> None:
    await connection.json(dump(ask.good), **{"X-Long": "x" * 200_000})


@fault
async def headers_10000(connection: Connection, ask: Ask) -> None:
    await connection.json(dump(ask.good), **{f"X-{number}": "x" for number in range(10_000)})


@fault
async def no_http(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    connection.close()


@fault
async def answers_1xx(connection: Connection, ask: Ask) -> None:
    await connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 20)
    await connection.json(dump(ask.good))


@fault
async def wrong_type(connection: Connection, ask: Ask) -> None:
    await connection.status(200, dump(ask.good), {"Content-Type": "text/plain"})


@fault
async def no_type(connection: Connection, ask: Ask) -> None:
    await connection.status(200, dump(ask.good))


@fault
async def empty(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.json(b"")


@fault
async def gzip_bomb(connection: Connection, ask: Ask) -> None:
    assert ask.good
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first, next_one = (packer.compress(b" " * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    # Packed once and repeated: packing all of it takes as long as the caller waits on a slow machine.
    packed = first + next_one * (BOMB_MEBIBYTES - 1) + packer.flush()
    await connection.json(packed, **{"Content-Encoding": "gzip"})


@fault
async def endless_body(connection: Connection, ask: Ask) -> None:
    """Megabyte after megabyte, until the other side has enough."""
    assert ask.good
    await connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    while ask.is_on():
        await connection.chunk(b" " * MEBIBYTE)
    connection.close()


@fault
async def chunk_bad(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    await connection.send(b"zz\r\nno chunk\r\n")
    connection.close()


@fault
async def chunk_bad_later(connection: Connection, ask: Ask) -> None:
    """The head has arrived when the body turns out to be nonsense."""
    assert ask.good
    await connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    await asyncio.sleep(TICK_S)
    await connection.send(b"zz\r\nno chunk\r\n")
    connection.close()


@fault
async def drip(connection: Connection, ask: Ask) -> None:
    body = dump(ask.good)
    await connection.head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    while ask.is_on() and len(body) > 1:
        await connection.send(body[:1])
        body = body[1:]
        await asyncio.sleep(TICK_S)
    await connection.send(body)


@fault
async def drip_head(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    while ask.is_on():
        await connection.send(b"X-Drip: x\r\n")
        await asyncio.sleep(TICK_S)
    connection.close()


@fault
async def sse_cut(connection: Connection, ask: Ask) -> None:
    """The stream ends in good order without an answer in it."""
    assert ask.good
    await connection.begin_stream()
    await connection.event(dump({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "soon"}}))
    await connection.end_stream()


@fault
async def sse_reset(connection: Connection, ask: Ask) -> None:
    await connection.begin_stream()
    await connection.chunk(b"event: message\ndata: " + dump(ask.good)[:20])
    connection.reset()


@fault
async def sse_half_event(connection: Connection, ask: Ask) -> None:
    """The answer is whole, the blank line that ends its event is not there."""
    await connection.begin_stream()
    await connection.chunk(b"data: " + dump(ask.good) + b"\n")
    await connection.end_stream()


@fault
async def sse_keep_alive(connection: Connection, ask: Ask) -> None:
    """Comments, and never an answer."""
    assert ask.good
    await connection.begin_stream()
    while ask.is_on():
        await connection.chunk(b": still here\n\n")
        await asyncio.sleep(TICK_S)
    connection.close()


@fault
async def sse_drip(connection: Connection, ask: Ask) -> None:
    event = b"data: " + dump(ask.good) + b"\n\n"
    await connection.begin_stream()
    while ask.is_on() and len(event) > 1:
        await connection.chunk(event[:1])
        event = event[1:]
        await asyncio.sleep(TICK_S)
    await connection.chunk(event)
    await connection.end_stream()


@fault
async def sse_endless_event(connection: Connection, ask: Ask) -> None:
    assert ask.good
    await connection.begin_stream()
    while ask.is_on():
        await connection.chunk(b"data: " + b"x" * MEBIBYTE + b"\n")
    connection.close()


@fault
async def sse_carriage_returns(connection: Connection, ask: Ask) -> None:
    await connection.begin_stream()
    for piece in (b"\xef\xbb\xbf:hi\r\rid: 1\r", b"data: ", dump(ask.good), b"\r", b"\r"):
        await connection.chunk(piece)
    await connection.end_stream()


@fault
async def sse_resumable_cut(connection: Connection, ask: Ask) -> None:
    """Promises to go on and never does: who asks again for the rest is told that there is none."""
    assert ask.good
    await connection.begin_stream()
    await connection.chunk(b"id: 1\nretry: 50\ndata:\n\n")
    await connection.end_stream()


@fault
async def crash(connection: Connection, ask: Ask) -> None:
    assert ask.good
    os._exit(7)


@fault
async def crash_before(connection: Connection, ask: Ask) -> None:
    os._exit(7)
