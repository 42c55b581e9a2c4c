"""HTTP headers of modern requests, which let others route them unread."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from smart_mcp_proxy.extensions import EXTENSIONS, TASKS
from smart_mcp_proxy.telemetry import fields, get_logger

_NAMING = {**NAME_BEARING_METHODS, **dict.fromkeys(EXTENSIONS[TASKS].methods, "taskId")}
"""The param that a header repeats, by method.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http;
https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md"""
_NAMES = 512
"""Whose headers are remembered; an agent calls the same tools again and again."""
_NAME_CHARS = 200
"""Most characters of a name whose headers are remembered; a longer one is the address of a resource perhaps."""
_NO_TOOLS = msgspec.Raw(b"[]")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])

_log = get_logger("upstream")


class HeaderRules:
    """The headers of each request to one server, as its tools' schemas demand them.

    Args:
        server: Configured name, for messages.

    Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._maps: dict[str, dict[tuple[str, ...], str]] = {}

    def headers(self, version: str, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        """The headers for one request; the parameters are known to be valid Unicode."""
        name = params.get(_NAMING.get(method, ""))
        if not isinstance(name, str):
            return {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        headers = (_known_naming if len(name) <= _NAME_CHARS else _build_request_headers)(version, method, name)
        rules = self._maps.get(name) if method == "tools/call" else None
        return headers if rules is None else {**headers, **mcp_param_headers(rules, params.get("arguments") or {})}

    def learn(self, listing: bytes) -> bytes:
        """Remembers which arguments of these listed tools must travel as headers. Callable from a thread.

        Args:
            listing: The result of `tools/list` as JSON text.

        Returns:
            The same without the tools that must not be used because what they demand is invalid.
        """
        try:
            result = _object.decode(listing)
            tools = _array.decode(result.get("tools", _NO_TOOLS))
        except (msgspec.DecodeError, RecursionError):
            return listing  # whoever reads the list will say so
        usable = [tool for tool in tools if self._is_usable(_read(tool))]
        return listing if len(usable) == len(tools) else msgspec.json.encode(result | {"tools": usable})

    def _is_usable(self, tool: object) -> bool:
        if not isinstance(tool, Mapping) or not isinstance(name := tool.get("name"), str):
            return True  # not ours to judge
        schema = tool.get("inputSchema")
        if reason := find_invalid_x_mcp_header(schema):
            self._maps.pop(name, None)
            _log.warning(
                "Server '%s': tool %r is left out, its x-mcp-header cannot be used: %s.",
                self._server,
                name,
                reason,
                extra=fields(server=self._server),
            )
            return False
        if rules := x_mcp_header_map(schema):
            self._maps[name] = rules
        else:
            self._maps.pop(name, None)
        return True


def _build_request_headers(version: str, method: str, name: str) -> Mapping[str, str]:
    return {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method, MCP_NAME_HEADER: encode_header_value(name)}


_known_naming = lru_cache(_NAMES)(_build_request_headers)


def _read(tool: msgspec.Raw) -> object:
    """Decode a single tool, None if it is malformed; the GIL is held for one tool at a time."""
    try:
        return msgspec.json.decode(tool)
    except (msgspec.DecodeError, RecursionError):
        return None
