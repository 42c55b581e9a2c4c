"""The server of a process: what every response says, and its end."""

import asyncio
import socket
from email.utils import formatdate
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.web.server import uvicorn_server
from smart_mcp_proxy.web.server.uvicorn_server import serve_app

pytestmark = pytest.mark.anyio

LIMIT_S = 10
NOON = 1_795_867_200.5


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _ask(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head


async def test_each_response_says_when_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the second, though nothing wakes the process in between."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path := tmp_path / "http.sock"))
    listener.listen()
    monkeypatch.setattr(uvicorn_server.time, "time", lambda: NOON)
    async with asyncio.timeout(LIMIT_S):
        async with serve_app(_answer, listener):
            for later in (0, 61, 61.5):
                monkeypatch.setattr(uvicorn_server.time, "time", lambda later=later: NOON + later)
                dates = [each for each in (await _ask(path)).split(b"\r\n") if each.lower().startswith(b"date:")]
                assert dates == [b"date: " + formatdate(NOON + later, usegmt=True).encode()]
        with pytest.raises(OSError, match="refused"):
            await _ask(path)
