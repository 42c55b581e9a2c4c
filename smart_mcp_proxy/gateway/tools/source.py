"""A caller's view of all servers for the `proxy` tool; calls take the one call path."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps_alone
from smart_mcp_proxy.gateway.tools.reader import ContentReader
from smart_mcp_proxy.gateway.visibility.links import relink_tool
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, ToolRecord
from smart_mcp_proxy.names import RESERVED_NAMES
from smart_mcp_proxy.proxying import Listed, ProxyType, find_listed


class CallerSource:
    """The tools and contents that one caller may see and use.

    Args:
        visible: The tools that it may see.
        calls: The one call path.
        reader: The resources and prompts that it may see.
        caller: On whose behalf.
        own_names: Tools of the gateway itself: they are listed, and called directly.
    """

    def __init__(
        self,
        visible: CatalogView,
        calls: Calls,
        reader: ContentReader,
        caller: Caller,
        own_names: frozenset[str],
    ) -> None:
        self._visible = visible
        self._calls = calls
        self._reader = reader
        self._caller = caller
        self._own_names = own_names | RESERVED_NAMES

    async def list_definitions(self, type: ProxyType) -> Sequence[Listed]:
        """Every definition of a type; resource templates are among the resources."""
        if type == "tool":
            return [
                _build_listed_tool(record) for record in self._visible.records() if not is_for_apps_alone(record.raw)
            ]
        if type == "prompt":
            return self._reader.prompts()
        return self._reader.resources()

    async def find(self, type: ProxyType, path: str) -> Listed:
        """The definition with this name or URI.

        Raises:
            RequestError: There is none.
            RefusedError: It is kept from this caller.
        """
        if type != "tool":
            return find_listed(type, path, await self.list_definitions(type))
        self._refuse_own(path)
        return _build_listed_tool(await self._match_tool_name(path) or await self._visible.require(path))

    async def call_tool(self, path: str, args: Mapping[str, Any]) -> bytes:
        """The tool's result.

        This tool is marked destructive, so that no client calls it without its user: each tool is called as it asks
        to be.
        """
        self._refuse_own(path)
        caller, record = self._caller, await self._match_tool_name(path)
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
        return (await self._calls.call(request, within=self._visible)).text

    async def read_resource(self, path: str) -> bytes:
        """The resource's contents."""
        return await self._reader.read_resource(path, self._caller)

    async def get_prompt(self, path: str, args: Mapping[str, str]) -> bytes:
        """The prompt's messages."""
        return await self._reader.get_prompt(path, args, self._caller)

    async def _match_tool_name(self, path: str) -> ToolRecord | None:
        """The visible tool of that name, or the only one that its server calls so."""
        if (record := self._visible.find(path)) is not None:
            return record
        named = await self._visible.find_by_own_name(path)
        return named[0] if len(named) == 1 else None

    def _refuse_own(self, path: str) -> None:
        if path in self._own_names:
            raise RequestError(
                f"Tool {path!r} is the gateway's own, and proxy reaches only tools of servers.",
                hint="Call it directly, or list the others with action 'list' and type 'tool'.",
                code="own_tool",
            )


def _build_listed_tool(record: ToolRecord) -> Listed:
    """A tool, its interface named as the gateway names it; most have none and are not read."""
    raw, server = record.raw, record.key.server
    if b"resourceUri" in raw:
        raw = msgspec.json.encode(relink_tool(msgspec.json.decode(raw), partial(gateway_uri, server)))
    return Listed(record.listed_name, raw, "Tool", *record.key)
