"""What the conformance suite asks for besides tools: resources, prompts, completion, log levels."""

import base64
from typing import Any

from fixture_inputs import answered, ask
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import (
    Completion,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextResourceContents,
    UnsubscribeRequestParams,
)


def register_others(app: MCPServer, png: bytes) -> None:
    """Adds all of them."""
    register_resources(app, png)
    register_prompts(app, png)

    async def accept(ctx: Any, params: Any) -> EmptyResult:
        return EmptyResult()

    # The SDK's server has no public way to add what only the handshake era knows.
    for method, params in (
        ("logging/setLevel", SetLevelRequestParams),
        ("resources/subscribe", SubscribeRequestParams),
        ("resources/unsubscribe", UnsubscribeRequestParams),
    ):
        app._lowlevel_server.add_request_handler(method, params, accept)

    @app.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[word for word in ("paris", "park", "party") if word.startswith(argument.value)])


def register_resources(app: MCPServer, png: bytes) -> None:
    """Two fixed resources and a template."""

    @app.resource("test://static-text", mime_type="text/plain", description="A text")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @app.resource("test://static-binary", mime_type="image/png", description="An image")
    def static_binary() -> bytes:
        return png

    @app.resource("test://watched-resource", mime_type="text/plain", description="A text that could change")
    def watched() -> str:
        return "Watched."

    @app.resource("test://template/{id}/data", mime_type="application/json", description="Data by number")
    def template(id: str) -> str:
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def register_prompts(app: MCPServer, png: bytes) -> None:
    """One prompt of each kind."""

    @app.prompt(description="A prompt")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @app.prompt(description="A prompt with arguments")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @app.prompt(description="A prompt with a resource")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
        words = "Embedded resource content for testing."
        resource = TextResourceContents(uri=resourceUri, mime_type="text/plain", text=words)
        embedded = UserMessage(EmbeddedResource(resource=resource))
        return [embedded, UserMessage("Please process the embedded resource above.")]

    @app.prompt(description="A prompt with an image")
    def test_prompt_with_image() -> list[Any]:
        image = ImageContent(data=base64.b64encode(png).decode(), mime_type="image/png")
        return [UserMessage(image), UserMessage("Please analyze the image above.")]

    @app.prompt(description="A prompt that asks first")
    def test_input_required_result_prompt(ctx: Context) -> Any:
        context = answered(ctx, "user_context", "context")
        if context is None:
            question = ask("What context should the prompt use?", context="string")
            return InputRequiredResult(input_requests={"user_context": question})
        return [UserMessage(f"Context: {context}")]
