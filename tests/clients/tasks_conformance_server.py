"""The tools that the conformance suite's scenarios for tasks call, on fastmcp-tasks; its argument is the port."""

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError

server = FastMCP("conformance-tasks")
server.add_extension(TasksExtension(url="memory://"))


@server.tool
async def greet(name: str = "") -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Compute for a while."""
    await asyncio.sleep(seconds)
    return f"computed {label}"


@server.tool(task=True)
async def failing_job() -> str:
    """Fail as a tool."""
    await asyncio.sleep(1)
    raise ToolError("It failed.")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Fail as the protocol."""
    raise MCPError(code=-32603, message="It broke.")


@server.tool(task=True)
async def confirm_delete(ctx: Context, filename: str = "") -> str:
    """Delete, if the user agrees."""
    answer = await ctx.elicit(f"Delete {filename}?", response_type=bool)
    return f"{filename}: {answer.action}"


@server.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    answers = await asyncio.gather(ctx.elicit("First?", response_type=str), ctx.elicit("Second?", response_type=str))
    return ", ".join(answer.action for answer in answers)


server.run(transport="http", port=int(sys.argv[1]), show_banner=False, log_level="critical")
