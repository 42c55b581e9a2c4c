"""The client of the present request, where many share a gateway: its place and its variables."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec


class JoinedClient(msgspec.Struct, eq=False):
    """Client that shares a gateway with others.

    Attributes:
        pid: Of the process that it has started.
        version: Of that program.
        directory: Its working directory.
        since_s: When it joined, in Unix seconds.
        variables: Its values of variables that the server file names.
        name: As it calls itself; empty until it has.
    """

    pid: int
    version: str
    directory: str
    since_s: float
    variables: Mapping[str, str]
    name: str = ""

    def __repr__(self) -> str:  # variables may be secrets
        return f"<JoinedClient {self.pid} {self.name}>"


_present: ContextVar[JoinedClient | None] = ContextVar("joined_client", default=None)

get_present_client: Final[Callable[[], JoinedClient | None]] = _present.get
"""The client whose request this is; None where it has not joined, but come in another way."""


def name_present_client() -> dict[str, str]:
    """The client's name as a detail of what is recorded; empty where it has not joined, or said none."""
    client = get_present_client()
    return {"client": client.name} if client is not None and client.name else {}


@contextmanager
def bind_present_client(client: JoinedClient) -> Iterator[None]:
    """While open, requests of this context are those of this client."""
    token = _present.set(client)
    try:
        yield
    finally:
        _present.reset(token)
