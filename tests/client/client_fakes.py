"""Servers for the client library: one with every kind of content, and one that speaks the older form of answers."""

import json
import sys
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent

__all__ = ["OLDER_SERVER", "mixed_server"]

OLDER_SERVER = __file__
"""Run by Python, it is a server of 2025-06-18 whose `proxy` tool says everything in annotations."""


def mixed_server(name: str = "mixed") -> FastMCP:
    """A server with tools, resources, a template and prompts of many shapes."""
    server: FastMCP = FastMCP(name, instructions="Look around.", version="7")

    @server.tool(tags={"math"}, annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def picture() -> ToolResult:
        """Draw."""
        image = ImageContent(type="image", data="iVBORw==", mime_type="image/png")
        text = TextContent(type="text", text="drawn", _meta={"own": 1})
        return ToolResult([text, image], {"width": 1}, meta={"took": 2})

    @server.tool
    def fails() -> str:
        """Fail."""
        raise ValueError("the ladder is too short")

    @server.tool
    def refuses() -> ToolResult:
        """Fail as a result."""
        return ToolResult([TextContent(type="text", text="no")], {"why": "late"}, is_error=True)

    @server.tool
    async def slow(context: Context) -> str:
        """Report progress."""
        await context.report_progress(1, 2, "half")
        return "done"

    _add_contents(server)
    return server


def _add_contents(server: FastMCP) -> None:
    @server.resource("config://settings", mime_type="text/plain")
    def settings() -> str:
        return '{\n  "b": 1.00,\n  "a": [12345678901234567890, null]\n}'

    @server.resource("note://number", mime_type="text/plain")
    def number() -> str:
        return "123"

    @server.resource("image://dot", mime_type="image/png")
    def dot() -> bytes:
        return b"\x89PNG"

    @server.resource("page://{name}")
    def page(name: str) -> str:
        return f"page {name}"

    @server.prompt
    def greeting(name: str) -> str:
        """Greet someone."""
        return f"Greet {name}."


def _answer(action: str, type: str, path: str | None) -> dict[str, Any]:
    """An answer of an implementation of the older form. Source: docs/design/proxy-extension.md#metadata"""
    said = {"proxyAction": action, "proxyType": type}
    if action == "list":
        if type == "prompt":
            return {"content": []}  # as one implementation answers an empty list
        kind = {"tool": "Tool", "resource": "Resource | ResourceTemplate"}[type]
        held: Any = [{"name": "old_add", "inputSchema": {"type": "object"}}] if type == "tool" else []
        if type == "resource":
            held = [{"name": "s", "uri": "config://s"}, {"name": "p", "uriTemplate": "page://{n}"}]
        resource = {"uri": f"proxy:list/{type}", "mimeType": "application/json", "text": json.dumps(held)}
        block = {"type": "resource", "resource": resource, "annotations": {**said, "pythonType": kind, "many": True}}
        return {"content": [block]}
    said["proxyPath"] = path or ""
    if action == "info":
        held = {"name": path, "inputSchema": {"type": "object"}}
        resource = {"uri": f"proxy:info/tool/{path}", "mimeType": "application/json", "text": json.dumps(held)}
        return {"content": [{"type": "resource", "resource": resource, "annotations": {**said, "pythonType": "Tool"}}]}
    if type == "tool":
        return {"content": [{"type": "text", "text": "8", "annotations": said}]}
    if type == "resource":
        resource = {"uri": path, "mimeType": "application/json", "text": '{"k":1}', "contentType": "text/plain"}
        return {"content": [{"type": "resource", "resource": resource, "annotations": said}]}
    held = {"messages": [{"role": "user", "content": {"type": "text", "text": "Greet Ada."}}]}
    resource = {"uri": "proxy:greeting", "mimeType": "application/json", "text": json.dumps(held)}
    said["pythonType"] = "GetPromptResult"
    return {"content": [{"type": "resource", "resource": resource, "annotations": said}]}


def _serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            info = {"name": "older", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif message["method"] == "tools/list":
            schema = {"type": "object", "properties": {"action": {}, "type": {}, "path": {}, "args": {}}}
            described = "A proxy for the tools, resources and prompts of other servers."
            decoy = {"name": "decoy", "description": "Not a proxy.", "inputSchema": schema}
            result = {"tools": [decoy, {"name": "mcp_proxy", "description": described, "inputSchema": schema}]}
        elif message["method"] == "tools/call":
            asked = params["arguments"]
            if params["name"] == "decoy":
                result = {"content": [{"type": "text", "text": "what?"}]}
            else:
                result = _answer(asked["action"], asked["type"], asked.get("path"))
        if "id" not in message:
            continue
        if message["method"] == "server/discover":
            answer: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        else:
            answer = {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    _serve()
