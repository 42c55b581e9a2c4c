"""Answers of the broker: one JSON body, or a stream once the server sends something before."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Send

from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.web.common.messages import json_response

Headers = list[tuple[bytes, bytes]]
_JSON: Final = (b"content-type", b"application/json")
_STREAM_HEADERS: Final[Headers] = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""The second asks proxies in front not to hold back a stream until it has ended."""

_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
"""In JSON they stand between values only: inside of text they are escaped."""


class BrokerAnswer:
    """The way back to the caller of one request. Nothing of the server's own headers is passed on.

    A caller that takes event streams gets one; one that takes JSON only gets its lines, each a message.

    Args:
        send: Takes ASGI messages; waits while the caller reads slowly.
        request_id: For the reply.
        takes_json: Whether the caller takes a JSON body.
        takes_events: Whether it takes an event stream.
    """

    def __init__(self, send: Send, request_id: int | str, *, takes_json: bool, takes_events: bool) -> None:
        self._send = send
        self._id = request_id
        self._takes_json = takes_json
        self._is_events = takes_events
        self.has_begun = False

    async def say(self, message: bytes) -> None:
        """Passes on what comes before the reply, at once.

        Args:
            message: JSON text of one message.
        """
        if not self.has_begun:
            self.has_begun = True
            kind = (b"content-type", b"text/event-stream") if self._is_events else _JSON
            await self._start(200, [kind, *_STREAM_HEADERS])
        await self._write(message, "message")

    async def end(self, result: bytes) -> None:
        """Replies with the result, JSON text."""
        await self._reply(b'"result":' + result, "message")

    async def end_badly(self, error: ProxyError) -> None:
        """Replies with the JSON-RPC error that the server answered with, or that a begun stream ends with."""
        answer = error.answer if isinstance(error, UpstreamError) else None
        if answer is not None:
            members: dict[str, Any] = {"code": answer.code, "message": answer.message}
            if answer.data is not None:
                members["data"] = answer.data
        else:
            members = {"code": error.jsonrpc_code, "message": str(error), "data": error.to_dict()}
        await self._reply(b'"error":' + msgspec.json.encode(members), "error" if answer is None else "message")

    async def _reply(self, member: bytes, event: str) -> None:
        text = b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(self._id) + b"," + member + b"}"
        if not self.has_begun and self._takes_json:
            await self._start(200, [_JSON, (b"content-length", b"%d" % len(text))])
            await self._send({"type": "http.response.body", "body": text})
            return
        if not self.has_begun:
            await self.say(text)
        else:
            await self._write(text, event)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, message: bytes, event: str) -> None:
        message = message.translate(_LINE_ENDS)
        text = b"event: %b\ndata: %b\n\n" % (event.encode(), message) if self._is_events else message + b"\n"
        await self._send({"type": "http.response.body", "body": text, "more_body": True})

    async def _start(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def failure(error: ProxyError, server: str, *, is_proxy: bool, status: int | None = None) -> Response:
    """An HTTP status and what went wrong.

    Args:
        error: What went wrong.
        server: The name in the request's path, empty where it has none.
        is_proxy: Whether the caller may reach a server of that name through the broker.
        status: Where it is not the error's own.

    Source: docs/design/broker.md#errors
    """
    told = (error.data or {}).get("http_status")
    body = {
        "error": "ProxyError",
        "message": str(error),
        "details": {
            "mcpName": server,
            "proxyEnabled": is_proxy,
            "code": error.error_code,
            "delivery": error.delivery,
            **({} if told is None else {"httpStatus": told}),
        },
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return json_response(body, error, status=status)
