"""A child process that answers a client on stdin and stdout until this one is loaded.

A thread could not: whoever imports modules keeps the interpreter for up to 0.2 s at a time. The child notes what it
read, and how much of its answers has left, where this process finds it even if the child dies: that is the hand-over.

The problem: loading the gateway takes most of a second, more on a slow disk, and clients that start programs wait for
`initialize` before they show anything. What they ask first is always the same, and so are the answers, as long as
program and settings are.

Refused:

- *A thread.* See above: its answers came as late as those of the gateway itself.
- *Importing less.* Every module that a first list needs is needed; what is not is imported when it is used already.
- *Answers that are written by hand.* They have to be the SDK's, byte by byte, in each version of the protocol; so those
  of the last start are recorded (`record.py`), and the ones shipped with the program were recorded as well.
- *Answering everything that is known.* Only messages without anything unusual are answered here (`answers.py`);
  whatever the SDK would check, refuse or count goes to it, in order, with what was said already.
- *A process that stays between client and gateway.* It would copy each byte of each call. The child ends at the
  hand-over, and the gateway owns the pipes from then on.
"""

import json
import os
import select
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from smart_mcp_proxy.greeting.answers import Answers, BacklogLine, EarlyRequest
from smart_mcp_proxy.greeting.eras import StdioEras
from smart_mcp_proxy.greeting.record import Known

CHUNK_BYTES = 65_536
MOST_BYTES = 8 * 1024 * 1024
"""Limit on the bytes that are read before the gateway is loaded; the rest waits in the pipe."""
HAND_OVER, REFUSE = b"h", b"r"
STOP_S = 2.0
"""Seconds that the child may take to end before it is ended."""
LAST_WORDS_S = 0.5
"""Seconds for the last answers to leave, and for what was sent a moment ago to be read."""
_SENT_BYTES = 8
"""At the head of the notes: how many bytes of answers have left."""
_INTERNAL_ERROR = -32603


class Handed(NamedTuple):
    """Messages and answers that the gateway takes over.

    Attributes:
        kept: Lines for it, in order; those that were answered already among them.
        rest: The beginning of the next line.
        unsent: Answers that have not left yet.
    """

    kept: list[BacklogLine]
    rest: bytes
    unsent: bytes


class Greeter:
    """Answers on stdin and stdout from a child process.

    Args:
        answers: Makes a new, empty set of answers; both processes come to the same with the same input.
        pid: The child.
        control: Tells it what to do; it ends when this end is closed, by whatever.
        life: Closed at the other end when it has ended.
        notes: A file that both have open.
    """

    def __init__(self, answers: Callable[[], Answers], pid: int, control: int, life: int, notes: int) -> None:
        self._answers = answers
        self._pid = pid
        self._control = control
        self._life = life
        self._notes = notes

    @classmethod
    def open(cls, known: Known, name: str, eras: StdioEras) -> "Greeter | None":
        """Starts to answer; None where that cannot be done here: no pipe, or a system without fork."""
        if not hasattr(os, "fork") or not _is_pipe(0):
            return None

        def answers() -> Answers:
            return Answers(known, name, eras)

        try:
            notes = _open_notes()
            reads, control = os.pipe()
            life, lives = os.pipe()
            pid = os.fork()
        except OSError:
            return None
        if pid == 0:
            try:
                os.close(control)
                _Child(answers(), reads, notes).run()
            finally:
                os._exit(0)
        os.close(reads)
        os.close(lives)
        return cls(answers, pid, control, life, notes)

    def hand_over(self) -> Handed:
        """Ends the child; from here on stdin and stdout are this process's alone."""
        self._stop(HAND_OVER)
        noted = os.pread(self._notes, os.fstat(self._notes).st_size, 0)
        os.close(self._notes)
        answers = self._answers()
        said = answers.feed(noted[_SENT_BYTES:])
        return Handed(answers.kept, bytes(answers.rest), said[int.from_bytes(noted[:_SENT_BYTES]) :])

    def refuse(self, why: str) -> None:
        """Ends the child after it has answered every waiting request with this error."""
        self._stop(REFUSE + why.encode(errors="replace")[: select.PIPE_BUF - 1])
        os.close(self._notes)

    def _stop(self, order: bytes) -> None:
        with suppress(BrokenPipeError):  # it has died; its notes are here
            os.write(self._control, order)
        os.close(self._control)
        poll = select.poll()
        poll.register(self._life, select.POLLIN)
        if not poll.poll(STOP_S * 1000):
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._life)
        with suppress(ChildProcessError):  # somebody else has heard of its end
            os.waitpid(self._pid, 0)


class HandedGreeter:
    """Holds messages of a client that was to share a gateway and is served alone.

    Args:
        handed: For the gateway.
    """

    def __init__(self, handed: Handed) -> None:
        self._handed = handed

    def hand_over(self) -> Handed:
        """Returns what was read and not answered."""
        return self._handed

    def refuse(self, why: str) -> None:
        """Answers every waiting request with this error."""
        requests = (each.request for each in self._handed.kept if each.request is not None and each.said is None)
        with suppress(OSError):
            os.write(1, self._handed.unsent + b"".join(_build_refusal(request, why) for request in requests))


def _build_refusal(request: EarlyRequest, why: str) -> bytes:
    error = {"code": _INTERNAL_ERROR, "message": why, "data": {"delivery": "not_sent"}}
    return json.dumps({"jsonrpc": "2.0", "id": request.id, "error": error}).encode() + b"\n"


class _Child:
    """The process that answers.

    Args:
        answers: Decide.
        control: Says when to stop.
        notes: See `Greeter`.
    """

    def __init__(self, answers: Answers, control: int, notes: int) -> None:
        self._answers = answers
        self._control = control
        self._notes = notes
        self._read_bytes = 0
        self._sent_bytes = 0
        self._unsent = b""
        self._is_ended = False
        self._is_broken = False

    def run(self) -> None:
        """Answer until stopped, or until the other process is gone."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the other process hears them, too, and decides
        while self._control not in (ready := self._ready()):
            self._work(ready)
        order = os.read(self._control, select.PIPE_BUF)
        if order[:1] != HAND_OVER:
            self._refuse(order[1:].decode(errors="replace") or "The gateway was stopped while it was starting.")

    def _ready(self, timeout_s: float | None = None) -> set[int]:
        poll = select.poll()
        if timeout_s is None:
            poll.register(self._control, select.POLLIN)
        if not self._is_ended and not self._unsent and self._read_bytes < MOST_BYTES:
            poll.register(0, select.POLLIN)
        if self._unsent:
            poll.register(1, select.POLLOUT)
        return {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}

    def _work(self, ready: set[int]) -> None:
        if 0 in ready:
            chunk = os.read(0, CHUNK_BYTES)
            self._is_ended = not chunk
            os.pwrite(self._notes, chunk, _SENT_BYTES + self._read_bytes)
            self._read_bytes += len(chunk)
            self._say(self._answers.feed(chunk))
        if 1 in ready:
            self._send()

    def _say(self, answers: bytes) -> None:
        if not self._is_broken:
            self._unsent += answers
        if self._unsent and 1 in self._ready(0):
            self._send()

    def _send(self) -> None:
        try:
            # A pipe that takes anything takes so much without waiting.
            count = os.write(1, self._unsent[: select.PIPE_BUF])
        except OSError:
            self._is_broken, self._unsent = True, b""
            return
        self._unsent = self._unsent[count:]
        self._sent_bytes += count
        os.pwrite(self._notes, self._sent_bytes.to_bytes(_SENT_BYTES), 0)

    def _refuse(self, why: str) -> None:
        while ready := self._ready(0 if not self._unsent else LAST_WORDS_S):
            self._work(ready)
        for request in self._answers.list_unanswered():
            self._unsent += _build_refusal(request, why)
        while self._unsent and self._ready(LAST_WORDS_S):
            self._send()


def _open_notes() -> int:
    """A file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        notes = os.memfd_create("greeting")
    else:
        path = f"/tmp/mcpproxy-{os.getpid()}-{os.urandom(8).hex()}"
        notes = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
    os.pwrite(notes, bytes(_SENT_BYTES), 0)
    return notes


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
