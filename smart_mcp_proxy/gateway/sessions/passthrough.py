"""Passthrough of one server: its own names, definitions and results, on the one call path."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.fastmcp_compat.methods import request_error
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.sessions.tool_list import CatalogToolList, Definition, build_definition, build_request
from smart_mcp_proxy.gateway.shared.agent_tools import OwnTools
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.raw_result import RawResult

FIRST_LIST_S = 10.0
"""A client that asks before the server was ever listed waits this long; most give up after 30 s or more."""
CLOSE_NAMES = 3
_NO_OWN_TOOLS = OwnTools(instructions=lambda: "The tools of one MCP server, as it lists them.")


class Passthrough(CatalogToolList):
    """The tools of one server, under their own names.

    Args:
        server: Configured name.
        visible: The server's tools, as far as the configuration shows them.
        calls: The one call path.
        changes: Says when a listing has ended.
        is_listed: Whether the server's first listing has ended, well or badly.
    """

    def __init__(
        self, server: str, visible: CatalogView, calls: Calls, changes: Changes, is_listed: Callable[[], bool]
    ) -> None:
        super().__init__(_NO_OWN_TOOLS, visible, calls)
        self._server = server
        self._changes = changes
        self._is_listed = is_listed

    async def wait_listed(self) -> None:
        """Waits for the server's first listing where none is stored; what was stored is shown at once."""
        try:
            async with asyncio.timeout(FIRST_LIST_S):
                while not self.select_records() and not self._is_listed():
                    await self._changes.wait()
        except TimeoutError:
            return

    def select_records(self) -> tuple[ToolRecord, ...]:
        """The server's tools, in an order that stays."""
        return self._visible.of_server(self._server)

    def name_record(self, record: ToolRecord) -> str:
        """The server's own name for a tool."""
        return record.key.tool

    def define(self, record: ToolRecord, *, is_loaded: bool) -> Definition:
        """The server's definition, whole."""
        return build_definition(msgspec.json.decode(record.raw))

    def has(self, name: str) -> bool:
        """Whether the server has a tool of this name."""
        return name in self.records()

    def state(self) -> Hashable:
        """The definitions' own texts."""
        return tuple(record.raw for record in self.select_records()) or None

    def hint(self, name: str) -> str:
        """Names that are close."""
        close = get_close_matches(name, self.records(), n=CLOSE_NAMES)
        return f"Did you mean {' or '.join(close)}?" if close else "tools/list has all names."

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> RawResult:
        """The tool's result. The server judges the arguments itself.

        Raises:
            MCPError: The server answered with a JSON-RPC error; this is the same one.
        """
        request = build_request(f"{self._server}:{name}", arguments, caller)
        request = msgspec.structs.replace(request, is_checked=False, keeps_uris=True, session=caller.session)
        try:
            return await self._calls.call(request, within=self._visible)
        except UpstreamError as error:
            if (answer := error.answer) is None:
                raise
            raise request_error(answer.code, answer.message, answer.data) from error
