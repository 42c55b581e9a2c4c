"""The client of the present request, where many share a gateway: its place and its variables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False)
class JoinedClient:
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
    variables: Mapping[str, str] = field(repr=False)  # they may be secrets
    name: str = ""


_present: ContextVar[JoinedClient | None] = ContextVar("joined_client", default=None)


def get_present_client() -> JoinedClient | None:
    """The client whose request this is; None where it has not joined, but come in another way."""
    return _present.get()


@contextmanager
def bind_present_client(client: JoinedClient) -> Iterator[None]:
    """While open, requests of this context are those of this client."""
    token = _present.set(client)
    try:
        yield
    finally:
        _present.reset(token)
