"""Servers with a `proxy` tool: `ProxyFastMCP` wraps one, `ProxyMCP` is mixed into one."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import mcp_types
import msgspec
from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, NotFoundError, ToolError
from fastmcp.tools import Tool, ToolResult
from fastmcp.utilities.versions import dedupe_with_versions

from smart_mcp_proxy.client.transform import Answer, get_proxy_query_result
from smart_mcp_proxy.errors import ProxyError, RequestError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.fastmcp_server import edit_handshake_content
from smart_mcp_proxy.proxying.metadata import ProxyType
from smart_mcp_proxy.proxying.operation import DESCRIPTION, PARAMETERS, parse_operation, validate_operation
from smart_mcp_proxy.proxying.perform import annotate_block, perform
from smart_mcp_proxy.proxying.query import Listed, find_listed

RunProxy = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
"""Answers one call of the `proxy` tool, given its arguments."""


class ProxyMCP:
    """Mixin that offers a `proxy` tool for a FastMCP server, or for what holds one.

    class Aggregator(ProxyMCP, FastMCP):
        def __init__(self) -> None:
            super().__init__("aggregator")
            self._register_proxy_tool()

    Attributes:
        PROXY_TOOL_NAME: Under which the tool is listed.
    """

    PROXY_TOOL_NAME = "proxy"

    @property
    def proxied_server(self) -> FastMCP:
        """The server whose tools, resources and prompts the tool reaches, and that lists it.

        The object itself where it is one; else its attribute `mcp`, or that of its `server_manager`.
        """
        if isinstance(self, FastMCP):
            return self
        holder = self if hasattr(self, "mcp") else getattr(self, "server_manager", None)
        server = getattr(holder, "mcp", None)
        if not isinstance(server, FastMCP):
            raise TypeError(f"{type(self).__name__} has no FastMCP server: override proxied_server to return it.")
        return server

    @staticmethod
    def validate_operation(action: str, a_type: str) -> None:
        """Passes if a `proxy` tool knows this action and this type.

        Raises:
            InvalidOperationError: It does not; the hint says which ones.
        """
        validate_operation(action, a_type)

    @staticmethod
    def get_proxy_query_result(result: Answer) -> Any:
        """The definitions in an answer to list (a list of them) or info (one).

        Raises:
            InvalidAnswerError: It is another answer.
        """
        return get_proxy_query_result(result)

    def _register_proxy_tool(self, wrapper: Callable[[RunProxy], RunProxy] | None = None) -> None:
        """Adds the tool to the server.

        Args:
            wrapper: Put around what answers a call, for example to log it.
        """
        server, name = self.proxied_server, self.PROXY_TOOL_NAME

        async def run(arguments: Mapping[str, Any]) -> ToolResult:
            try:
                raw = await perform(parse_operation(arguments), _ServerSource(server, name))
            except ProxyError as error:
                raise ToolError(str(error)) from error
            return ToolResult.from_mcp_result(mcp_types.CallToolResult.model_validate_json(raw, by_name=False))

        tool = _ProxyTool(
            name=name,
            description=DESCRIPTION,
            parameters=dict(PARAMETERS),
            annotations=mcp_types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            answer=wrapper(run) if wrapper is not None else run,
        )
        server.add_tool(tool)
        edit_handshake_content(server, name, annotate_block)


class ProxyFastMCP(ProxyMCP, FastMCP):
    """FastMCP server that wraps one, which stays unchanged, and adds a `proxy` tool.

    Args:
        server: The server to wrap; what it gets later is there too.
        proxy_tool_name: Under which the tool is listed.
        **kwds: As for `FastMCP`; name, instructions, version and auth are those of the wrapped server unless given.
    """

    def __init__(self, server: FastMCP, proxy_tool_name: str | None = None, **kwds: Any) -> None:
        same = {name: getattr(server, name) for name in ("name", "instructions", "version", "auth")}
        super().__init__(**{**same, **kwds})
        self.wrapped = server
        if proxy_tool_name is not None:
            self.PROXY_TOOL_NAME = proxy_tool_name
        self.mount(server)
        self._register_proxy_tool()


class _ProxyTool(Tool):
    """The `proxy` tool as FastMCP knows tools."""

    answer: Any

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """The answer to one call."""
        result: ToolResult = await self.answer(arguments)
        return result


class _ServerSource:
    """Contents of a FastMCP server without its `proxy` tool, under its middleware and rights."""

    def __init__(self, server: FastMCP, own_name: str) -> None:
        self._server = server
        self._own_name = own_name

    async def list_definitions(self, type: ProxyType) -> Sequence[Listed]:
        server = self._server
        if type == "tool":
            tools = [each for each in await server.list_tools() if each.name != self._own_name]
            newest = dedupe_with_versions(tools, lambda each: each.name)
            return [Listed(each.name, _json(each.to_mcp_tool()), "Tool") for each in newest]
        if type == "prompt":
            prompts = dedupe_with_versions(await server.list_prompts(), lambda each: each.name)
            return [Listed(each.name, _json(each.to_mcp_prompt()), "Prompt") for each in prompts]
        resources = dedupe_with_versions(await server.list_resources(), lambda each: str(each.uri))
        templates = dedupe_with_versions(await server.list_resource_templates(), lambda each: each.uri_template)
        return [
            *(Listed(str(each.uri), _json(each.to_mcp_resource()), "Resource") for each in resources),
            *(Listed(each.uri_template, _json(each.to_mcp_template()), "ResourceTemplate") for each in templates),
        ]

    async def find(self, type: ProxyType, path: str) -> Listed:
        self._refuse_self(type, path)
        return find_listed(type, path, await self.list_definitions(type))

    async def call_tool(self, path: str, args: Mapping[str, Any]) -> bytes:
        self._refuse_self("tool", path)
        try:
            result = await self._server.call_tool(path, dict(args))
        except NotFoundError as exc:
            raise RequestError(f"{exc}.", hint="Action 'list' shows the tools.", code="tool_not_found") from exc
        except FastMCPError as exc:  # a tool's own failure is a result
            result = ToolResult(content=[mcp_types.TextContent(type="text", text=str(exc))], is_error=True)
        _refuse_input(result, path)
        meta = {} if result.meta is None else {"_meta": result.meta}
        return _json(
            mcp_types.CallToolResult(
                content=result.content,
                structured_content=result.structured_content,
                is_error=result.is_error,
                **meta,  # type: ignore[arg-type]  # the alias of a field whose name pydantic keeps for itself
            )
        )

    async def read_resource(self, path: str) -> bytes:
        try:
            result = await self._server.read_resource(path)
        except (FastMCPError, NotFoundError) as exc:
            raise _translate_error(exc, "resource") from exc
        _refuse_input(result, path)
        return _json(result.to_mcp_result(path))

    async def get_prompt(self, path: str, args: Mapping[str, str]) -> bytes:
        try:
            result = await self._server.render_prompt(path, dict(args))
        except (FastMCPError, NotFoundError) as exc:
            raise _translate_error(exc, "prompt") from exc
        _refuse_input(result, path)
        return _json(result.to_mcp_prompt_result())

    def _refuse_self(self, type: ProxyType, path: str) -> None:
        if type == "tool" and path == self._own_name:
            raise RequestError(f"Tool {path!r} cannot reach itself.", hint="Call it directly.", code="own_tool")


def _translate_error(exc: Exception, type: ProxyType) -> ProxyError:
    if isinstance(exc, NotFoundError):
        return RequestError(f"{exc}.", hint=f"Action 'list' shows the {type}s.", code=f"{type}_not_found")
    return UpstreamError(str(exc), hint=f"The {type} itself failed: see the server's log.", delivery="executed")


def _refuse_input(result: Any, path: str) -> None:
    if hasattr(result, "input_required"):
        raise RequestError(f"{path[:200]!r} asks its user for input.", hint="Use it directly: proxy cannot pass it on.")


def _json(model: Any) -> bytes:
    text: bytes = msgspec.json.encode(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    return text
