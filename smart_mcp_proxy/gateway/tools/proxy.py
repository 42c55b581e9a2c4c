"""`proxy`: everything that the servers offer, through one tool."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import structs
from pydantic import ConfigDict

from smart_mcp_proxy import policy
from smart_mcp_proxy.desktop.present import name_present_client
from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.results.results import decode_members, may_link, rewrite_result
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Arguments, Caller
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.links import relink_prompt, relink_tool
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, ContentKind, ToolRecord
from smart_mcp_proxy.names import RESERVED_NAMES
from smart_mcp_proxy.proxying.metadata import ProxyType
from smart_mcp_proxy.proxying.operation import DESCRIPTION, PARAMETERS, Batch, Operation, parse_operation
from smart_mcp_proxy.proxying.perform import perform
from smart_mcp_proxy.proxying.query import Listed, PythonType, find_listed
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import Activity

SUBJECT_CHARS = 200
"""Characters of a path that are written down."""

_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class ProxyArguments(Arguments):
    """Arguments as given; the rules of the `proxy` tool judge them, the same for every server."""

    model_config = ConfigDict(extra="allow")


@dataclass(eq=False, repr=False)
class CallerSource:
    """The tools and contents that one caller may see and use.

    Attributes:
        tool: Whose paths it goes.
        caller: On whose behalf.
    """

    tool: "ProxyTool"
    caller: Caller

    async def list_definitions(self, type: ProxyType) -> Sequence[Listed]:
        """Every definition of a type; resource templates are among the resources."""
        if type == "tool":
            return [
                _build_listed_tool(record)
                for record in self.tool.visible.records()
                if not is_for_apps_alone(record.raw)
            ]
        if type == "prompt":
            return self._list_contents("prompts", "Prompt")
        return [*self._list_contents("resources", "Resource"), *self._list_contents("templates", "ResourceTemplate")]

    async def find(self, type: ProxyType, path: str) -> Listed:
        """The definition with this name or URI.

        Raises:
            RequestError: There is none.
            RefusedError: It is kept from this caller.
        """
        if type != "tool":
            return find_listed(type, path, await self.list_definitions(type))
        self._refuse_own(path)
        return _build_listed_tool(await self._match_tool_name(path) or await self.tool.visible.require(path))

    async def call_tool(self, path: str, args: Mapping[str, Any]) -> bytes:
        """The tool's result.

        This tool is marked destructive, so that no client calls it without its user: each tool is called as it asks
        to be.
        """
        self._refuse_own(path)
        caller, record = self.caller, await self._match_tool_name(path)
        if record is not None and caller.tool_list is not None:
            caller.tool_list.note_called(record)
        request = CallRequest(
            name=path if record is None else str(record.key),
            arguments=args,
            variant="read" if record is None else policy.call_with(record.annotations),
            principal=caller.principal,
            session=caller.session,
            meta=caller.meta,
            on_progress=caller.on_progress,
            line=caller.line,
        )
        return (await self.tool.calls.call(request, within=self.tool.visible)).text

    async def read_resource(self, path: str) -> bytes:
        """The result of `resources/read` as JSON text, under URIs that lead here."""
        contents, asks = self.tool.contents, self.tool.asks
        target = await asks.find(contents, path, self.caller.principal)
        request = ContentRequest("resources/read", target, {"uri": target.name}, {}, self.caller, uri=path)
        uri_of = partial(contents.select_uri_builder(target), target.server)
        return (await rewrite_result(await asks.ask(request), partial(_present_resource, uri_of=uri_of))).text

    async def get_prompt(self, path: str, args: Mapping[str, str]) -> bytes:
        """The result of `prompts/get` as JSON text."""
        contents = self.tool.contents
        target = contents.prompt(path)
        params = {"name": target.name, "arguments": args} if args else {"name": target.name}
        raw = await self.tool.asks.ask(ContentRequest("prompts/get", target, params, args, self.caller))
        if may_link(raw):
            uri_of = partial(contents.build_resource_uri, target.server)
            raw = await rewrite_result(raw, partial(relink_prompt, uri_of=uri_of))
        return raw.text

    def _list_contents(self, kind: ContentKind, python_type: PythonType) -> list[Listed]:
        items = self.tool.contents.of(kind).items()
        return [Listed(path, item.record.raw, python_type, item.server, item.name) for path, item in items]

    async def _match_tool_name(self, path: str) -> ToolRecord | None:
        """The visible tool of that name, or the only one that its server calls so."""
        if (record := self.tool.visible.find(path)) is not None:
            return record
        named = await self.tool.visible.find_by_own_name(path)
        return named[0] if len(named) == 1 else None

    def _refuse_own(self, path: str) -> None:
        if path == self.tool.name or path in RESERVED_NAMES:
            raise RequestError(
                f"Tool {path!r} is the gateway's own, and proxy reaches only tools of servers.",
                hint="Call it directly, or list the others with action 'list' and type 'tool'.",
                code="own_tool",
            )


@dataclass(eq=False, repr=False)
class ProxyTool(AgentTool[ProxyArguments]):
    """The `proxy` tool. Its words are shared with those who offer one elsewhere.

    Attributes:
        name: Under which it is listed.
        visible: The tools that its caller may see.
        calls: The one call path.
        contents: The resources and prompts that it may see.
        asks: The one path to them.
        recorder: Gets a record of each look at what there is; a call is written down where it is made.
        clock: Monotonic seconds.
    """

    description = DESCRIPTION
    annotations = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    arguments = ProxyArguments

    name: str  # type: ignore[misc]  # the one tool whose name the operator chooses
    visible: CatalogView
    calls: Calls
    contents: Contents
    asks: ContentRequests
    recorder: Recorder[Activity]
    clock: Callable[[], float] = time.monotonic

    def definition(self) -> dict[str, Any]:
        """The tool as listed."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(PARAMETERS),
            "annotations": dict(self.annotations),
        }

    def may_need_line(self, arguments: Mapping[str, Any]) -> bool:
        """Whether any server knows each client: what is called is found out later."""
        return bool(self.visible.per_client)

    async def run(self, arguments: ProxyArguments, caller: Caller) -> RawResult:
        """Lists, describes or calls. All but a call is written down here; a call is where it is made.

        Source: docs/design/proxy-extension.md#access
        """
        request = parse_operation(arguments.model_extra or {})
        # What comes back is rewritten, and may be one of many: there is no place in it for a server's question.
        caller = structs.replace(caller, input=None)
        source = CallerSource(self, caller)
        started, outcome = self.clock(), "internal"
        try:
            answer = await perform(request, source, caller.era)
            outcome = "ok"
        except ProxyError as error:
            outcome = error.error_code
            raise
        finally:
            if isinstance(request, Batch) or request.action != "call":
                self._note(request, caller, outcome, self.clock() - started)
        return RawResult(answer)

    def _note(self, request: Operation | Batch, caller: Caller, outcome: str, seconds: float) -> None:
        self.recorder.record(
            Activity(
                kind="search",
                principal=caller.principal,
                subject=policy.mask_text("" if isinstance(request, Batch) else request.path, SUBJECT_CHARS),
                outcome=outcome,
                duration_ms=seconds * 1000,
                at_s=time.time(),
                detail={"tool": self.name, **_detail(request), **name_present_client()},
                session=policy.short_digest(caller.session) if caller.session else "",
            )
        )


def _detail(request: Operation | Batch) -> Mapping[str, Any]:
    if isinstance(request, Batch):
        return {"action": "batch", "operations": len(request.operations)}
    return {"action": request.action, "type": request.type}


def _build_listed_tool(record: ToolRecord) -> Listed:
    """A tool, its interface named as the gateway names it; most have none and are not read."""
    raw, server = record.raw, record.key.server
    if b"resourceUri" in raw:
        raw = msgspec.json.encode(relink_tool(msgspec.json.decode(raw), partial(gateway_uri, server)))
    return Listed(record.listed_name, raw, "Tool", *record.key)


def _present_resource(raw: bytes, uri_of: Callable[[str], str]) -> bytes:
    """The result of `resources/read` with URIs that lead to the gateway.

    Args:
        raw: JSON text, cleaned already where the settings ask for it.
        uri_of: The gateway's URI for one of the server's.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    members = decode_members(raw)
    parts: list[dict[str, Any]] = list(_parts.decode(members.get("contents", b"[]")))
    for part in parts:
        if isinstance(uri := msgspec.json.decode(part.get("uri", b"null")), str):
            part["uri"] = uri_of(uri)
    return msgspec.json.encode({**members, "contents": parts})
