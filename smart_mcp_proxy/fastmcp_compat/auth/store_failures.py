"""Failures of the store of sign-ins, which FastMCP and the SDK answer in words of their own.

Relied on: the loggers at which they tell of what they catch are named as their modules are.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, SupportsFloat

from fastmcp.server.auth.oauth_proxy import proxy
from key_value.aio.wrappers.base import BaseWrapper
from mcp.server.auth.handlers import authorize
from starlette.requests import Request
from starlette.responses import Response

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.fastmcp_compat.paths import BoundVariables

_noted: ContextVar[list[Exception] | None] = ContextVar("store_failures", default=None)
"""Failures of the present request: each runs in a context of its own."""


@contextmanager
def collect_store_failures() -> Iterator[list[Exception]]:
    """Failures of a `NotedStore` while it is open, in this task, also those that are caught."""
    failures: list[Exception] = []
    with BoundVariables((_noted, failures)):
        yield failures


def reraise_store_failures(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap an endpoint of a library that catches all errors: failures of the store are raised again."""

    async def answer(request: Request) -> Response:
        with collect_store_failures() as failures:
            response = await endpoint(request)
        if failures:
            raise failures[0]
        return response

    return answer


class NotedStore(BaseWrapper):
    """Store whose failures are noted for the request that has `collect_store_failures` open.

    Args:
        key_value: Keeps the entries.
    """

    def __init__(self, key_value: Any) -> None:
        self.key_value = key_value

    async def get(self, key: str, *, collection: str | None = None) -> dict[str, Any] | None:
        """The value of a key."""
        with record_store_failure():
            return await self.key_value.get(key, collection=collection)

    async def put(
        self, key: str, value: Mapping[str, Any], *, collection: str | None = None, ttl: SupportsFloat | None = None
    ) -> None:
        """Keeps a value, for `ttl` seconds or for good."""
        with record_store_failure():
            await self.key_value.put(key, value, collection=collection, ttl=ttl)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Whether there was such a key."""
        with record_store_failure():
            return await self.key_value.delete(key, collection=collection)


@contextmanager
def record_store_failure() -> Iterator[None]:
    """Note what fails while it is open, as failures of the store."""
    try:
        yield
    except Exception as exc:
        if (failures := _noted.get()) is not None:
            failures.append(exc)
        raise


def _is_of_another_kind(record: logging.LogRecord) -> bool:
    """Whether a line is not about the store: the catalog logs once that it is lost, not at every request."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CatalogError)


for _module in (authorize, proxy):
    logging.getLogger(_module.__name__).addFilter(_is_of_another_kind)
