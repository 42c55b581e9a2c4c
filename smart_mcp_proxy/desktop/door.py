"""Small process that a client starts, between its pipes and the gateway of all clients.

Messages are passed on, not read, beyond what it takes to know which requests are open. If the gateway ends, the next
one is joined: the handshake is made again and its answers are kept from the client, requests that may be repeated are,
and a call of which nobody knows whether it was carried out is answered with an error that says so.

Refused: handing the client's pipes to the gateway. Nothing would be copied then, but a gateway that is killed in the
middle of a line would leave the client with half a line, and nobody who knows what was asked.
"""

import json
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from smart_mcp_proxy.desktop.lines import (
    ACKNOWLEDGED,
    SUBSCRIPTION,
    Id,
    build_cancellation,
    build_lost_error,
    build_missed_news,
    get_param,
    is_refused_at_end,
    is_repeatable,
    read_head,
    read_message,
    split_lines,
)
from smart_mcp_proxy.desktop.pipes import CHUNK_BYTES, MOST_UNSENT_BYTES, ClientPipes, Gone
from smart_mcp_proxy.desktop.places import describe_failure
from smart_mcp_proxy.desktop.questions import Questions
from smart_mcp_proxy.desktop.session import SessionLines, build_changes
from smart_mcp_proxy.desktop.waiting import Alone, Pending, QueuedLine

GREET_AFTER_S: Final = 0.03
"""A gateway that runs answers sooner; for one that is starting, the client is answered from the last start."""
_MOST_REPLACED: Final = 4
"""Gateways in a row that make room for a newer one: what is started here may be older than this."""
_TRIES: Final = 2
"""Gateways that end before they have let a client in, before it is served alone."""
_REST_S: Final = 5.0
_MOST_JOINS: Final = 4
"""In `_REST_S`: a gateway that ends as soon as it is joined is joined again when the client asks for something."""
_MOST_QUEUED: Final = 1_000
"""Lines that wait for a gateway; the rest waits in the pipe."""
_MARK: Final = b"\0"
"""First byte of the gateway's own lines, which no message begins with."""
_MOST_REPEATS: Final = 3
"""Limit on the repeats of one request: it may be what the gateways end of."""
_LAST_S: Final = 30.0
"""A client that has said its last takes its answers in less, or does not read them any more."""


class StdioDoor:
    """Client's way to the gateway, from its first message to its last.

    Args:
        connect: A connection to the gateway, which is started if need be; OSError where that cannot be.
        hello: The first line that it is sent.
        tell_variables: The second line, with the values of variables that it asks for.
        greet: The answers that can be given without it, as `greeting.answers.Answers`; None where none can.
        line_bytes: A longer line is passed on as it comes: the gateway refuses it.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        hello: Callable[[], bytes],
        tell_variables: Callable[[list[Any]], bytes],
        greet: Callable[[], Any],
        line_bytes: int,
    ) -> None:
        self._connect = connect
        self._hello = hello
        self._tell_variables = tell_variables
        self._greet = greet
        self._line_bytes = line_bytes
        self._answers: Any = None
        self._link: socket.socket | None = None
        self._is_in = False
        """Whether the gateway has let this client in."""
        self._out = bytearray()
        self._in = bytearray()
        self._pipes = ClientPipes()
        self._lines = SessionLines()
        self._questions = Questions()
        self._queue: deque[QueuedLine] = deque()
        self._open: dict[Id, Pending] = {}
        self._sent = 0
        """Lines that the present gateway was sent."""
        self._taken: int | None = None
        """Lines that it has read before it leaves; None while it stays."""
        self._is_stopped = False
        """Whether a person has stopped it: the next one is started when the client asks for something."""
        self._repeated: Id | None = None
        """Id of the request whose answer is awaited before more is sent."""
        self._is_long = False
        """Whether the client is in the middle of a line that is passed on as it comes."""
        self._tries = self._replaced = 0
        self._joins: deque[float] = deque(maxlen=_MOST_JOINS)
        self._wants_link = True
        self._rests_until_s: float | None = None
        """When the next gateway is joined, where this has to wait."""

    def run(self) -> Alone | None:
        """Carries messages until the client leaves; returns how it is to be served if not through here."""
        try:
            with self._pipes.open():
                self._join()
                if not self._is_answered_soon():
                    self._answers = self._greet()
                while (alone := self._step()) is None:
                    pass
        except Gone:
            return None
        finally:
            if self._link is not None:
                self._link.close()
        return alone

    @property
    def signal(self) -> int:
        """The signal that has asked for the end; 0 where none has."""
        return self._pipes.signal

    # What is ready.

    def _step(self) -> Alone | None:
        poll = select.poll()
        self._pipes.register(poll, is_reading=self._is_reading())
        link = self._link
        if link is not None:
            events = 0 if self._pipes.is_full else select.POLLIN
            poll.register(link, events | (select.POLLOUT if self._out else 0))
        ready = {number for number, _ in poll.poll(self._limit_wait())}
        was_ended = self._pipes.is_ended
        if chunk := self._pipes.serve(ready):
            self._read_client(chunk)
        if self._pipes.is_ended and not was_ended:
            self._end_input()
        alone = None
        if link is not None and link.fileno() in ready:
            alone = self._serve_link(link)
        return alone or self._leave_if_done()

    def _is_reading(self) -> bool:
        if len(self._out) >= MOST_UNSENT_BYTES:
            return False
        if self._answers is not None:
            return len(self._answers.kept) < _MOST_QUEUED and len(self._answers.rest) <= self._line_bytes
        return len(self._queue) < _MOST_QUEUED and (len(self._pipes.rest) <= self._line_bytes or self._is_sending())

    def _limit_wait(self) -> float | None:
        """Milliseconds after which something is due; None where nothing is."""
        due = [] if self._rests_until_s is None else [self._rests_until_s]
        if self._pipes.is_ended:
            due.append(self._pipes.taken_s + _LAST_S)
        return max(0.0, min(due) - time.monotonic()) * 1_000 if due else None

    def _leave_if_done(self) -> Alone | None:
        if self._rests_until_s is not None and time.monotonic() >= self._rests_until_s:
            self._wants_link = True
        if self._wants_link and self._link is None:
            try:
                self._join()
            except OSError as exc:
                return self._build_alone(describe_failure(exc))
        if self._pipes.is_ended:
            is_done = self._link is None and self._rests_until_s is None and not self._pipes.unsent
            if is_done or time.monotonic() >= self._pipes.taken_s + _LAST_S:
                raise Gone
        return None

    def _read_client(self, chunk: bytes) -> None:
        if self._answers is not None:
            self._pipes.write(self._answers.feed(chunk))
            return
        if self._is_long:
            chunk = self._pass_piece(chunk)
        for line in split_lines(self._pipes.rest, chunk):
            if line.strip():
                self._take(line)
        if len(self._pipes.rest) > self._line_bytes and self._is_sending() and not self._queue:
            self._is_long = True
            self._out += self._pipes.rest
            self._pipes.rest.clear()
        self._push()

    def _pass_piece(self, chunk: bytes) -> bytes:
        """Pass on the next piece of a long line; returns what comes behind the line."""
        end = chunk.find(b"\n") + 1
        if self._is_sending():  # else to nobody: the gateway that had its beginning has ended
            self._out += chunk[:end] if end else chunk
            self._sent += bool(end)
        self._is_long = not end
        return chunk[end:] if end else b""

    def _end_input(self) -> None:
        """The client says no more; what it has asked for is still answered."""
        if self._link is None and not self._queue:
            self._wants_link, self._rests_until_s = False, None
        self._shut_if_sent()

    def _shut_if_sent(self) -> None:
        if self._pipes.is_ended and self._is_in and not self._out and not self._queue and self._link is not None:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)

    def _serve_link(self, link: socket.socket) -> Alone | None:
        self._push()
        self._shut_if_sent()
        try:
            chunk = link.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        if not chunk:
            return self._lose_link()
        for line in split_lines(self._in, chunk):
            if not self._is_in:
                if (alone := self._converse(json.loads(line))) is not None:
                    return alone
            elif line[:1] == _MARK:
                leaving = json.loads(line[1:])
                self._taken, self._is_stopped = int(leaving["taken"]), bool(leaving.get("stopped"))
            else:
                self._pass_on(line)
        self._pipes.flush()
        return None

    # Joining.

    def _join(self) -> None:
        link = self._connect()
        link.setblocking(False)
        self._link, self._is_in, self._wants_link, self._rests_until_s = link, False, False, None
        self._in.clear()
        self._out[:] = self._hello()
        self._sent, self._taken, self._repeated, self._is_stopped = 0, None, None, False

    def _is_answered_soon(self) -> bool:
        poll = select.poll()
        poll.register(self._link, select.POLLOUT)  # type: ignore[arg-type]  # just joined
        poll.poll(GREET_AFTER_S * 1_000)
        with suppress(OSError):
            del self._out[: self._link.send(self._out)]  # type: ignore[union-attr]
        poll.modify(self._link, select.POLLIN)  # type: ignore[arg-type]
        return bool(poll.poll(GREET_AFTER_S * 1_000))

    def _converse(self, said: dict[str, Any]) -> Alone | None:
        """Heed what the gateway says before it lets this client in."""
        if "alone" in said:
            return self._build_alone(said["alone"])
        if "variables" in said:
            self._out += self._tell_variables(said["variables"])
        elif "replaced" in said:
            self._replaced += 1
            if self._replaced > _MOST_REPLACED:
                return self._build_alone("what starts in the background is older than this program")
            self._tries -= 1  # it has answered, and ends
        elif "joined" in said:
            self._is_in, self._tries, self._replaced = True, 0, 0
            self._questions.begin()
            self._joins.append(time.monotonic())
            if self._answers is not None:
                kept, self._pipes.rest = self._answers.kept, self._answers.rest
                self._answers = None
                self._queue.extend(QueuedLine(each.line, each.said) for each in kept)
            self._send_queued()
            self._shut_if_sent()
        return None

    def _lose_link(self) -> Alone | None:
        assert self._link is not None
        self._link.close()
        self._link = None
        was_in, self._is_in = self._is_in, False
        if not was_in:
            self._tries += 1
            self._wants_link = True
            return self._build_alone("no gateway in the background stays up") if self._tries == _TRIES else None
        # A line that has left in part is none yet.
        sent = self._sent - self._out.count(b"\n")
        open_, self._open = self._open, {}
        session = [QueuedLine(each, b"" if "id" in read_message(each) else None) for each in self._lines.lines]
        again = []
        for each in session:
            pending = open_.get(read_message(each.line).get("id", ""))
            is_waited_for = pending is not None and not pending.is_hidden and pending.line == each.line
            again.append(QueuedLine(each.line) if is_waited_for else each)
        told = {each.line for each in again}
        waiting = [each for each in open_.values() if not each.is_hidden]
        for pending in waiting:
            is_unsent = pending.number > (sent if self._taken is None else self._taken)
            if pending.line in told:
                continue
            if is_unsent:
                again.append(QueuedLine(pending.line, None, pending.repeats))
            elif is_repeatable(pending.request) and (pending.repeats < _MOST_REPEATS or pending.is_lasting):
                again.append(QueuedLine(pending.line, None, pending.repeats + 1))
            else:
                self._pipes.write(build_lost_error(pending.request))
        self._pipes.write(b"".join(map(build_cancellation, self._questions.end())))
        # One that a person has stopped is not started for news alone.
        is_asked = bool(self._queue) or any(not (self._is_stopped and each.is_lasting) for each in waiting)
        self._queue.extendleft(reversed(again))
        self._wants_link = is_asked and (self._pipes.is_ended or self._may_join())
        if is_asked and not self._wants_link:
            self._rests_until_s = self._joins[0] + _REST_S
        if not is_asked and self._pipes.is_ended:
            self._queue.clear()
        return None

    def _may_join(self) -> bool:
        return len(self._joins) < _MOST_JOINS or time.monotonic() - self._joins[0] > _REST_S

    def _build_alone(self, why: str) -> Alone:
        """The client's lines for a gateway of its own."""
        if self._answers is not None:
            queued = [QueuedLine(each.line, each.said) for each in self._answers.kept]
            rest = self._answers.rest
        else:
            queued, rest = [*self._queue], self._pipes.rest
        if self.signal and not any(each.said is None for each in queued):
            raise Gone
        return Alone(why, queued, bytes(rest), bytes(self._pipes.unsent))

    # The client's lines.

    def _is_sending(self) -> bool:
        return self._is_in and self._repeated is None and self._taken is None

    def _take(self, line: bytes) -> None:
        if self._queue or not self._is_sending():
            self._queue.append(QueuedLine(line))
            self._wants_link = self._link is None
            self._send_queued()
        else:
            self._send(QueuedLine(line))
        self._push()

    def _send_queued(self) -> None:
        while self._queue and self._is_sending():
            self._send(self._queue.popleft())
        self._push()

    def _send(self, queued: QueuedLine) -> None:
        message = read_message(queued.line)
        method, key = message.get("method"), message.get("id")
        if isinstance(method, str):
            self._lines.note(method, message, queued.line)
            if method == "notifications/cancelled" and isinstance(ended := get_param(message, "requestId"), int | str):
                self._open.pop(ended, None)  # nobody waits for it any more
            if isinstance(key, int | str):
                self._open[key] = Pending(queued.line, message, self._sent + 1, queued.said, queued.repeats)
                if queued.said is not None:
                    self._repeated = key
        elif isinstance(key, int | str) and ("result" in message or "error" in message):
            if (answer := self._questions.answer(queued.line, key)) is None:
                return
            queued = QueuedLine(answer)
        self._sent += 1
        self._out += queued.line
        self._out += b"\n"

    def _push(self) -> None:
        if self._out and self._link is not None:
            with suppress(OSError):  # of one that has ended, its last answers and its end are read
                del self._out[: self._link.send(self._out)]

    # The gateway's lines.

    def _pass_on(self, line: bytes) -> None:
        kind, key = read_head(line)
        if kind == "request":
            line = self._questions.ask(line, key)
        elif kind == "other":
            line = self._questions.hear(line)
            if ACKNOWLEDGED in line and self._is_repeated(line):
                self._pipes.write(b"".join(build_missed_news(line)))
                return
        elif (pending := self._open.get(key)) is not None:
            if self._taken is not None and (pending.is_lasting or is_refused_at_end(line)):
                # The next gateway goes on with it, or begins it.
                self._open[key] = pending if pending.is_lasting else pending._replace(number=self._sent + 1)
                return
            del self._open[key]
            if pending.is_hidden:
                self._repeated = None
                if pending.request.get("method") == "initialize" and pending.said != line:
                    self._pipes.write(build_changes(line))
                self._send_queued()
                self._shut_if_sent()
                return
        self._pipes.unsent += line
        self._pipes.unsent += b"\n"

    def _is_repeated(self, line: bytes) -> bool:
        """Whether the subscription that is acknowledged was so by an earlier gateway."""
        meta = get_param(read_message(line), "_meta")
        pending = self._open.get(meta.get(SUBSCRIPTION, "")) if isinstance(meta, dict) else None
        return pending is not None and pending.repeats > 0
