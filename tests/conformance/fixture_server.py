"""The server that the conformance suite asks for: its tool names, resources and prompts, over streamable HTTP.

    python tests/conformance/fixture_server.py

Prints its address as the first line and serves both protocol eras until it is terminated. `scripts/conformance.sh`
tests it directly and, another of it, behind the gateway, so that what fails in front of the gateway only is the
gateway's fault. What the latter is sent is looked at as in every test (tests/run_wire.py).
"""

import base64
import socket
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from fixture_inputs import register_inputs
from fixture_others import register_others
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

sys.path.append(str(Path(__file__).parents[1]))

from run_wire import Watched, note

STEP_S = 0.05
"""The pause between two notifications that the suite asks for."""
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text_resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    """A resource inside a result."""
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def image() -> ImageContent:
    """One pixel."""
    return ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def schema_tool() -> Tool:
    """A tool whose input schema is written by hand."""

    def json_schema_2020_12_tool(name: str = "") -> str:
        return f"Hello, {name}"

    description = "Tool with JSON Schema 2020-12 features"
    tool = Tool.from_function(json_schema_2020_12_tool, description=description, structured_output=False)
    tool.parameters = SCHEMA_2020_12
    return tool


app = MCPServer("conformance-fixture", version="1.0.0", tools=[schema_tool()])
plain = {"structured_output": False}


@app.tool(description="Returns a text", **plain)
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@app.tool(description="Returns an image", **plain)
def test_image_content() -> list[ContentBlock]:
    return [image()]


@app.tool(description="Returns a sound", **plain)
def test_audio_content() -> list[ContentBlock]:
    return [AudioContent(data=base64.b64encode(WAV).decode(), mime_type="audio/wav")]


@app.tool(description="Returns a resource", **plain)
def test_embedded_resource() -> list[ContentBlock]:
    return [text_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@app.tool(description="Returns three kinds of content", **plain)
def test_multiple_content_types() -> list[ContentBlock]:
    mixed = text_resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [TextContent(text="Multiple content types test:"), image(), mixed]


@app.tool(description="Logs three times", **plain)
async def test_tool_with_logging(ctx: Context) -> str:
    for number, message in enumerate(("started", "processing", "completed")):
        await anyio.sleep(STEP_S if number else 0)
        await ctx.info("Tool processing data" if message == "processing" else f"Tool execution {message}")
    return "Logged three times."


@app.tool(description="Logs once", **plain)
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("One line")
    return "Logged once."


@app.tool(description="Reports progress three times", **plain)
async def test_tool_with_progress(ctx: Context) -> str:
    for percent in (0, 50, 100):
        await ctx.report_progress(percent, 100, f"Completed step {percent} of 100")
        await anyio.sleep(STEP_S)
    return "Reported three times."


@app.tool(description="Always fails", **plain)
def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


@app.tool(description="Closes its stream before it answers", **plain)
async def test_reconnection(ctx: Context) -> str:
    await ctx.close_sse_stream()
    return "Answered."


@app.tool(description="Needs a capability that clients seldom declare", **plain)
def test_missing_capability(ctx: Context) -> str:
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs the sampling capability", needed)
    return "The client can do sampling."


@app.tool(description="Has a parameter that travels as a header too", **plain)
def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    return f"Region: {region}"


@app.tool(description="Adds a tool to the list, or takes it away again", **plain)
async def test_trigger_tool_change(ctx: Context) -> str:
    if any(tool.name == "test_coming_and_going" for tool in await app.list_tools()):
        app.remove_tool("test_coming_and_going")
    else:
        app.add_tool(lambda: "here", "test_coming_and_going", description="Comes and goes", **plain)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "The list is another one."


@app.tool(description="Adds a prompt to the list, or takes it away again", **plain)
async def test_trigger_prompt_change(ctx: Context) -> str:
    name = "test_coming_and_going"
    if any(prompt.name == name for prompt in await app.list_prompts()):
        app.remove_prompt(name)
    else:
        app.add_prompt(Prompt.from_function(lambda: "here", name=name, description="Comes and goes"))
    await ctx.notify_prompts_changed()
    await ctx.session.send_prompt_list_changed()
    return "The list is another one."


def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # of logging and sampling, which the suite asks for
    register_inputs(app)
    register_others(app, PNG)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        # httptools leaves blanks at the end of header values.
        config: Any = {"http": "h11", "log_level": "warning", "ws": "none", "timeout_graceful_shutdown": 1}
        uvicorn.Server(uvicorn.Config(Watched(app.streamable_http_app(), note), **config)).run(sockets=[listener])


if __name__ == "__main__":
    main()
