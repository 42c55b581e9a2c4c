"""Notifications of handshake-era clients: log level, changed roots."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import methods as wire_methods
from pydantic import ValidationError

from smart_mcp_proxy.fastmcp_compat.client_channel import find_client_channel
from smart_mcp_proxy.fastmcp_compat.handlers import ClientHandlers, ClientSession


class ClientWords:
    """SDK middleware: hands them on, and has the greeting say what is offered for them.

    Args:
        handlers: Hears them.
    """

    def __init__(self, handlers: ClientHandlers) -> None:
        self._handlers = handlers

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Answers, or lets others answer."""
        if ctx.method == "initialize":
            answer = await call_next(ctx)
            return {**answer, "capabilities": {**answer["capabilities"], **self._handlers.capabilities()}}
        session = _find_client_session(ctx)
        if session is None:
            return await call_next(ctx)
        if ctx.method == "notifications/roots/list_changed":
            self._handlers.roots_changed(session)
        elif ctx.method == "logging/setLevel" and self._handlers.capabilities():
            await self._handlers.set_level(session, _parse_log_level(ctx))
            return {}
        return await call_next(ctx)


def _find_client_session(ctx: ServerRequestContext[Any]) -> ClientSession | None:
    """The client's session; None in the modern era, and before its greeting."""
    line = find_client_channel(ctx)
    return line.client if line is not None else None


def _parse_log_level(ctx: ServerRequestContext[Any]) -> str:
    try:
        wire_methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
    except ValidationError as exc:
        words = "Invalid request parameters: 'level' is none of the protocol's levels."
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=words) from exc
    level: str = (ctx.params or {})["level"]
    return level
