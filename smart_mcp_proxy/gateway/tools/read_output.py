"""`read_output`: pages of a result that was cut."""

from typing import Annotated

import msgspec
from pydantic import Field

from smart_mcp_proxy.gateway.results.cleaning import fence_text
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.results.results import build_structured_result
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.raw_result import RawResult

LIMIT_DEFAULT = 4000
LIMIT_MOST = 20_000


class ReadArguments(Arguments):
    """Arguments of `read_output`."""

    key: Annotated[str, Field(description="From the marker in the cut result")]
    offset: Annotated[int, Field(ge=0, description="Where to start, in the marker's unit")] = 0
    limit: Annotated[int, Field(ge=1, le=LIMIT_MOST, description="How many characters or records")] = LIMIT_DEFAULT


class ReadOutput(AgentTool[ReadArguments]):
    """The `read_output` tool: further pages of a result that was cut."""

    name = "read_output"
    description = "Read more of a tool result that was too long. The cut result names the key and the next offset."
    annotations = {"readOnlyHint": True, "openWorldHint": False}
    arguments = ReadArguments

    def __init__(self, outputs: Outputs, *, is_fenced: bool = False) -> None:
        self._outputs = outputs
        self._is_fenced = is_fenced

    async def run(self, arguments: ReadArguments, caller: Caller) -> RawResult:
        """Reads one page."""
        page = await self._outputs.page(arguments.key, caller.principal, arguments.offset, arguments.limit)
        items = page.items
        if self._is_fenced:  # records are text then, too: between the lines of a fence there is nothing to parse
            items = fence_text(items if isinstance(items, str) else msgspec.json.encode(items).decode())
        return build_structured_result(
            {
                "key": arguments.key,
                "unit": page.unit,
                "offset": arguments.offset,
                "total": page.total,
                "next_offset": page.next_offset,
                "text" if isinstance(items, str) else "records": items,
            }
        )
