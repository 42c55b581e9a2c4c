"""Dispatch of messages that arrive over HTTP, on whichever stream."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from mcp_types import METHOD_NOT_FOUND

from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream.protocol.codec import (
    OFF_LOOP_BYTES,
    BrokenMessage,
    Envelope,
    decode_messages,
    read_messages,
)
from smart_mcp_proxy.upstream.protocol.pending import PendingCalls
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation, Reply, ReplySoon
from smart_mcp_proxy.upstream.protocol.session import (
    LogLine,
    OnEvent,
    SessionEvent,
    parse_change_event,
)

_LOG_TEXT_CHARS: Final = 2_000
_VERSION: Final = b'"2.0"'
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

_log = get_logger("upstream")


@dataclass(eq=False, repr=False)
class BaseInbox:
    """Gives replies to their requests, progress to its call, and the rest to whom it concerns.

    Attributes:
        server: Configured name, for messages.
        pending: The requests under way.
        on_event: Told of changes and log lines.
        answer: Sends an answer to a request of the server's; does not wait.
        say: Sends the server a message, and waits until it was taken.
        peer: The one client that the session is for; None where many share it.
        on_subscribed: Told when the server confirms the subscription to changes of its lists.
    """

    server: str
    pending: PendingCalls
    on_event: OnEvent
    answer: ReplySoon
    say: Reply
    peer: Conversation | None = None
    on_subscribed: Callable[[], None] = lambda: None

    def _receive_request(self, message: Envelope) -> None:
        """Deal with a request or notification of the server."""
        if self.peer is not None and self.peer.take(message, self.answer, self.say):
            return
        if bytes(message.id):
            self.answer(answer_to(message))
        elif message.method == "notifications/progress":
            self.pending.report(bytes(message.params))
        elif (event := parse_session_event(message)) is not None:
            self.on_event(event)
        elif message.method == _ACKNOWLEDGED:
            self.on_subscribed()


class Inbox(BaseInbox):
    """Inbox of exchanges over HTTP."""

    async def take(self, request_id: int | None, *pieces: bytes) -> bool:
        """Deals with the messages in one body or one event.

        Args:
            request_id: The request whose answer this is part of, None on the stream of announcements.
            pieces: What arrived, at least one piece.

        Returns:
            Whether that request is answered now, well or badly.
        """
        is_short = len(pieces) == 1 and len(pieces[0]) <= OFF_LOOP_BYTES
        messages = decode_messages(*pieces) if is_short else await read_messages(*pieces)
        if isinstance(messages, list):
            is_answered = False
            for message in messages:
                is_answered |= self._receive(message, request_id)
            return is_answered
        if request_id is None:
            _log.debug("server %s: skipped an announcement that cannot be read", self.server)
            return False
        reason = messages.reason if messages is not None else "it is no JSON-RPC message"
        return self.pending.settle_broken(BrokenMessage(request_id, reason))

    def take_refusal(self, text: bytes, request_id: int) -> bool:
        """Fails the request with the JSON-RPC error in the body of an HTTP error; False if there is none.

        It must be a whole one, with the request's id and an integer as its code: errors of OAuth and of HTTP interfaces
        have a member `error`, too.
        """
        match decode_messages(text):
            case [Envelope(method="") as message] if message.request_id == request_id and _is_whole_error(message):
                return self.pending.settle(message)
        return False

    def _receive(self, message: Envelope, request_id: int | None) -> bool:
        if not message.method:
            return self._settle(message, request_id)
        self._receive_request(message)
        return False

    def _settle(self, message: Envelope, request_id: int | None) -> bool:
        """Hands a reply over if it came as the answer to the request it names, or names none."""
        stated_id = message.request_id
        if request_id is not None and stated_id is None and message.has_lost_id:
            return self.pending.settle(message, request_id)
        if request_id is not None and stated_id == request_id:
            return self.pending.settle(message)
        _log.debug("server %s: dropped a reply that nobody waits for", self.server)
        return False


class _WholeError(msgspec.Struct):
    code: int


_whole_error = msgspec.json.Decoder(_WholeError)


def _is_whole_error(message: Envelope) -> bool:
    if bytes(message.jsonrpc) != _VERSION or bytes(message.result):
        return False
    try:
        return type(_whole_error.decode(message.error).code) is int
    except (msgspec.MsgspecError, RecursionError):
        return False


def parse_session_event(message: Envelope) -> SessionEvent | None:
    """Convert a server's notification into an event; None where nothing here needs it."""
    if message.method == "notifications/message":
        return LogLine(bytes(message.params)[:_LOG_TEXT_CHARS].decode(errors="replace"))
    return parse_change_event(message.method, bytes(message.params))


def answer_to(message: Envelope) -> dict[str, Any]:
    """The answer to a request of the server's: it may ask whether we are there, and nothing else."""
    if message.method == "ping":
        return {"jsonrpc": "2.0", "id": message.id, "result": {}}
    error = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {message.method}"}
    return {"jsonrpc": "2.0", "id": message.id, "error": error}
