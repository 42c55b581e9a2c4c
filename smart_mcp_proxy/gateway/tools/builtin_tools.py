"""The gateway's own tools: a table, in the order in which they are listed."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.requests import ContentRequests
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sandbox import Sandbox
from smart_mcp_proxy.gateway.shared.agent_tools import OwnTools
from smart_mcp_proxy.gateway.tools import AgentTool
from smart_mcp_proxy.gateway.tools.call_tool import CallToolDestructive, CallToolRead, CallToolWrite
from smart_mcp_proxy.gateway.tools.code_execution import CodeExecution
from smart_mcp_proxy.gateway.tools.describe_tool import DescribeTool
from smart_mcp_proxy.gateway.tools.proxy import ProxyTool
from smart_mcp_proxy.gateway.tools.read_output import ReadOutput
from smart_mcp_proxy.gateway.tools.retrieve_tools import RetrieveTools
from smart_mcp_proxy.gateway.tools.upstream_servers import UpstreamServers
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.greeting.instructions import INSTRUCTIONS, build_instructions
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity


class ToolParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that the gateway's own tools are made of, for one view of the catalog.

    Attributes:
        settings: Defaults of their arguments, and which of them there are.
        usable: The same as far as this installation can do it.
        view: The tools that are searched and called.
        is_whole: Whether the view is the whole catalog's.
        retrieval: Searches it.
        calls: Calls tools.
        asks: Reads resources and prompts.
        outputs: What was cut off results.
        catalog: Holds resources and prompts.
        recorder: Gets a record of what the tools do.
        sandbox: Runs scripts.
        management: Changes the servers.
    """

    settings: Settings
    usable: Settings
    view: CatalogView
    is_whole: bool
    retrieval: Retrieval
    calls: Calls
    asks: ContentRequests
    outputs: Outputs
    catalog: Catalog
    recorder: Recorder[Activity]
    sandbox: Sandbox
    management: Management


def _retrieve_tools(parts: ToolParts) -> RetrieveTools:
    has_toolsets = parts.settings.routing_type != "CALL_TOOL"
    return RetrieveTools(parts.retrieval, parts.settings.top_k, has_toolsets=has_toolsets)


def _describe_tool(parts: ToolParts) -> DescribeTool:
    return DescribeTool(parts.view, parts.retrieval, parts.calls, is_check_listed=parts.settings.list_check)


def _upstream_servers(parts: ToolParts) -> UpstreamServers | None:
    # Not in a part of the catalog: whoever is given a part must not reach beyond it.
    return UpstreamServers(parts.management, parts.settings) if parts.settings.manage and parts.is_whole else None


def _code_execution(parts: ToolParts) -> CodeExecution | None:
    if parts.usable.code == "off":
        return None
    return CodeExecution(parts.sandbox, parts.calls, parts.view, parts.outputs, parts.recorder, parts.usable)


def _proxy(parts: ToolParts) -> ProxyTool | None:
    settings = parts.settings
    if settings.proxy_tool is None:
        return None
    contents = Contents(parts.catalog, parts.view, settings.tool_name_limit, passed=None)
    return ProxyTool(settings.proxy_tool, parts.view, parts.calls, contents, parts.asks, parts.recorder)


AGENT_TOOLS: Final[tuple[Callable[[ToolParts], AgentTool[Any] | None], ...]] = (
    _retrieve_tools,
    _describe_tool,
    lambda parts: CallToolRead(parts.calls, parts.view),
    lambda parts: CallToolWrite(parts.calls, parts.view),
    lambda parts: CallToolDestructive(parts.calls, parts.view),
    lambda parts: ReadOutput(parts.outputs, is_fenced=parts.settings.fence_results),
    _upstream_servers,
    _code_execution,
    _proxy,
)
"""Each makes one tool, or None where the settings do not ask for it; the order is that of the list."""


def own_tools(parts: ToolParts) -> OwnTools:
    """The gateway's own tools, working on one view of the catalog."""
    made = [make(parts) for make in AGENT_TOOLS]
    return OwnTools(
        [tool for tool in made if tool is not None],
        is_always_loaded=parts.settings.always_load,
        instructions=partial(_choose_instructions, parts.settings.instructions, parts.view),
    )


def _choose_instructions(setting: str, visible: CatalogView) -> str:
    """The first words a model reads, with the names of the servers that its client reaches.

    Agents search more readily when they know what is there. The words depend on settings, the server file and the
    caller's reach alone, never on the state of a connection, so that prompt caches survive a restart.

    Args:
        setting: `servers`, `plain`, or a text that stands in place of all.
        visible: The part of the catalog that is seen.

    Source: docs/design/protocol-surface.md#instructions
    """
    word = setting.strip().lower()
    if word == "servers":
        return build_instructions(visible.rules.list_reachable_servers())
    return INSTRUCTIONS if word == "plain" else setting
