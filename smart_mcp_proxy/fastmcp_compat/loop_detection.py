"""Identities that gateways exchange, so that none becomes its own server."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types
from mcp.server.context import ServerRequestContext

from smart_mcp_proxy.names import GATEWAYS_CAPABILITY


class TellGateways:
    """SDK middleware: has the greeting of a client of our own name say it, as an experimental capability.

    Args:
        name: Ours; a client that calls itself so is a gateway.
        gateways: Ids of this gateway and of those behind it.
    """

    def __init__(self, name: str, gateways: Callable[[], list[str]]) -> None:
        self._name = name
        self._gateways = gateways

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Lets others answer, and adds to a greeting."""
        answer = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or _client_name(ctx.params or {}) != self._name:
            return answer
        told = {GATEWAYS_CAPABILITY: {"ids": self._gateways()}}
        return {**answer, "capabilities": {**answer["capabilities"], "experimental": told}}


def _client_name(params: Mapping[str, Any]) -> object:
    meta = params.get("_meta")
    info = params.get("clientInfo") or (isinstance(meta, Mapping) and meta.get(mcp_types.CLIENT_INFO_META_KEY))
    return info.get("name") if isinstance(info, Mapping) else None
