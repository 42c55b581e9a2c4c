"""Puts the gateway's own tools together, in the order in which they are listed."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.shared.own import OwnTools
from smart_mcp_proxy.gateway.tools import AgentTool
from smart_mcp_proxy.gateway.tools.call_tool import CallToolDestructive, CallToolRead, CallToolWrite
from smart_mcp_proxy.gateway.tools.describe_tool import DescribeTool
from smart_mcp_proxy.gateway.tools.instructions import instructions_for
from smart_mcp_proxy.gateway.tools.read_output import ReadOutput
from smart_mcp_proxy.gateway.tools.retrieve_tools import RetrieveTools
from smart_mcp_proxy.gateway.visibility.visibility import Visible
from smart_mcp_proxy.settings import Settings

__all__ = ["own_tools"]


def own_tools(
    settings: Settings,
    visible: Visible,
    retrieval: Retrieval,
    calls: Calls,
    outputs: Outputs,
    more: Iterable[AgentTool[Any]] = (),
) -> OwnTools:
    """The six tools of the default list, working on one part of the catalog, and behind them `more`.

    Args:
        settings: Defaults of their arguments.
        visible: The part's tools.
        retrieval: Searches them.
        calls: The one call path.
        outputs: What was cut.
        more: Tools that only some gateways offer.
    """
    return OwnTools(
        [
            RetrieveTools(retrieval, settings.top_k, has_toolsets=settings.routing_type != "CALL_TOOL"),
            DescribeTool(visible, retrieval, calls),
            *(tool(calls, visible) for tool in (CallToolRead, CallToolWrite, CallToolDestructive)),
            ReadOutput(outputs, is_fenced=settings.fence_results),
            *more,
        ],
        is_always_loaded=settings.always_load,
        instructions=partial(instructions_for, settings.instructions, visible),
    )
