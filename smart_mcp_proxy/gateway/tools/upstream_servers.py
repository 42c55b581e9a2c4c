"""`upstream_servers`: the servers behind the gateway, managed by an agent within what its user allows."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.admin.management import Management
from smart_mcp_proxy.gateway.admin.roles import MCP, require_role
from smart_mcp_proxy.gateway.results.cleaning import clean, fence_text
from smart_mcp_proxy.gateway.results.results import build_structured_result, may_need_cleaning, rewrite_result
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.settings import Settings

LOG_LINES = 50
LOG_LINES_MOST = 500
Operation = Literal[
    "list", "add", "remove", "update", "patch", "enable", "disable", "restart", "refresh", "tail_log", "import"
]
_JSON_FIELDS = {f"{key}_json": key for key in ("args", "env", "headers", "oauth", "isolation")}
_KINDS = {"args": list, "env": dict, "headers": dict}


class ServersArguments(Arguments):
    """Arguments of `upstream_servers`."""

    operation: Operation
    name: Annotated[str, Field(description="All but list, import")] = ""
    url: str = ""
    command: str = ""
    args_json: Annotated[str, Field(description='["a"]')] = ""
    env_json: Annotated[str, Field(description='{"KEY": "value" or null}')] = ""
    headers_json: str = ""
    oauth_json: str = ""
    isolation_json: SkipJsonSchema[str] = ""  # mcpproxy-go has it; the entry's reader refuses it
    type: Annotated[str, Field(description="stdio, http, sse")] = ""
    cwd: str = ""
    enabled: bool = True
    timeout: Annotated[int, Field(ge=1, description="Milliseconds")] = 60_000
    lines: Annotated[int, Field(ge=1, le=LOG_LINES_MOST)] = LOG_LINES
    config_json: Annotated[str, Field(description="For import: a client's server list")] = ""
    revision: Annotated[str, Field(description="From list: fail if changed since")] = ""


class UpstreamServers(AgentTool[ServersArguments]):
    """The `upstream_servers` tool: an agent manages the server file."""

    name = "upstream_servers"
    description = """Manage the MCP servers behind this gateway.
    update and patch merge: send only what changes; null removes, arrays replace, *** keeps a hidden value.
    What you add, redirect or enable waits, not started, until the user approves it.
    """
    annotations = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
    arguments = ServersArguments
    output_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "servers": {"type": "array", "items": {"type": "object"}},
            "state": {"type": "string"},
            "changed": {"type": "array", "items": {"type": "string"}},
            "message": {"type": "string"},
        },
    }

    def __init__(self, management: Management, settings: Settings) -> None:
        self._management = management
        self._settings = settings

    def definition(self) -> dict[str, Any]:
        """The tool as listed; a field that is left out changes nothing, so none has a default."""
        definition = super().definition()
        for value in definition["inputSchema"]["properties"].values():
            value.pop("default", None)
        return definition

    async def run(self, arguments: ServersArguments, caller: Caller) -> RawResult:
        """Does one operation, within the caller's role where they have one."""
        if caller.role is not None:
            require_role(caller.role, MCP[f"{self.name} {arguments.operation}"])
        answer = await self._perform_operation(arguments, caller.principal)
        raw = build_structured_result(msgspec.to_builtins(answer))
        return await rewrite_result(raw, clean) if self._settings.clean_results and may_need_cleaning(raw) else raw

    async def _perform_operation(self, arguments: ServersArguments, principal: str) -> object:
        management, name, operation = self._management, arguments.name, arguments.operation
        revision = arguments.revision or None
        if operation == "list":
            return await management.servers()
        if operation == "import":
            return await management.import_text(arguments.config_json, "agent", principal=principal)
        if not name:
            raise RequestError(f"{operation} needs the name of a server.", hint="Send name.", code="invalid_arguments")
        match operation:
            case "add":
                return await management.add(name, _entry(arguments), "agent", revision, principal=principal)
            case "update" | "patch":
                return await management.patch(name, _entry(arguments), "agent", revision, principal=principal)
            case "remove":
                return await management.remove(name, "agent", revision, principal=principal)
            case "enable" | "disable":
                is_enabled = operation == "enable"
                return await management.switch(name, "agent", revision, is_enabled=is_enabled, principal=principal)
            case "restart":
                return await management.restart(name, "agent", principal=principal)
            case "refresh":
                return await management.refresh(name, "agent", principal=principal)
            case _:
                return {"name": name, "lines": await self._logs(name, arguments.lines)}

    async def _logs(self, name: str, count: int) -> Sequence[str]:
        """The last lines that a server wrote, between fences where the settings ask for it."""
        lines = await self._management.logs(name, count)
        return fence_text("\n".join(lines)).split("\n") if self._settings.fence_results else lines


def _entry(arguments: ServersArguments) -> dict[str, Any]:
    """The fields of an entry that were sent; the JSON text null removes one."""
    given = arguments.model_fields_set
    sent = {key: getattr(arguments, key) for key in ("url", "command", "type", "cwd", "timeout") if key in given}
    entry: dict[str, Any] = {key: value for key, value in sent.items() if value}
    for parameter, key in _JSON_FIELDS.items():
        if text := getattr(arguments, parameter):
            entry[key] = _decode_json_field(parameter, key, text)
    if "enabled" in given:
        entry |= {"disabled": None if arguments.enabled else True, "enabled": None}
    return entry


def _decode_json_field(parameter: str, key: str, text: str) -> Any:
    """The value of a parameter that is sent as JSON text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise RequestError(
            f"{parameter} is not JSON: {exc}.", hint="Send it as JSON text.", code="invalid_arguments"
        ) from exc
    kind = _KINDS.get(key)
    if value is not None and kind is not None and not isinstance(value, kind):
        expected = "an array" if kind is list else "an object"
        raise RequestError(f"{parameter} is not {expected}.", hint="Send null to remove it.", code="invalid_arguments")
    return value
