"""Lists of servers' tools, behind the gateway's own: what all kinds of them have in common."""

from abc import abstractmethod
from collections.abc import Collection, Coroutine, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
from mcp.shared.inbound import x_mcp_header_map

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import QuarantinedError, ToolNotFoundError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.shared.agent_tools import ALWAYS_LOAD, Caller, OwnTools, ToolList
from smart_mcp_proxy.gateway.shared.output_schemas import fit_to_handshake
from smart_mcp_proxy.gateway.shared.search_hints import add_search_hint
from smart_mcp_proxy.gateway.visibility.links import relink_tool
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_uri
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, Era, ToolRecord
from smart_mcp_proxy.raw_result import RawResult

LIST_TTL_MS = 300_000
"""Time for which a client may keep a list that is fixed while the gateway runs."""
_DEFINITIONS_LIMIT = 2_048
"""Definitions that lists share: thousands of pools and toolsets hold the same popular tools."""


class Definition(NamedTuple):
    """A server's tool as one list shows it.

    Attributes:
        shown: To clients of the modern era.
        fitted: To clients of the handshake era.
        demands_headers: Whether it wants some arguments in HTTP headers too.
    """

    shown: Mapping[str, Any]
    fitted: Mapping[str, Any]
    demands_headers: bool


def build_definition(shown: Mapping[str, Any]) -> Definition:
    """Build what both eras are shown of a definition."""
    return Definition(shown, fit_to_handshake(shown), bool(x_mcp_header_map(shown.get("inputSchema"))))


@lru_cache(maxsize=_DEFINITIONS_LIMIT)
def _build_listed(
    raw: bytes, name: str, server: str, *, is_hinted: bool, is_loaded: bool, is_structured: bool
) -> Definition:
    """A definition as it is listed, with its output schema if results keep structured content.

    Clients take a result without it for an error.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
    """
    definition = relink_tool({**msgspec.json.decode(raw), "name": name}, partial(gateway_uri, server))
    if not is_structured:
        definition.pop("outputSchema", None)
    if is_hinted:
        definition = add_search_hint(definition, server)
    return build_definition(_mark_always_load(definition) if is_loaded else definition)


def _mark_always_load(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mark a definition for clients that defer tools, unless its server decides so itself."""
    meta = definition.get("_meta") or {}
    return {**definition, "_meta": {**ALWAYS_LOAD, **meta}} if isinstance(meta, dict) else definition


def build_request(name: str, arguments: Mapping[str, Any], caller: Caller) -> CallRequest:
    """The request for a call of a listed tool."""
    return CallRequest(
        name=name,
        arguments=arguments,
        variant=None,  # the client sees the tool's own annotations and asks its user by them
        principal=caller.principal,
        meta=caller.meta,
        on_progress=caller.on_progress,
        input=caller.input,
        line=caller.line,
        extensions=caller.extensions,
    )


class CatalogToolList(ToolList):
    """Some of the gateway's own tools, and behind them some of the servers'.

    Args:
        own: The gateway's own tools in the list.
        visible: The servers' tools that may be in it.
        calls: The one call path.
    """

    def __init__(self, own: OwnTools, visible: CatalogView, calls: Calls) -> None:
        self._own = own
        self._visible = visible
        self._calls = calls
        self._selected: tuple[ToolRecord, ...] = ()
        self._records: Mapping[str, ToolRecord] = {}
        self._definitions: Mapping[str, Definition] = {}

    @abstractmethod
    def select_records(self) -> tuple[ToolRecord, ...]:
        """The servers' tools in the list now, in its order; equal as long as nothing changed."""

    def select_loaded_ids(self) -> Collection[int]:
        """Ids of the tools that clients are asked to show from the start, where they defer others."""
        return ()

    def name_record(self, record: ToolRecord) -> str:
        """The name under which a tool is listed."""
        return record.listed_name

    def define(self, record: ToolRecord, *, is_loaded: bool) -> Definition:
        """A tool as the list shows it."""
        return _build_listed(
            record.raw,
            record.listed_name,
            record.key.server,
            is_hinted=self._visible.is_hinting,
            is_loaded=is_loaded,
            is_structured=not self._calls.path.limits.may_drop_structured,
        )

    def records(self) -> Mapping[str, ToolRecord]:
        """The servers' tools in the list by name; looked through once per selection."""
        selected = self.select_records()
        if selected is not self._selected and selected != self._selected:
            loaded = self.select_loaded_ids() if self._own.is_always_loaded else ()
            self._records = {self.name_record(record): record for record in selected}
            self._definitions = {
                name: self.define(record, is_loaded=record.id in loaded) for name, record in self._records.items()
            }
        self._selected = selected
        return self._records

    @property
    def instructions(self) -> str:
        """Instructions that come with the gateway's own tools."""
        return self._own.instructions()

    def definitions(self, era: Era) -> Sequence[Mapping[str, Any]]:
        """The gateway's own tools first, byte for byte the same for everybody."""
        self.records()
        is_modern = era == "modern"
        return [
            *self._own.definitions,
            *(each.shown if is_modern else each.fitted for each in self._definitions.values()),
        ]

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """That of the gateway's own tool, else the server's, if it is an object."""
        if (own := self._own.schemas.get(name)) is not None:
            return own
        schema = self._definitions[name].shown.get("inputSchema") if name in self.records() else None
        return schema if isinstance(schema, dict) else None

    def has(self, name: str) -> bool:
        """Whether a tool of this name is listed, or waits for the user and is refused with the reason."""
        return name in self._own.by_name or name in self.records() or self._is_quarantined(name)

    def demands_headers(self, name: str) -> bool:
        """Never for the gateway's own tools."""
        return name not in self._own.by_name and name in self.records() and self._definitions[name].demands_headers

    def may_need_line(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Also whether one of the gateway's own tools may lead there."""
        if (own := self._own.by_name.get(name)) is not None:
            return own.may_need_line(arguments)
        record = self.records().get(name)
        return record is not None and record.key.server in self._visible.per_client

    def state(self) -> Hashable:
        """Names and definitions in their order."""
        return tuple((record.listed_name, record.digest) for record in self.select_records())

    def hint(self, name: str) -> str:
        """The way to what is not in the list."""
        record = self._visible.find(name)
        if record is None:
            return f"Listed: {', '.join(self._own.by_name)}. Others are found with retrieve_tools."
        way = f"call_tool_{policy.call_with(record.annotations)}"
        return f"It is not in your list now: call it by name with {way}, or find it again with retrieve_tools."

    def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """The result of a listed tool, whosever it is."""
        if (own := self._own.by_name.get(name)) is not None:
            return own.call(arguments, msgspec.structs.replace(caller, tool_list=self))
        record = self.records().get(name)
        if record is None and not self._is_quarantined(name):
            # It left the list after the client's transport had looked.
            raise ToolNotFoundError(f"The tool '{name}' is no longer in your list.", hint=self.hint(name))
        request = build_request(name if record is None else str(record.key), arguments, caller)
        return self._calls.call(request, within=self._visible, record=record)

    def _is_quarantined(self, name: str) -> bool:
        """Whether an unlisted name waits for the user: clients may call what they were shown before."""
        return isinstance(self._visible.find_refusal(name), QuarantinedError)
