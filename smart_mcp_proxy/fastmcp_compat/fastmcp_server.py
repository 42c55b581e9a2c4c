"""FastMCP server for agents: over HTTP, and in programs of which the gateway is a part.

FastMCP takes a fifth of the start of a gateway on a pipe, which does without it.

Private names used: `FastMCP._mcp_server` and its `_request_handlers`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from fastmcp import FastMCP
from fastmcp.server import low_level
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from smart_mcp_proxy.fastmcp_compat.methods import RawMethods
from smart_mcp_proxy.fastmcp_compat.server import AgentServer, CallNext

EditBlock = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def edit_handshake_content(server: FastMCP, tool: str, edit: EditBlock) -> None:
    """Have each content block in the results of a tool changed for clients of the handshake era.

    Behind all models, as the outermost middleware: those of FastMCP and the SDK drop what they do not know.

    Args:
        server: Lists the tool.
        tool: Its name.
        edit: Returns the block as it is sent.
    """
    server._mcp_server.middleware.insert(0, partial(_edit_content, tool, edit))


async def _edit_content(tool: str, edit: EditBlock, ctx: ServerRequestContext[Any], call_next: CallNext) -> Any:
    answer = await call_next(ctx)
    is_meant = ctx.method == "tools/call" and (ctx.params or {}).get("name") == tool
    if not is_meant or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return answer
    if isinstance(answer, BaseModel):
        answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {**answer, "content": [edit(block) for block in answer.get("content", ())]}


def build_server(own: AgentServer) -> FastMCP:
    """Build a FastMCP server that answers as `own` does; the serving app authenticates."""
    # FastMCP's rich log handler wraps lines at 80 columns; our own handlers format everything.
    logging.getLogger("fastmcp").handlers.clear()
    logging.getLogger("fastmcp").propagate = True
    with _leave_states_unsealed() as security:
        server: FastMCP = FastMCP(
            own.name, version=own.version, dereference_schemas=False, request_state_security=security
        )
    low: Any = server._mcp_server
    low.middleware.remove(security)
    low.middleware += own.middleware[1:]  # the first does what FastMCP does
    low._request_handlers.clear()
    low._request_handlers.update(own.methods)
    low.get_capabilities = own.get_capabilities  # FastMCP's own claims the MCP Apps extension for every server
    low.get_tool_input_schema = own.handlers.input_schema
    return server


@contextmanager
def _leave_states_unsealed() -> Iterator[Any]:
    """Have FastMCP make servers without its seal of request states while open; yields what stands for it.

    It holds in this process alone, and its cryptography takes 6 MB; ours are sealed for the whole data directory.
    """
    module: Any = low_level
    seal, instead = module.RequestStateBoundary, SimpleNamespace(audience="")
    module.RequestStateBoundary = lambda *_, **__: instead
    try:
        yield instead
    finally:
        module.RequestStateBoundary = seal


def find_raw_methods(server: FastMCP) -> RawMethods:
    """Its innermost middleware, which knows the clients that were let in."""
    return next(each for each in server._mcp_server.middleware if isinstance(each, RawMethods))
