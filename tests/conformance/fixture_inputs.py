"""Tools of the conformance fixture that ask the client for something before they answer."""

import json
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

PLAIN: dict[str, Any] = {"structured_output": False}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]


def titled(first: str, titles: list[str]) -> list[dict[str, str]]:
    """Values with a title each."""
    return [{"const": f"{first}{number}", "title": title} for number, title in enumerate(titles, 1)]


ENUMS = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": titled("value", ["First Option", "Second Option", "Third Option"])},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": titled("value", ["First Choice", "Second Choice", "Third Choice"])},
    },
}


def ask(message: str, **properties: str) -> ElicitRequest:
    """A question with a form of required fields, given as name and type."""
    fields = {name: {"type": kind} for name, kind in properties.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(question: str, max_tokens: int) -> CreateMessageRequest:
    """A request for a model's words."""
    message = SamplingMessage(role="user", content=TextContent(text=question))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def answered(ctx: Context, key: str, field: str) -> Any:
    """A field of an accepted form, None where the client did not fill it in."""
    answer = (ctx.input_responses or {}).get(key)
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return None
    return (answer.content or {}).get(field)


def register_inputs(app: MCPServer) -> None:
    """Adds the tools of both eras."""
    register_handshake(app)
    register_rounds(app)
    register_capable(app)
    register_states(app)


def register_handshake(app: MCPServer) -> None:
    """Tools that send a request of their own while they run, as the handshake era does it."""

    async def elicited(ctx: Context, message: str, properties: dict[str, Any], required: list[str]) -> ElicitResult:
        schema = {"type": "object", "properties": properties, "required": required}
        return await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)

    @app.tool(description="Asks the client's model", **PLAIN)
    async def test_sampling(prompt: str, ctx: Context) -> str:
        message = SamplingMessage(role="user", content=TextContent(text=prompt))
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        words = answer.content.text if isinstance(answer.content, TextContent) else ""
        return f"LLM response: {words}"

    @app.tool(description="Asks the user", **PLAIN)
    async def test_elicitation(message: str, ctx: Context) -> str:
        fields = {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        }
        answer = await elicited(ctx, message, fields, list(fields))
        return f"User response: action={answer.action}, content={json.dumps(answer.content)}"

    @app.tool(description="Asks the user, with defaults", **PLAIN)
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        answer = await elicited(ctx, "Please review the defaults", DEFAULTS, [])
        return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"

    @app.tool(description="Asks the user to choose", **PLAIN)
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        answer = await elicited(ctx, "Please choose", ENUMS, [])
        return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


def register_rounds(app: MCPServer) -> None:
    """Tools that answer with a question first, as the modern era does it."""

    @app.tool(description="Asks for a name", **PLAIN)
    def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
        name = answered(ctx, "user_name", "name")
        if name is None:
            return InputRequiredResult(input_requests={"user_name": ask("What is your name?", name="string")})
        return f"Hello, {name}!"

    @app.tool(description="Asks for a name while it streams", **PLAIN)
    def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
        return test_input_required_result_elicitation(ctx)

    @app.tool(description="Asks the client's model", **PLAIN)
    def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
        answer = (ctx.input_responses or {}).get("capital_question")
        if not isinstance(answer, CreateMessageResult):
            question = sample("What is the capital of France?", 100)
            return InputRequiredResult(input_requests={"capital_question": question})
        return answer.content.text if isinstance(answer.content, TextContent) else "no text"

    @app.tool(description="Asks for the client's roots", **PLAIN)
    def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
        answer = (ctx.input_responses or {}).get("client_roots")
        if not isinstance(answer, ListRootsResult):
            return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
        return f"Roots: {', '.join(str(root.uri) for root in answer.roots)}"


def register_capable(app: MCPServer) -> None:
    """A tool that looks at what the client can do."""

    @app.tool(description="Asks only for what the client can do", **PLAIN)
    def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
        able = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if able is not None and able.sampling is not None:
            requests["question"] = sample("What is the capital of France?", 100)
        if able is not None and able.elicitation is not None:
            requests["user_name"] = ask("What is your name?", name="string")
        return InputRequiredResult(input_requests=requests) if requests else "The client can do nothing."


def register_states(app: MCPServer) -> None:
    """Tools that hand the client a state to bring back."""

    def confirming(ctx: Context) -> str | InputRequiredResult:
        if answered(ctx, "confirm", "ok") is None or ctx.request_state != "confirming":
            question = {"confirm": ask("Please confirm", ok="boolean")}
            return InputRequiredResult(input_requests=question, request_state="confirming")
        return "state-ok"

    for name in ("test_input_required_result_request_state", "test_input_required_result_tampered_state"):
        app.add_tool(confirming, name, description="Asks for a confirmation", **PLAIN)

    @app.tool(description="Asks for three things at once", **PLAIN)
    def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
        requests: Any = {
            "user_name": ask("What is your name?", name="string"),
            "greeting": sample("Generate a greeting", 50),
            "client_roots": ListRootsRequest(),
        }
        if not requests.keys() <= (ctx.input_responses or {}).keys():
            return InputRequiredResult(input_requests=requests, request_state="three")
        return "All three came."

    @app.tool(description="Asks twice", **PLAIN)
    def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        if ctx.request_state is None:
            question = {"step1": ask("Step 1: What is your name?", name="string")}
            return InputRequiredResult(input_requests=question, request_state="round 1")
        if ctx.request_state == "round 1":
            question = {"step2": ask("Step 2: What is your favorite color?", color="string")}
            return InputRequiredResult(input_requests=question, request_state="round 2")
        return f"Color: {answered(ctx, 'step2', 'color')}"
