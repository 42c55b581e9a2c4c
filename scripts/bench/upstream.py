"""A raw MCP server, as quick as plain Python allows: the upstream that every candidate is measured in front of.

Usage: python -S upstream.py ERA stdio | python -S upstream.py ERA http PORT, where ERA is handshake or modern.

It knows what its own benchmark sends and finds ids and arguments by pattern instead of parsing; it is no example of a
server. The standard library only, so that fifty of them start quickly.
"""

import asyncio
import json
import os
import re
import socket
import sys

ID = re.compile(rb'"id"\s*:\s*(\d+|"[^"]*")')
METHOD = re.compile(rb'"method"\s*:\s*"([^"]+)"')
TOOL = re.compile(rb'"name"\s*:\s*"(echo|blob)"')
TEXT = re.compile(rb'"text"\s*:\s*"((?:[^"\\]|\\.)*)"')
SIZE = re.compile(rb'"size"\s*:\s*(\d+)')
ESCAPED = re.compile(rb'"escaped"\s*:\s*true')
WORLD = 'Привет, мир! 한국어 텍스트 漢字 naïve — "yes" 😀\n'
"""Repeated, it is a result of which every letter beyond ASCII is written as an escape."""
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)

INFO = b'{"name":"bench-upstream","version":"1"}'
TOOLS = (
    b'[{"name":"echo","description":"Returns its text.","inputSchema":{"type":"object",'
    b'"properties":{"text":{"type":"string"}},"required":["text"]}},'
    b'{"name":"blob","description":"Returns that many letters.","inputSchema":{"type":"object",'
    b'"properties":{"size":{"type":"integer"}},"required":["size"]}}]'
)
UNKNOWN = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}'
CACHE = b'"ttlMs":0,"cacheScope":"private",'

HANDSHAKE = {
    b"initialize": b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":' + INFO + b"}",
    b"tools/list": b'{"tools":' + TOOLS + b"}",
    b"ping": b"{}",
}
MODERN = {
    b"server/discover": b'{"resultType":"complete",' + CACHE + b'"supportedVersions":["2026-07-28"],'
    b'"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":' + INFO + b"}}",
    b"tools/list": b'{"resultType":"complete",' + CACHE + b'"tools":' + TOOLS + b"}",
}


def escaped(size: int) -> str:
    """Text that takes about so many bytes as Python's `json.dumps` writes it."""
    return WORLD * (size // (len(json.dumps(WORLD)) - 2))


class Server:
    """Answers messages of one era."""

    def __init__(self, era: str) -> None:
        self.is_modern = era == "modern"
        self.fixed = MODERN if self.is_modern else HANDSHAKE
        kind = b'"resultType":"complete",' if self.is_modern else b""
        self.before = b'{"jsonrpc":"2.0","id":%b,"result":{' + kind + b'"content":[{"type":"text","text":"'
        self.blobs: dict[tuple[int, bool], bytes] = {}

    def answer(self, message: bytes) -> bytes | None:
        """The reply, None to a notification."""
        id_match, method_match = ID.search(message), METHOD.search(message)
        if id_match is None or method_match is None:
            return None
        request_id, method = id_match[1], method_match[1]
        if method == b"tools/call":
            return self.called(request_id, message)
        result = self.fixed.get(method)
        return (
            UNKNOWN % request_id if result is None else b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)
        )

    def called(self, request_id: bytes, message: bytes) -> bytes:
        tool = TOOL.search(message)
        if tool is not None and tool[1] == b"echo" and (text := TEXT.search(message)):
            return b"".join((self.before % request_id, text[1], b'"}]}}'))
        if tool is not None and tool[1] == b"blob" and (match := SIZE.search(message)):
            size, is_escaped = int(match[1]), ESCAPED.search(message) is not None
            if (size, is_escaped) not in self.blobs:
                text = escaped(size) if is_escaped else "x" * size
                self.blobs[size, is_escaped] = json.dumps(text)[1:].encode() + b"}]}}"
            return b"".join((self.before % request_id, self.blobs[size, is_escaped]))
        return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32602,"message":"Unknown tool"}}' % request_id


def serve_stdio(server: Server) -> None:
    """Answers line by line until stdin ends. One client and nothing to wait for: no event loop is quicker than none."""
    rest = b""
    while chunk := os.read(0, 1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        answers = [answer for line in lines if (answer := server.answer(line))]
        if answers:
            answers.append(b"")
            view = memoryview(b"\n".join(answers))
            while view:
                view = view[os.write(1, view) :]


class HttpConnection(asyncio.Protocol):
    """One kept connection; every reply is one JSON body."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data if self.buffer else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(data, 0, end)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(data) < stop:
                break
            self.transport.write(self.exchanged(data[:4], data[end + 4 : stop]))
            data = data[stop:]
        self.buffer = data

    def exchanged(self, verb: bytes, body: bytes) -> bytes:
        if verb != b"POST":  # no stream of announcements; ending a session is fine
            return b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % (b"200 OK" if verb == b"DELE" else b"405 No")
        answer = self.server.answer(body)
        if answer is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        status = b"404 Not Found" if self.server.is_modern and b'"code":-32601' in answer[:120] else b"200 OK"
        session = b"" if self.server.is_modern else b"mcp-session-id: bench\r\n"
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
        return b"".join((head % (status, session, len(answer)), answer))


async def serve_http(server: Server, port: int) -> None:
    """Serves on a loopback port until the process is ended."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpConnection(server), "127.0.0.1", port, backlog=1024)
    await listener.serve_forever()


def main() -> None:
    server = Server(sys.argv[1])
    if sys.argv[2] == "stdio":
        serve_stdio(server)
    else:
        asyncio.run(serve_http(server, int(sys.argv[3])))


if __name__ == "__main__":
    main()
