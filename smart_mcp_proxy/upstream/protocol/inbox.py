"""Dispatch of messages that arrive, over HTTP on any stream or on one that all requests share."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import msgspec
from mcp_types import METHOD_NOT_FOUND

from smart_mcp_proxy.io.lines import LineSplitter, OverlongLine
from smart_mcp_proxy.telemetry import fields, get_logger, printable
from smart_mcp_proxy.upstream.protocol.codec import (
    OFF_LOOP_BYTES,
    BrokenMessage,
    Envelope,
    decode_messages,
    is_blank,
    read_messages,
    recover_request_id,
)
from smart_mcp_proxy.upstream.protocol.pending import PendingCalls, is_same_id
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation, Reply, ReplySoon
from smart_mcp_proxy.upstream.protocol.session import LogLine, OnEvent, SessionEvent, parse_change_event

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
        if request_id is not None and stated_id is not None and is_same_id(stated_id, request_id):
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


_BURST_LINES: Final = 32
"""Lines of one server that are dealt with before the others get a turn."""
_LITTLE_BYTES: Final = 16_384
"""Beside what is done with more a turn of the event loop is nothing, and to count the lines in it takes as long."""
_NOISE_WARNING_S: Final = 60.0
_NOISE_CHARS: Final = 160
"""Characters kept of the beginning of what is no message."""
_LOGGED_BYTES: Final = 4_096
_GRACE_S: Final = 2.0
"""For a message after lines that some programs print beside it."""
_NEVER_READ: Final = (
    (
        # Source: https://microsoft.github.io/language-server-protocol/specifications/base/0.9/specification/
        rb"(?i)content-length:\s*\d",
        "frames its messages with headers ('{}') as language servers do, where MCP has one message a line: "
        "it needs another version, or an option for stdio",
        0.0,
    ),
    (
        rb'\s*"jsonrpc"\s*:',
        "writes its messages over several lines ('{}'), where MCP has one message a line: "
        "it needs another version, or an option for compact JSON",
        _GRACE_S,
    ),
)
"""Lines in place of the first message, what they show, and the seconds after which no message is expected any more."""


@dataclass(eq=False, repr=False)
class LineInbox(BaseInbox):
    """Inbox of a stream that all requests share; more than `BaseInbox` has.

    Attributes:
        max_message_bytes: Longer messages are refused.
        heard_s: When the server last wrote something, on the event loop's clock; 0 for never.
        noise: The beginning of what it wrote before its first message and is none; empty for nothing.
    """

    _: KW_ONLY
    max_message_bytes: int

    def __post_init__(self) -> None:
        self.heard_s = 0.0
        self.noise = ""
        self._extra = fields(server=self.server)
        self._is_spoken = self._is_doubted = self._is_question_told = False
        self._lines = LineSplitter(self.max_message_bytes)
        self._loop = asyncio.get_running_loop()
        self._next_noise_warning = 0.0

    @property
    def unread(self) -> str:
        """The beginning of what came in place of the first message, if only without the end of a line."""
        if self.noise or self._is_spoken:
            return self.noise
        return printable(self._lines.partial_line[:_NOISE_CHARS].decode(errors="replace"))

    def take(self, chunk: bytes) -> bool:
        """Deals with what has just arrived, unless it is much; then it has to be read. See `OfferingReader`."""
        if len(chunk) > _LITTLE_BYTES:
            return False
        alone = self._lines.whole(chunk)
        if alone is None and chunk.count(b"\n") > _BURST_LINES:
            return False
        self.heard_s = self._loop.time()
        for line in self._lines.feed(chunk) if alone is None else (alone,):
            self._receive_line(line)
        if not self._is_spoken:
            self._hear_question()
        return True

    async def read(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Deals with what `read` returns, which is what was not taken, until that is nothing."""
        while await self._deal_with(await read()):  # nothing of it is kept while the next is waited for
            pass

    async def take_message(self, text: bytes) -> None:
        """Deals with one message that was cut out of another kind of stream."""
        self.heard_s = self._loop.time()
        self._receive_all(text, await read_messages(text))

    async def _deal_with(self, chunk: bytes) -> bool:
        self.heard_s = self._loop.time() if chunk else self.heard_s
        for number, line in enumerate(self._lines.feed(chunk), 1):
            if isinstance(line, bytes) and len(line) > OFF_LOOP_BYTES:
                self._receive_all(line, await read_messages(line))
            else:
                self._receive_line(line)
            if number % _BURST_LINES == 0:
                await asyncio.sleep(0)
        return bool(chunk)

    def _receive_line(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            reason = f"{line.size_bytes:,} bytes long, at most {self.max_message_bytes:,} are accepted"
            broken = BrokenMessage(recover_request_id(line.head, line.tail), reason)
            _log.warning("server %s: a message was refused: %s", self.server, reason, extra=self._extra)
            self.pending.settle_broken(broken, is_garbled=False)
            return
        self._receive_all(line, decode_messages(line))

    def _receive_all(self, line: bytes, messages: list[Envelope] | BrokenMessage | None) -> None:
        match messages:
            case None:
                if not is_blank(line):
                    self._hear_noise(line)
            case BrokenMessage() as broken:
                _log.warning(
                    "server %s sent a message that cannot be read: %s", self.server, broken.reason, extra=self._extra
                )
                self.pending.settle_broken(broken)
            case _:
                self._is_spoken = True
                for message in messages:
                    self._receive(message)

    def _receive(self, message: Envelope) -> None:
        if not message.method:
            if not self.pending.settle(message):
                _log.debug("server %s: dropped a reply that nobody waits for", self.server, extra=self._extra)
        else:
            self._receive_request(message)

    def _hear_noise(self, line: bytes) -> None:
        """Keep a line that is no message; where it shows that there will be none, give the session up."""
        text = line[:_LOGGED_BYTES].decode(errors="replace")
        if not self._is_spoken:
            self.noise = printable(f"{self.noise} {text.strip()}"[:_NOISE_CHARS].lstrip())
            for pattern, words, grace_s in _NEVER_READ:
                if not re.match(pattern, line):
                    continue
                if not grace_s:
                    self.pending.give_up(words.format(self.noise))
                elif not self._is_doubted:
                    self._is_doubted = True
                    self._loop.call_later(grace_s, self._give_up, words.format(self.noise))
        self.on_event(LogLine(text))
        self._warn_of_noise()

    def _give_up(self, words: str) -> None:
        """End a session in which no message has come since: some programs print, and answer as well."""
        if not self._is_spoken:
            self.pending.give_up(words)

    def _hear_question(self) -> None:
        """Keep a line that is no message before it ends: a program that asks somebody waits in it."""
        begun = self._lines.partial_line.strip()
        if begun and not begun.startswith((b"{", b"[")) and not self._is_question_told:
            self._is_question_told = True
            self.on_event(LogLine(begun[:_LOGGED_BYTES].decode(errors="replace")))

    def _warn_of_noise(self) -> None:
        now = time.monotonic()
        if now >= self._next_noise_warning:
            self._next_noise_warning = now + _NOISE_WARNING_S
            _log.warning(
                "server %s sends text that is no protocol message; it is skipped", self.server, extra=self._extra
            )
