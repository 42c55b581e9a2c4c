"""Choice of a reply's form over HTTP at its first message: a JSON body or an event stream."""

import asyncio
import re
from typing import Final

from starlette.types import Message, Send

from smart_mcp_proxy.web.common.messages import JSON_TYPE

_RESPONSE: Final = re.compile(
    rb'event: message\r\ndata: (?=\{"jsonrpc":"2\.0","id":(?:-?[0-9]+|"(?:[^"\\]|\\.)*+"|null),"(?:result|error)":)'
)
"""The beginning of an event that the SDK writes for a response: what it asks or tells names a method instead, and an
event that is to be found again, or a ping, begins otherwise. Only the head of a long result is looked at."""
_EVENT_END: Final = b"\r\n\r\n"
_OF_STREAMS: Final = frozenset((b"content-type", b"cache-control", b"connection", b"x-accel-buffering"))


class FormAtFirstMessage:
    """Holds back the head of an event stream until its first write; passes everything else.

    A response that comes first is sent as one JSON body; anything else, a ping included, opens the stream. Never more
    than the head is kept.

    Args:
        send: To the client.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._is_answered = False
        self._turn = asyncio.Lock()  # pings and events come from two tasks, and the head goes before both

    async def send(self, message: Message) -> None:
        """Takes a message of the application."""
        async with self._turn:
            if message["type"] == "http.response.start" and _is_stream(message):
                self._head = message
            elif self._head is not None:
                await self._begin(message)
            elif not self._is_answered or not message.get("body"):  # after the whole body there is only its end
                await self._send(message)

    async def finish(self) -> None:
        """Sends what is held back. The application is through."""
        async with self._turn:
            if self._head is not None:
                head, self._head = self._head, None
                await self._send(head)

    async def _begin(self, first: Message) -> None:
        assert self._head is not None
        head, self._head = self._head, None
        body = first.get("body", b"")
        event = _RESPONSE.match(body)
        if event is not None and body.endswith(_EVENT_END):
            self._is_answered = True
            body = body[event.end() : -len(_EVENT_END)]
            first = {**first, "body": body}
            fields = [field for field in head["headers"] if field[0].lower() not in _OF_STREAMS]
            own = [(b"content-type", JSON_TYPE.encode()), (b"content-length", b"%d" % len(body))]
            head = {**head, "headers": fields + own}
        await self._send(head)
        await self._send(first)


def _is_stream(head: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in head["headers"]
    )
