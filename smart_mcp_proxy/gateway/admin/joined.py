"""Clients that have joined a gateway through doors, for those who ask for its state."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

NAME_CHARS: Final = 100
"""Of what a client calls itself."""


@dataclass(eq=False)
class JoinedClient:
    """Client that shares this gateway with others.

    Attributes:
        pid: Of the process that it has started.
        version: Of that program.
        directory: Its working directory.
        since_s: When it joined, in Unix seconds.
        name: As it calls itself; empty until it has.
    """

    pid: int
    version: str
    directory: str
    since_s: float
    name: str = ""


_present: ContextVar[JoinedClient | None] = ContextVar("joined_client", default=None)


class Joined:
    """Register of the clients that are here, and how long the gateway waits for the next.

    Attributes:
        keep_alive_s: Without clients it ends after so long; None where it does not end by itself.
    """

    def __init__(self) -> None:
        self._clients: dict[JoinedClient, None] = {}
        self.keep_alive_s: float | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[JoinedClient]:
        return iter(self._clients)

    @contextmanager
    def note_client(self, client: JoinedClient) -> Iterator[None]:
        """While open, this client is here, and requests of this context are its."""
        self._clients[client] = None
        token = _present.set(client)
        try:
            yield
        finally:
            _present.reset(token)
            del self._clients[client]


def note_name(name: str) -> None:
    """The present client has said its name."""
    if (client := _present.get()) is not None and not client.name:
        client.name = name[:NAME_CHARS]
