"""Where a request came in, and on whose behalf: below `/mcp` an agent finds different lists of tools."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from smart_mcp_proxy.models import LOCAL, Principal

__all__ = ["acting_for", "principal", "served_endpoint", "served_path", "serving_path"]

_path: ContextVar[str] = ContextVar("served_path", default="")
_principal: ContextVar[Principal] = ContextVar("principal", default=LOCAL)
_endpoint: ContextVar[str] = ContextVar("served_endpoint", default="")


def served_path() -> str:
    """The part of the path behind the endpoint: empty, `p/{profile}` or `t/{toolset}`.

    A session keeps the path it was opened on: its tasks inherit the context of the request that opened it.
    """
    return _path.get()


def served_endpoint() -> str:
    """The address of the endpoint as the client wrote it, path included; empty where there is none, as on a pipe."""
    return _endpoint.get()


@contextmanager
def serving_path(path: str, endpoint: str = "") -> Iterator[None]:
    """While open, requests of this context have come in at `path` behind the endpoint with this address."""
    tokens = _path.set(path), _endpoint.set(endpoint)
    try:
        yield
    finally:
        _path.reset(tokens[0])
        _endpoint.reset(tokens[1])


def principal() -> Principal:
    """On whose behalf the present request is made.

    As with the path, a session keeps the principal that opened it, and nobody else is let into it.
    """
    return _principal.get()


@contextmanager
def acting_for(who: Principal) -> Iterator[None]:
    """While open, requests of this context are made on behalf of `who`."""
    token = _principal.set(who)
    try:
        yield
    finally:
        _principal.reset(token)
