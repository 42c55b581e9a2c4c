"""Passthrough of one server: its own names, definitions and results, on the one call path."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from mcp.shared.inbound import x_mcp_header_map

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.fastmcp_compat.methods import request_error
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.shared.tool_offer import fit_to_handshake
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, Era, ToolRecord
from smart_mcp_proxy.raw_result import RawResult

FIRST_LIST_S = 10.0
"""A client that asks before the server was ever listed waits this long; most give up after 30 s or more."""
CLOSE_NAMES = 3

Definition = Mapping[str, Any]


class Passthrough:
    """The tools of one server, under their own names.

    Args:
        server: Configured name.
        visible: The server's tools, as far as the configuration shows them.
        calls: The one call path.
        changes: Says when a listing has ended.
        is_listed: Whether the server's first listing has ended, well or badly.
    """

    instructions = "The tools of one MCP server, as it lists them."
    list_ttl_ms = 0

    def __init__(
        self, server: str, visible: CatalogView, calls: Calls, changes: Changes, is_listed: Callable[[], bool]
    ) -> None:
        self._server = server
        self._visible = visible
        self._calls = calls
        self._changes = changes
        self._is_listed = is_listed
        self._records: Sequence[ToolRecord] = ()
        self._listed: Mapping[str, Definition] = {}
        self._fitted: Sequence[Definition] = ()
        self._demanding: frozenset[str] = frozenset()

    async def wait_listed(self) -> None:
        """Waits for the server's first listing where none is stored; what was stored is shown at once."""
        try:
            async with asyncio.timeout(FIRST_LIST_S):
                while not self._now() and not self._is_listed():
                    await self._changes.wait()
        except TimeoutError:
            return

    def definitions(self, era: Era) -> Sequence[Definition]:
        """The server's definitions, whole, in an order that stays."""
        listed = self._now()
        return list(listed.values()) if era == "modern" else self._fitted

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool."""
        schema = self._now().get(name, {}).get("inputSchema")
        return schema if isinstance(schema, dict) else None

    def has(self, name: str) -> bool:
        """Whether the server has a tool of this name."""
        return name in self._now()

    def demands_headers(self, name: str) -> bool:
        """Whether the schema wants some arguments of this tool in HTTP headers too."""
        self._now()
        return name in self._demanding

    def may_need_line(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the server knows each client."""
        return self._server in self._visible.per_client

    def hint(self, name: str) -> str:
        """Names that are close."""
        close = get_close_matches(name, self._now(), n=CLOSE_NAMES)
        return f"Did you mean {' or '.join(close)}?" if close else "tools/list has all names."

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> RawResult:
        """The tool's result. The server judges the arguments itself.

        Raises:
            MCPError: The server answered with a JSON-RPC error; this is the same one.
        """
        request = CallRequest(
            name=f"{self._server}:{name}",
            arguments=arguments,
            variant=None,
            is_checked=False,
            keeps_uris=True,
            principal=caller.principal,
            session=caller.session,
            meta=caller.meta,
            on_progress=caller.on_progress,
            input=caller.input,
            line=caller.line,
            extensions=caller.extensions,
        )
        try:
            return await self._calls.call(request, within=self._visible)
        except UpstreamError as error:
            if (answer := error.answer) is None:
                raise
            raise request_error(answer.code, answer.message, answer.data) from error

    def state(self) -> Hashable:
        """The definitions' own texts."""
        self._now()
        return tuple(record.raw for record in self._records) or None

    def _now(self) -> Mapping[str, Definition]:
        """The definitions by name, read once per state of the catalog."""
        records = self._visible.of_server(self._server)
        if records is not self._records:
            self._listed = {record.key.tool: msgspec.json.decode(record.raw) for record in records}
            schemas = {name: definition.get("inputSchema") for name, definition in self._listed.items()}
            self._demanding = frozenset(name for name, schema in schemas.items() if x_mcp_header_map(schema))
            self._fitted = list(map(fit_to_handshake, self._listed.values()))
            self._records = records
        return self._listed
