"""Where a request came in, and on whose behalf: below `/mcp` an agent finds different lists of tools."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fastmcp.server.dependencies import get_access_token

__all__ = ["principal", "served_path", "serving_path"]

_path: ContextVar[str] = ContextVar("served_path", default="")


def served_path() -> str:
    """The part of the path behind the endpoint: empty, `p/{profile}` or `t/{toolset}`.

    A session keeps the path it was opened on: its tasks inherit the context of the request that opened it.
    """
    return _path.get()


@contextmanager
def serving_path(path: str) -> Iterator[None]:
    """While open, requests of this context have come in at `path`."""
    token = _path.set(path)
    try:
        yield
    finally:
        _path.reset(token)


def principal() -> str:
    """On whose behalf the present request is made: its token's id, or `local`."""
    token = get_access_token()
    return token.client_id if token is not None else "local"
