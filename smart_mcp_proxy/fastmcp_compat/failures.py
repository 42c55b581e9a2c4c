"""Errors for agents where the gateway itself fails, without any of its inside."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.telemetry import get_logger

log = get_logger("agent")


def gateway_failed() -> ProxyError:
    """Error for a failure inside the gateway; the catcher logs its cause."""
    return ProxyError("The gateway failed.", hint="Its log says why.", delivery="unknown")


class HideFailures:
    """SDK middleware, outside of ours: the SDK would send the text of any exception to the client."""

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Answers one request."""
        try:
            return await call_next(ctx)
        except (MCPError, ValidationError):  # they have an answer of their own
            raise
        except Exception as exc:  # boundary: top of a request's task; the agent gets an answer and no internals
            log.exception("%s failed inside the gateway", ctx.method)
            told = gateway_failed()
            raise MCPError(code=told.jsonrpc_code, message=str(told), data={"code": told.error_code}) from exc
