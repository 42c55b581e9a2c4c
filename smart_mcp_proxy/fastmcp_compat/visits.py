"""Clients of the modern era, which have no session and identify in each request."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal

NAME_CHARS = 100
"""Of what a client calls itself."""


class Visit(NamedTuple):
    """Identity and path of a modern request's client.

    Attributes:
        client: As it calls itself.
        version: Likewise.
        protocol_version: That it speaks.
        transport: Which way it came.
        path: See `get_request_path`.
        principal: Id of the principal on whose behalf it came.
    """

    client: str
    version: str
    protocol_version: str
    transport: Literal["stdio", "http"]
    path: str
    principal: str


class NoteVisits:
    """SDK middleware that notes modern clients; calls of the fast path do not pass it.

    Args:
        visiting: Entered while a request is under way.
    """

    def __init__(self, visiting: Callable[[Visit], AbstractContextManager[None]]) -> None:
        self._visiting = visiting

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Lets others answer."""
        if ctx.request_id is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await call_next(ctx)
        with self._visiting(_visit(ctx)):
            return await call_next(ctx)


def _visit(ctx: ServerRequestContext[Any]) -> Visit:
    meta = (ctx.params or {}).get("_meta")
    info = meta.get(mcp_types.CLIENT_INFO_META_KEY) if isinstance(meta, Mapping) else None
    name, version = (info.get("name"), info.get("version")) if isinstance(info, Mapping) else ("", "")
    return Visit(
        client=name[:NAME_CHARS] if isinstance(name, str) else "",
        version=version[:NAME_CHARS] if isinstance(version, str) else "",
        protocol_version=ctx.protocol_version,
        transport="stdio" if ctx.request is None else "http",
        path=get_request_path(),
        principal=principal().id,
    )
