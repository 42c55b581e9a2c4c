"""Worker processes beside this one, and what they hand one another: descriptors, with a few words."""

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from zlib import crc32

from smart_mcp_proxy.telemetry import get_logger, spawn

_INLINE_BYTES: Final = 1_024 if sys.platform == "darwin" else 65_536
"""Bytes that a datagram takes for certain; more travels in a file without a name."""
_RETRY_S: Final = 0.005
_GIVE_UP_S: Final = 5.0
"""A worker that takes nothing for so long hangs, or is not replaced."""
_ANSWER_S: Final = 2.0
"""Seconds that another worker may take to answer a question."""
_ANSWER_END: Final = b"\0"
"""A worker may be killed in the middle of an answer."""
_CHUNK_BYTES: Final = 65_536
_INLINE, _IN_FILE = b"i", b"f"

OnParcel = Callable[[bytes, socket.socket], object]
"""Takes words and a socket from another worker."""

log = get_logger("worker")


class Worker:
    """This process among its workers.

    A parcel is a socket with a few words; the two ends of every worker's letter box are open in all of them, so a
    parcel for one that has just died waits for the one in its place.

    Args:
        number: Of this worker, from 0.
        sending: To each worker's letter box, by number.
        receiving: The end of this one's; None where it is alone.
    """

    def __init__(self, number: int, sending: Sequence[socket.socket], receiving: socket.socket | None) -> None:
        self.number = number
        self.count = max(1, len(sending))
        self._sending = sending
        self._receiving = receiving
        self._handlers: dict[bytes, OnParcel] = {}
        self._early: list[tuple[bytes, bytes, socket.socket]] = []
        """Parcels of kinds that nobody takes yet."""

    def __repr__(self) -> str:
        return f"<Worker {self.number} of {self.count}>"

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.count == 1

    def find_keeper_worker(self, server: str) -> int:
        """The number of the worker that runs a server for all."""
        return crc32(server.encode()) % self.count

    def listen(self, kind: bytes, handler: OnParcel) -> None:
        """Give parcels of a kind, one byte, to `handler` from now on."""
        if not self._handlers and self._receiving is not None:
            asyncio.get_running_loop().add_reader(self._receiving, self._take)
        self._handlers[kind] = handler
        early, self._early = self._early, []
        for parcel, words, handed in early:
            if parcel == kind:
                handler(words, handed)
            else:
                self._early.append((parcel, words, handed))

    def close(self) -> None:
        """Takes no more parcels: they wait for whoever takes this one's place."""
        if self._handlers and self._receiving is not None:
            asyncio.get_running_loop().remove_reader(self._receiving)
        self._handlers.clear()

    def answer(self, kind: bytes, answer: Callable[[bytes], bytes]) -> None:
        """Answer questions of a kind, one byte, with `answer` from now on; see `ask`."""
        self.listen(kind, lambda words, asker: spawn(_answer(asker, answer(words)), "answer to another worker"))

    async def ask(self, number: int, kind: bytes, words: bytes = b"") -> bytes | None:
        """The answer of another worker to a question; None where there is none in time."""
        own, theirs = socket.socketpair()
        answer = b""
        with own:
            with theirs:
                self.send(number, kind, words, theirs.fileno())
            own.setblocking(False)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    answer = await _read(own)
        if answer.endswith(_ANSWER_END):
            return answer[: -len(_ANSWER_END)]
        log.warning("worker %d does not answer", number)
        return None

    def send(self, number: int, kind: bytes, words: bytes, descriptor: int) -> None:
        """Send a parcel as soon as the other worker's letter box takes it.

        Args:
            number: Of the other worker.
            kind: One byte.
            words: What goes along.
            descriptor: Of a socket; the caller may close its own at once.

        Raises:
            OSError: There are no descriptors left, or there is no room for long words.
        """
        descriptors = [os.dup(descriptor)]
        text = kind + _INLINE + words
        if len(words) > _INLINE_BYTES:
            try:
                descriptors.append(_in_file(words))
            except OSError:
                os.close(descriptors[0])
                raise
            text = kind + _IN_FILE
        self._push(number, text, descriptors, asyncio.get_running_loop().time() + _GIVE_UP_S)

    def _push(self, number: int, text: bytes, descriptors: list[int], until_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            socket.send_fds(self._sending[number], [text], descriptors)
        except (BlockingIOError, InterruptedError):
            if loop.time() < until_s:
                loop.call_later(_RETRY_S, self._push, number, text, descriptors, until_s)
                return
            log.warning("worker %d takes no more connections", number)
        except OSError as exc:
            log.warning("worker %d cannot be reached: %s", number, exc.strerror)
        for descriptor in descriptors:
            os.close(descriptor)

    def _take(self) -> None:
        assert self._receiving is not None
        try:
            text, descriptors, _, _ = socket.recv_fds(self._receiving, _INLINE_BYTES + 2, 2)
            for descriptor in descriptors:  # a child process that inherits one would keep the other side waiting
                os.set_inheritable(descriptor, False)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:  # no descriptors left: the parcel is lost, and its client connects anew
            log.warning("a connection from another worker is lost: %s", exc.strerror)
            return
        if not text or not descriptors:
            return
        handed = socket.socket(fileno=descriptors[0])
        words = text[2:]
        if text[1:2] == _IN_FILE:
            with os.fdopen(descriptors[1], "rb") as file:
                file.seek(0)
                words = file.read()
        handed.setblocking(False)
        if (handler := self._handlers.get(text[:1])) is not None:
            handler(words, handed)
        else:
            self._early.append((text[:1], words, handed))


def _in_file(words: bytes) -> int:
    """Descriptor of a file without a name."""
    with tempfile.TemporaryFile() as file:
        file.write(words)
        file.flush()
        return os.dup(file.fileno())


async def _answer(asker: socket.socket, text: bytes) -> None:
    with asker, suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            await asyncio.get_running_loop().sock_sendall(asker, text + _ANSWER_END)


async def _read(source: socket.socket) -> bytes:
    loop, parts = asyncio.get_running_loop(), list[bytes]()
    while part := await loop.sock_recv(source, _CHUNK_BYTES):
        parts.append(part)
    return b"".join(parts)


ALONE: Final = Worker(0, (), None)
"""A process without workers beside it."""
