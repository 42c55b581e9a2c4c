"""Pipes between a door and its client, as they are ready; nothing here waits for the client."""

import os
import select
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

CHUNK_BYTES: Final = 65_536
MOST_UNSENT_BYTES: Final = 8 * 1024 * 1024
"""Limit on the bytes that are read ahead for a side that does not read."""


class Gone(Exception):  # noqa: N818  (no error: every client leaves)
    """The client has left."""


class ClientPipes:
    """Standard input and output of this process, and the signals that ask for its end.

    Attributes:
        rest: The beginning of the client's next line.
        unsent: What it has not read yet.
        is_ended: Whether it says no more.
        signal: The signal that has asked for the end; 0 where none has.
        taken_s: When it has last taken something, or said its last, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.rest = bytearray()
        self.unsent = bytearray()
        self.is_ended = False
        self.signal = 0
        self.taken_s = 0.0
        self._wakes = -1

    @property
    def is_full(self) -> bool:
        """Whether the client leaves too much unread."""
        return len(self.unsent) >= MOST_UNSENT_BYTES

    @contextmanager
    def open(self) -> Iterator[None]:
        """Hear signals, and write without waiting, while open."""
        self._wakes, woken = os.pipe()
        for end in (self._wakes, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)
        is_pipe = stat.S_ISFIFO(mode := os.fstat(1).st_mode) or stat.S_ISSOCK(mode)
        try:
            if is_pipe:
                os.set_blocking(1, False)
            yield
        finally:
            signal.set_wakeup_fd(-1)
            if is_pipe:
                os.set_blocking(1, True)
            os.close(self._wakes)
            os.close(woken)

    def _note_signal(self, number: int, _: object) -> None:
        self.signal = number

    def register(self, poll: select.poll, *, is_reading: bool) -> None:
        """Wait for what can be done next."""
        poll.register(self._wakes, select.POLLIN)
        if is_reading and not self.is_ended:
            poll.register(0, select.POLLIN)
        if self.unsent:
            poll.register(1, select.POLLOUT)

    def serve(self, ready: set[int]) -> bytes:
        """Write what can be written; returns what has come.

        Raises:
            Gone: The client does not read any more.
        """
        if self._wakes in ready:
            with suppress(BlockingIOError):
                os.read(self._wakes, 64)
            self._end()
        if 1 in ready:
            self.flush()
        if 0 in ready:
            try:
                chunk = os.read(0, CHUNK_BYTES)
            except ConnectionError:  # of a socket: the client has left answers unread
                chunk = b""
            if not chunk:
                self._end()
            return chunk
        return b""

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended, self.taken_s = True, time.monotonic()

    def write(self, data: bytes) -> None:
        """Write as much as the client takes now, and the rest when it takes more.

        Raises:
            Gone: It does not read any more.
        """
        self.unsent += data
        self.flush()

    def flush(self) -> None:
        """Write what has not been written, as far as the client takes it.

        Raises:
            Gone: It does not read any more.
        """
        while self.unsent:
            try:
                count = os.write(1, self.unsent)
            except BlockingIOError:
                return
            except OSError:
                raise Gone from None
            del self.unsent[:count]
            if self.is_ended:
                self.taken_s = time.monotonic()
