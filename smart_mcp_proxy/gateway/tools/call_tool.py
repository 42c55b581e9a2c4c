"""The three call tools: one call path, three sets of annotations."""

from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, CallVariant, Intent
from smart_mcp_proxy.raw_result import RawResult

Sensitivity = Literal["public", "internal", "private", "unknown"]


class NestedIntent(Arguments):
    """The older form of an intent; accepted, not advertised, because some clients fail on nested schemas.

    Source: docs/design/protocol-surface.md#intent
    """

    operation_type: str | None = None
    data_sensitivity: Sensitivity = "unknown"
    reason: str = ""


class CallArguments(Arguments):
    """Arguments of the three call tools."""

    name: Annotated[str, Field(description="server:tool as retrieve_tools gave it")]
    args: Annotated[dict[str, Any], Field(description="The tool's arguments")] = {}
    args_json: Annotated[str, Field(description="The same as a JSON string; not both")] = ""
    digest: Annotated[str, Field(description="Refuse if the definition changed since")] = ""
    intent_reason: Annotated[str, Field(description="Why, for the audit log")] = ""
    intent_data_sensitivity: Annotated[Sensitivity, Field(description="Of the data sent")] = "unknown"
    intent: SkipJsonSchema[NestedIntent | None] = None
    # As the protocol itself calls them; accepted, not advertised.
    arguments: SkipJsonSchema[dict[str, Any]] = {}


class _CallTool(AgentTool[CallArguments]):
    arguments = CallArguments
    variant: ClassVar[CallVariant]

    def __init__(self, calls: Calls, visible: CatalogView) -> None:
        self._calls = calls
        self._visible = visible

    def may_need_line(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the tool is one of a server that knows each client."""
        name, servers = arguments.get("name"), self._visible.per_client
        record = self._visible.find(name) if servers and isinstance(name, str) else None
        return record is not None and record.key.server in servers

    def run(self, arguments: CallArguments, caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """Calls the upstream tool."""
        record = self._visible.find(arguments.name)
        if caller.tool_list is not None and record is not None:
            caller.tool_list.note_called(record)
        given = _parse_arguments(arguments)
        call = self._calls.call(
            CallRequest(
                name=arguments.name,
                arguments=given,
                variant=self.variant,
                intent=_intent(arguments),
                principal=caller.principal,
                session=caller.session,
                digest=arguments.digest or None,
                meta=caller.meta,
                on_progress=caller.on_progress,
                input=caller.input,
                line=caller.line,
                extensions=caller.extensions,
            ),
            within=self._visible,
            record=record,
        )
        return call if given else _point_to_text(call)


async def _point_to_text(call: Coroutine[Any, Any, RawResult]) -> RawResult:
    """Name `args_json` where arguments are missing: some frameworks drop what is in `args`."""
    try:
        return await call
    except RequestError as exc:
        if exc.error_code == "invalid_arguments":
            exc.hint += " If you gave arguments, they were lost on the way: send them as JSON text in args_json."
        raise


def _intent(arguments: CallArguments) -> Intent:
    """The intent from both forms; the flat one wins."""
    given, nested = arguments.model_fields_set, arguments.intent
    if nested is None:
        return Intent(arguments.intent_reason, arguments.intent_data_sensitivity)
    return Intent(
        reason=arguments.intent_reason or nested.reason,
        data_sensitivity=(
            arguments.intent_data_sensitivity if "intent_data_sensitivity" in given else nested.data_sensitivity
        ),
        operation_type=nested.operation_type,
    )


def _parse_arguments(parsed: CallArguments) -> dict[str, Any]:
    """The arguments, in whichever of the parameters they came; the others may be there without content."""
    given = {name: value for name in ("args", "arguments") if (value := getattr(parsed, name))}
    if parsed.args_json and (decoded := _decode_arguments(parsed)):
        given["args_json"] = decoded
    if len(given) > 1:
        names = " and ".join(given)
        raise RequestError(f"{names} are both given.", hint="Send one of them.", code="invalid_arguments")
    return next(iter(given.values()), {})


def _decode_arguments(parsed: CallArguments) -> dict[str, Any] | None:
    """Decode arguments that came as text."""
    try:
        arguments = msgspec.json.decode(parsed.args_json)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise RequestError(
            f"args_json is not JSON: {exc}.", hint="Send the arguments as an object in args.", code="invalid_arguments"
        ) from exc
    if not isinstance(arguments, dict | None):
        raise RequestError(
            f"args_json holds {parsed.args_json!r:.80}, which is no object.",
            hint='Send {"parameter": value}, or the object itself in args.',
            code="invalid_arguments",
        )
    return arguments


class CallToolRead(_CallTool):
    """The `call_tool_read` tool: calls what only reads."""

    name = "call_tool_read"
    description = "Call a tool that only reads. Use it when retrieve_tools says call_with: call_tool_read."
    variant = "read"
    annotations = {"readOnlyHint": True, "openWorldHint": True}


class CallToolWrite(_CallTool):
    """The `call_tool_write` tool: calls what changes something."""

    name = "call_tool_write"
    description = (
        "Call a tool that creates or changes something, or does not say. Use it when call_with says call_tool_write."
    )
    variant = "write"
    annotations = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True}


class CallToolDestructive(_CallTool):
    """The `call_tool_destructive` tool: calls what may delete or overwrite."""

    name = "call_tool_destructive"
    description = "Call a tool that may delete or overwrite for good. Use it when call_with says call_tool_destructive."
    variant = "destructive"
    annotations = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
