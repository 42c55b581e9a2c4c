"""A server of the package fastmcp-tasks, over HTTP at the port that is its one argument, else on stdio."""

import asyncio
import sys

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("tasks")
server.add_extension(TasksExtension(url="memory://"))


@server.tool(task=True)
async def slow(seconds: float, text: str) -> str:
    """Work for a while."""
    await asyncio.sleep(seconds)
    return f"done {text}"


if len(sys.argv) > 1:
    server.run(transport="http", port=int(sys.argv[1]), show_banner=False, log_level="critical")
else:
    server.run(show_banner=False)
