"""`describe_tool`: full definitions by name."""

from typing import Annotated, Any

import msgspec
from pydantic import Field

from smart_mcp_proxy.errors import RefusedError, RequestError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.results.results import build_structured_result
from smart_mcp_proxy.gateway.retrieval.outlines import open_part, outline_definition
from smart_mcp_proxy.gateway.retrieval.preflight import Preflight
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.gateway.visibility.visibility import NAME_LIMIT_CHARS, CatalogView
from smart_mcp_proxy.raw_result import RawResult

NAMES_LIMIT = 10


class DescribeArguments(Arguments):
    """Arguments of `describe_tool`."""

    names: Annotated[
        list[str], Field(min_length=1, max_length=NAMES_LIMIT, description="Names as retrieve_tools gave them")
    ]
    path: Annotated[str, Field(description="A part, if it is outlined")] = ""
    check: Annotated[bool, Field(description="Only whether each can be called now; NAME@DIGEST: as it was")] = False


class DescribeTool(AgentTool[DescribeArguments]):
    """The `describe_tool` tool: whole definitions by name."""

    name = "describe_tool"
    description = """Get whole definitions of tools by name, with both schemas.
    Use it where a signature is not enough.
    """
    annotations = {"readOnlyHint": True, "openWorldHint": False}
    arguments = DescribeArguments
    output_schema = {
        "type": "object",
        "properties": {
            "tools": {"type": "array", "items": {"type": "object"}},
            "errors": {"type": "array", "items": {"type": "object"}},
        },
    }

    def __init__(
        self, visible: CatalogView, retrieval: Retrieval, calls: Calls, *, is_check_listed: bool = False
    ) -> None:
        self._visible = visible
        self._retrieval = retrieval
        self._calls = calls
        self._is_check_listed = is_check_listed
        self._preflight = Preflight(visible, calls.clean_for_caller)

    def definition(self) -> dict[str, Any]:
        """The tool as listed: with `check` only where the settings ask for it, and understood in any case."""
        definition = super().definition()
        if not self._is_check_listed:
            del definition["inputSchema"]["properties"]["check"]
        return definition

    async def run(self, arguments: DescribeArguments, caller: Caller) -> RawResult:
        """Describes what it finds and says for the rest why not; or checks."""
        if arguments.check:
            checked = await self._preflight.check(arguments.names)
            outcomes = [msgspec.to_builtins(each) for each in checked]
            is_ok = all(each.verdict == "ok" for each in checked)
            return build_structured_result({"ok": is_ok, "checks": outcomes, "tools": [], "errors": []})
        if arguments.path and len(arguments.names) > 1:
            raise RequestError("path is given with several names.", hint="Name the one tool that it is a path in.")
        tools: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for name in dict.fromkeys(arguments.names):
            try:
                described = self._retrieval.describe(await self._visible.require(name))
                if arguments.path:
                    tools.append({"name": described["name"], **open_part(described, arguments.path)})
                else:
                    tools.append(outline_definition(described))
            except (RefusedError, RequestError, ToolNotFoundError, UpstreamError) as error:
                shown = await self._calls.clean_for_caller(error)
                errors.append({"name": name[:NAME_LIMIT_CHARS], **shown.to_dict()})
        return build_structured_result({"tools": tools, "errors": errors}, is_error=not tools)
