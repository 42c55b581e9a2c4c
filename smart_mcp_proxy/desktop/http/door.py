"""Small process of a client, between its pipes and a gateway over HTTP, in both protocol eras.

Each request has a connection of its own while it is under way, and what comes of it is passed on as it comes. If the
gateway forgets the session, as one does that was started anew, the handshake is made again and its answers are kept
from the client, requests that may be repeated are, and a call of which nobody knows whether it was carried out is
answered with an error that says so.
"""

import select
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

from smart_mcp_proxy.desktop.http.address import HttpAddress
from smart_mcp_proxy.desktop.http.exchange import Exchange
from smart_mcp_proxy.desktop.http.link import Link
from smart_mcp_proxy.desktop.lines import (
    build_cancellation,
    build_lost_error,
    encode,
    get_param,
    read_head,
    read_message,
    split_lines,
)
from smart_mcp_proxy.desktop.pipes import ClientPipes, Gone
from smart_mcp_proxy.desktop.questions import Questions
from smart_mcp_proxy.desktop.session import SessionLines, build_changes

_VERSION, _SESSION = "mcp-protocol-version", "mcp-session-id"
_AWAY_S: Final = 10.0
"""A gateway that is started anew is there again within this time; then the client hears that there is none."""
_CONNECT_S: Final = 10.0
_GOODBYE_S: Final = 12.0
"""A client that closes its end and still waits for answers gets those that come within this time."""
_DELETE_S: Final = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_REOPEN_S, _LONGEST_REOPEN_S = 1.0, 8.0
_STEADY_S: Final = 5.0
"""Seconds of an answer after which its end is no failure at once."""
_REUSE_S: Final = 4.0
"""Gateways close a connection that is idle for five seconds; a call that meets its end may be lost."""
_MOST_OPEN: Final = 100
"""Requests under way; the rest waits."""
_MOST_QUEUED: Final = 1_000
"""Lines that wait; the rest waits in the pipe."""
_NOT_FOUND: Final = 404
_FAILING: Final = 500


class HttpDoor:
    """Client's way to a gateway over HTTP, from its first message to its last.

    Args:
        address: Of the gateway.
    """

    def __init__(self, address: HttpAddress) -> None:
        self._address = address
        self._pipes = ClientPipes()
        self._lines = SessionLines()
        self._questions = Questions()
        self._questions.begin()
        self._session: dict[str, str] = {}
        """Headers of the session, whose first is the protocol's version."""
        self._open: list[Exchange] = []
        self._idle: list[Link] = []
        self._queue: deque[Exchange] = deque()
        self._replay: deque[Exchange] = deque()
        """The handshake that is made again, before anything else."""
        self._barrier: Exchange | None = None
        """Nothing more is sent before its answer."""
        self._retry_at = self._listen_at = self._ends_at = 0.0
        self._pause_s, self._reopen_s = _FIRST_PAUSE_S, _REOPEN_S
        self._last_event_id = ""

    def run(self) -> int:
        """Carries messages until the client leaves; returns the exit status."""
        with self._pipes.open():
            with suppress(Gone):
                while not self._is_done():
                    self._step()
            self._say_goodbye()
        return 130 if self._pipes.signal == 2 else 0

    def _is_done(self) -> bool:
        if not self._pipes.is_ended:
            return False
        self._ends_at = self._ends_at or time.monotonic() + _GOODBYE_S
        is_waiting = any(each.is_waited_for for each in (*self._open, *self._queue)) or self._pipes.unsent
        return bool(self._pipes.signal) or not is_waiting or time.monotonic() > self._ends_at

    def _say_goodbye(self) -> None:
        for each in self._open:
            self._close(each)
        self._open.clear()
        self._pipes.is_ended = True
        self._pipes.unsent.clear()
        if _SESSION not in self._session:
            return
        self._queue.clear()
        self._replay.clear()
        self._retry_at = self._listen_at = 0.0
        ends_at = time.monotonic() + _DELETE_S
        with suppress(Gone):
            self._begin(Exchange(b"", {}, verb="DELETE"))
            while self._open and time.monotonic() < ends_at:
                self._step()

    # What is ready.

    def _step(self) -> None:
        poll = select.poll()
        self._pipes.register(poll, is_reading=len(self._queue) < _MOST_QUEUED)
        by_number = {}
        if not self._pipes.is_full:
            for each in self._open:
                if (link := each.link) is not None:
                    by_number[link.number] = each
                    poll.register(link.number, link.events | (select.POLLOUT if link.is_open and each.out else 0))
        for link in self._idle:
            poll.register(link.number, select.POLLIN)
        ready = {number for number, _ in poll.poll(self._wait_ms())}
        for line in split_lines(self._pipes.rest, self._pipes.serve(ready)):
            if line.strip():
                self._take(line)
        for number in ready & by_number.keys():
            if (each := by_number[number]) in self._open:
                self._advance(each)
        self._idle = [link for link in self._idle if link.number not in ready or link.stays_idle()]
        self._heed_time()
        self._pump()

    def _wait_ms(self) -> float | None:
        times = [at for at in (self._listen_at, self._ends_at) if at]
        if self._queue or self._replay:
            times.append(self._retry_at)
        if self._verbs("DELETE") or any(each.link and not each.link.is_open for each in self._open):
            times.append(time.monotonic() + 1.0)
        future = [at for at in times if at > time.monotonic()]
        return (min(future) - time.monotonic()) * 1_000 + 1 if future else None

    def _verbs(self, verb: str) -> list[Exchange]:
        return [each for each in self._open if each.verb == verb]

    def _heed_time(self) -> None:
        now = time.monotonic()
        for each in [each for each in self._open if each.link and not each.link.is_open and each.age_s > _CONNECT_S]:
            self._lose(each, TimeoutError())
        if self._listen_at and now >= self._listen_at and self._barrier is None and not self._replay:
            self._listen_at = 0.0
            if not self._verbs("GET"):
                self._begin(Exchange(b"", {}, verb="GET"))

    # The client's lines.

    def _take(self, line: bytes) -> None:
        message = read_message(line)
        method, key = message.get("method"), message.get("id")
        if not message:
            self._answer_error(None, "The message is not a JSON object.", code=-32700)
            return
        if method == "notifications/cancelled" and not self._passes_cancellation(get_param(message, "requestId")):
            return
        if method is None and isinstance(key, int | str):
            if (answer := self._questions.answer(line, key)) is None:
                return
            line, message = answer, message if answer is line else read_message(answer)
        each = Exchange(line, message)
        if each.is_request or each.is_barrier or not self._may_send():
            self._queue.append(each)
            self._pump()
        else:  # of more requests than are sent at a time, an answer or cancellation may end one
            self._begin(each)

    def _passes_cancellation(self, key: Any) -> bool:
        """Whether the gateway is to hear of it; a modern request ends with its stream and not by a message."""
        for each in (*self._open, *self._queue):
            if each.is_request and not (each.is_answered or each.is_hidden) and each.key == key:
                each.is_cancelled = True
                if not each.is_unsent and not each.modern:
                    return True
                self._drop(each)
                return False
        return bool(self._session)

    def _may_send(self) -> bool:
        return self._barrier is None and not self._replay and time.monotonic() >= self._retry_at

    def _pump(self) -> None:
        """Send what waits, as far as that may be."""
        while queue := self._replay or self._queue:
            is_held = self._barrier is not None or time.monotonic() < self._retry_at
            if is_held or len(self._open) >= _MOST_OPEN:
                return
            self._begin(queue.popleft())

    def _begin(self, each: Exchange) -> None:
        if each.method == "initialize" and not each.is_hidden:
            self._session, self._lines.lines = {}, []
        headers = each.modern or ({} if each.method == "initialize" else dict(self._session))
        if each.verb == "GET" and self._last_event_id:
            headers["last-event-id"] = self._last_event_id
        if each.method is not None and not each.modern:
            self._lines.note(each.method, each.message, each.line)
        if each.is_barrier:
            self._barrier = each
        self._open.append(each)
        try:
            each.begin(self._address, self._find_link(), headers)
        except (OSError, ValueError) as exc:  # a name may be none
            self._lose(each, exc)

    def _find_link(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if link.stays_idle(_REUSE_S):
                return link
        return Link(self._address)

    # The gateway's answers.

    def _advance(self, each: Exchange) -> None:
        try:
            said = each.advance()
        except (OSError, ValueError) as exc:
            self._lose(each, exc)
            return
        for data in said:
            self._pass_event(each, data)
        if each.reply.status:
            self._pause_s = _FIRST_PAUSE_S
        if each in self._open and each.reply.is_whole:
            self._finish(each)

    def _pass_event(self, each: Exchange, data: bytes) -> None:
        kind, key = read_head(data)
        if each.verb == "GET":
            self._last_event_id, self._reopen_s = each.events.last_id, _REOPEN_S
        if kind == "request" and isinstance(key, int | str):
            data = self._questions.ask(data, key)
        elif kind == "other":
            data = self._questions.hear(data)
        if kind == "answer" and each.is_request and key == each.key:
            self._answer(each, data)
        else:
            self._write(data)

    def _finish(self, each: Exchange) -> None:
        """Heed a reply that is whole."""
        if each.is_request and each.is_stream and not each.is_answered:
            self._lose(each, EOFError())
            return
        self._drop(each)
        if each.verb == "GET":
            if each.is_success or each.reply.status >= _FAILING:
                self._listen_again()
            elif each.reply.status == _NOT_FOUND and each.session:
                self._renew_session(each)
        elif each.verb == "POST" and (problem := self._read_answer(each)):
            if each.reply.status == _NOT_FOUND and each.session and not each.has_lost_session:
                self._renew_session(each)
            else:
                self._fail(each, problem)
        elif each.method == "notifications/initialized" and self._session:
            self._listen_at = time.monotonic()

    def _read_answer(self, each: Exchange) -> str:
        """Pass on the answer in a body; returns what is wrong with it, in words."""
        body = bytes(each.body).strip()
        if body and each.is_request and b'"jsonrpc"' in body:
            kind, key = read_head(body)
            if kind == "answer" and (each.is_success or key == each.key):
                self._answer(each, body)
                return ""
        if not each.is_success:
            return _describe_refusal(each.reply.status, self._address.shown)
        return "The gateway's answer is not JSON-RPC." if body and each.is_request and not each.is_stream else ""

    def _answer(self, each: Exchange, data: bytes) -> None:
        each.is_answered = True
        if each.method == "initialize" and not each.modern:
            self._learn_session(each, data)
        if not each.is_hidden and not each.is_cancelled:
            self._write(data)

    def _learn_session(self, each: Exchange, data: bytes) -> None:
        result = read_message(data).get("result")
        if not isinstance(result, dict):
            if each.is_hidden:
                self._fail(each, f"{self._address.shown} opens no session any more.")
            return
        self._session = {_VERSION: str(result.get("protocolVersion"))}
        if session := each.reply.headers.get(_SESSION):
            self._session[_SESSION] = session
        if each.is_hidden:
            self._pipes.write(build_changes(data))
        if self._barrier is each:  # its stream may stay open
            self._barrier = None

    # What goes wrong.

    def _renew_session(self, each: Exchange) -> None:
        """Make the handshake again where the gateway has forgotten the session; then send the request again."""
        is_renewing = self._replay or (self._barrier is not None and self._barrier.is_hidden)
        if each.session == self._session.get(_SESSION) and not is_renewing:
            self._last_event_id = ""
            for stream in self._verbs("GET"):
                self._drop(stream)
            self._pipes.write(b"".join(map(build_cancellation, self._questions.end())))
            self._questions.begin()
            hidden = ((line, read_message(line)) for line in self._lines.lines)
            self._replay.extend(Exchange(line, message, is_hidden=True) for line, message in hidden)
        if each.is_waited_for and not each.is_hidden:
            each.has_lost_session = True
            self._queue.appendleft(each)

    def _lose(self, each: Exchange, exc: Exception) -> None:
        """Send it again where that does no harm, or say that it is lost."""
        may_be_sent_again, now = each.may_be_sent_again, time.monotonic()
        if each.is_endless and each.link is not None and each.age_s > _STEADY_S:
            each.failing_since = None
        self._drop(each)
        if each.verb == "GET":
            self._listen_again()
        if each.verb != "POST" or each.is_answered or each.is_cancelled:
            return
        each.failing_since = each.failing_since or now
        if not may_be_sent_again:
            self._pipes.write(build_lost_error(each.message))
        elif now - each.failing_since < _AWAY_S and not isinstance(exc, ValueError):
            each.link = None
            (self._replay if each.is_hidden else self._queue).appendleft(each)
            if now >= self._retry_at:  # the first of all that are lost at the same time
                self._retry_at = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        else:
            advice = "" if isinstance(exc, ValueError) else " Start it: mcpproxy serve --http"
            self._fail(each, f"No answer from {self._address.shown}: {type(exc).__name__}.{advice}")

    def _fail(self, each: Exchange, problem: str) -> None:
        """Say what has become of a message; without its session, nothing that waits can be sent."""
        if each.is_hidden:
            self._replay.clear()
            failed, self._queue = self._queue, deque()
            for other in failed:
                self._fail(other, problem)
        elif each.is_request and not each.is_cancelled:
            self._answer_error(each.key, problem)
        else:
            with suppress(OSError):
                sys.stderr.write(f"{problem}\n")

    def _listen_again(self) -> None:
        self._listen_at = time.monotonic() + self._reopen_s
        self._reopen_s = min(2 * self._reopen_s, _LONGEST_REOPEN_S)

    def _drop(self, each: Exchange) -> None:
        """Take it from those under way."""
        if each in self._open:
            self._open.remove(each)
            self._close(each)
        elif each in self._queue:
            self._queue.remove(each)
        if self._barrier is each:
            self._barrier = None

    def _close(self, each: Exchange) -> None:
        if each.link is not None:
            if each.link.is_open and not each.out and each.reply.is_whole and each.reply.is_reusable:
                each.link.since = time.monotonic()
                self._idle.append(each.link)
            else:
                each.link.close()

    # To the client.

    def _answer_error(self, key: Any, problem: str, *, code: int = -32603) -> None:
        self._pipes.write(encode({"jsonrpc": "2.0", "id": key, "error": {"code": code, "message": problem}}))

    def _write(self, data: bytes) -> None:
        """Write one message as one line."""
        if b"\n" in data or b"\r" in data:
            # Line breaks between the tokens of JSON mean nothing, and inside of them there are none.
            data = data.replace(b"\r", b" ").replace(b"\n", b" ")
        self._pipes.write(data + b"\n")


def _describe_refusal(status: int, url: str) -> str:
    """Say a refusal in words of ours."""
    if status in (401, 403):
        return f"{url} asks for a token ({status}). Give it with --header or MCPPROXY_AUTH_TOKEN."
    if status == _NOT_FOUND:
        return f"{url} answers 404: the session has ended, or the path is another one. Start the client anew."
    return f"{url} answers {status}."
