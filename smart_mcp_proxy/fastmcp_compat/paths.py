"""Path and principal of the present request: lists differ by path below `/mcp`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any

from smart_mcp_proxy.models import LOCAL, Principal

_path: ContextVar[str] = ContextVar("request_path", default="")
_principal: ContextVar[Principal] = ContextVar("principal", default=LOCAL)
_routing: ContextVar[str] = ContextVar("routing_type", default="")
_pipe: ContextVar[dict[Any, Any]] = ContextVar("pipe_clients")
_endpoint: ContextVar[Callable[[], str]] = ContextVar("endpoint_url", default=str)


class BoundVariables:
    """Sets context variables while open; a class, as every request passes through some."""

    __slots__ = ("_tokens", "_values")

    def __init__(self, *values: tuple[ContextVar[Any], Any]) -> None:
        self._values = values
        self._tokens: list[tuple[ContextVar[Any], Token[Any]]] = []

    def __enter__(self) -> None:
        self._tokens = [(variable, variable.set(value)) for variable, value in self._values]

    def __exit__(self, *exc_info: object) -> None:
        for variable, token in self._tokens:
            variable.reset(token)


def get_request_path() -> str:
    """The part of the path behind the endpoint: empty, `p/{profile}` or `t/{toolset}`.

    A session keeps the path it was opened on: its tasks inherit the context of the request that opened it.
    """
    return _path.get()


def get_endpoint_url() -> str:
    """Address of the endpoint as the client wrote it; empty where there is none."""
    return _endpoint.get()()


def bind_request_path(path: str, endpoint: Callable[[], str] = str) -> AbstractContextManager[None]:
    """While open, requests of this context have come in at `path` behind the endpoint with this address.

    Args:
        path: See `get_request_path`.
        endpoint: Returns the address; few requests ask for it.
    """
    return BoundVariables((_path, path), (_endpoint, endpoint))


def get_own_routing() -> str:
    """`MCPPROXY_ROUTING_TYPE` of the present client, where it has joined with one of its own; else empty."""
    return _routing.get()


def bind_joined(path: str, routing: str) -> AbstractContextManager[None]:
    """While open, requests of this context are those of a client that has joined.

    Args:
        path: See `get_request_path`.
        routing: See `get_own_routing`.
    """
    return BoundVariables((_path, path), (_routing, routing))


def get_pipe_clients(others: dict[Any, Any]) -> dict[Any, Any]:
    """The clients that the SDK has let call a tool on the present pipe; where it is none, `others`."""
    return _pipe.get(others)


def bind_pipe(clients: dict[Any, Any]) -> AbstractContextManager[None]:
    """While open, requests of this context are those of one pipe, see `get_pipe_clients`."""
    return BoundVariables((_pipe, clients))


def serve_at(path: str, endpoint: Callable[[], str]) -> None:
    """The same for the rest of the present task, which began with this request and ends with it."""
    _path.set(path)
    _endpoint.set(endpoint)


def principal() -> Principal:
    """On whose behalf the present request is made.

    As with the path, a session keeps the principal that opened it, and nobody else is let into it.
    """
    return _principal.get()


def bind_principal(who: Principal) -> AbstractContextManager[None]:
    """While open, requests of this context are made on behalf of `who`."""
    return BoundVariables((_principal, who))
