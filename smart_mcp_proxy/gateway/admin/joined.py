"""Clients that have joined a gateway through doors, for those who ask for its state."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from smart_mcp_proxy.desktop.present import JoinedClient, bind_present_client, get_present_client

NAME_CHARS: Final = 100
"""Characters of the name that a client gives itself."""


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
        try:
            with bind_present_client(client):
                yield
        finally:
            del self._clients[client]


def note_name(name: str) -> None:
    """The present client has said its name."""
    if (client := get_present_client()) is not None and not client.name:
        client.name = name[:NAME_CHARS]
