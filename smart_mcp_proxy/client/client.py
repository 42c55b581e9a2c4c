"""`ProxyClient`: FastMCP's client with access through a server's `proxy` tool."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from fastmcp import Client
from fastmcp.client.client import CallToolResult
from fastmcp.client.progress import ProgressHandler
from fastmcp.exceptions import ToolError
from mcp import MCPError
from mcp.client.caching import CacheMode
from pydantic import AnyUrl

from smart_mcp_proxy.client.transform import (
    Contents,
    get_proxy_query_result,
    tool_result_as_prompt_result,
    tool_result_as_resource_result,
)
from smart_mcp_proxy.proxying.failures import InvalidAnswerError, InvalidOperationError, MissingProxyToolError
from smart_mcp_proxy.proxying.metadata import ProxyResponseInfo, proxy_meta
from smart_mcp_proxy.proxying.operation import Batch, Operation, parse_operation

PROXY_TOOL_NAME = "proxy"
"""Source: docs/design/proxy-extension.md#the-tools-name"""
MAX_PAGES = 250
"""Pages of one list before a server is taken not to end, as FastMCP's client has it."""
_LISTED = {"tool": "Tool", "resource": "Resource | ResourceTemplate", "prompt": "Prompt"}

Timeout = datetime.timedelta | float | int | None


class ProxyResult(list[mcp_types.ContentBlock], CallToolResult):
    """The content blocks of a tool's result, with the attributes of FastMCP's `CallToolResult`.

    Attributes:
        content: The same blocks.
        structured_content: As the tool gave it.
        data: The value in it, taken out where FastMCP had to wrap it.
        meta: The result's `_meta`.
        is_error: Whether the tool failed.
    """

    def __init__(self, result: mcp_types.CallToolResult) -> None:
        list.__init__(self, result.content)
        structured = result.structured_content
        wrapping = (result.meta or {}).get("fastmcp")
        is_wrapped = isinstance(wrapping, dict) and wrapping.get("wrap_result") is True
        data: Any = structured.get("result") if is_wrapped and isinstance(structured, dict) else structured
        CallToolResult.__init__(self, result.content, structured, result.meta, data, result.is_error)

    def raise_if_error(self) -> None:
        """Passes unless the tool failed.

        Raises:
            ToolError: It failed; the gateway's errors are told as sentences, all others as they came.
        """
        if not self.is_error:
            return
        error = (self.structured_content or {}).get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            raise ToolError(f"{error['message']} {error.get('hint', '')}".rstrip())
        texts = [block.text for block in self if isinstance(block, mcp_types.TextContent)]
        raise ToolError("\n".join(texts) or "The tool failed and does not say why.")


class ProxyClient(Client[Any]):
    """A client of a server that has a `proxy` tool.

    Args:
        *args: As for FastMCP's `Client`: an address, a server, a transport.
        transparent: Whether the standard methods reach through the `proxy` tool.
        proxy_tool_name: Its name; None for `proxy`. `discover_proxy()` finds one of another name.
        **kwds: As for FastMCP's `Client`.
    """

    def __init__(self, *args: Any, transparent: bool = False, proxy_tool_name: str | None = None, **kwds: Any) -> None:
        super().__init__(*args, **kwds)
        self.is_transparent = transparent
        self.proxy_tool_name = proxy_tool_name or PROXY_TOOL_NAME

    async def proxy(  # noqa: PLR0913  (the parameters of the tool, by their names)
        self,
        proxy_type: str,
        action: str,
        path: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout: Timeout = None,
        progress_handler: ProgressHandler | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        raise_on_error: bool = True,
        meta: dict[str, Any] | None = None,
    ) -> ProxyResult:
        """The `proxy` tool's own answer: for list and info one embedded resource, for call what was called.

        Args:
            proxy_type: tool, resource or prompt.
            action: list, info or call.
            path: Name or URI, for info and call.
            arguments: For call.
            timeout: Seconds to wait for the answer.
            progress_handler: Hears of progress.
            filter: For list: prefix, server, tags.
            limit: For list: entries per page.
            cursor: For list: where the page begins; `next_cursor` of the page before.
            raise_on_error: Whether an answer that tells of a failure is raised.
            meta: The request's `_meta`.

        Raises:
            InvalidOperationError: The parameters do not go together; nothing was sent.
            MissingProxyToolError: The server has no such tool.
            ToolError: The tool failed.
        """
        given = {
            "action": action,
            "type": proxy_type,
            "path": path,
            "args": None if arguments is None else dict(arguments),
            "filter": None if filter is None else dict(filter),
            "limit": limit,
            "cursor": cursor,
        }
        request = parse_operation(given)
        sent = {name: value for name, value in given.items() if value is not None}
        return await self._send(request, sent, timeout, progress_handler, meta=meta, raise_on_error=raise_on_error)

    async def batch(
        self,
        operations: Sequence[Mapping[str, Any]],
        timeout: Timeout = None,
        progress_handler: ProgressHandler | None = None,
    ) -> list[ProxyResult]:
        """The answer to each operation, in their order; one that failed says so in `is_error`.

        Args:
            operations: Each with action, type and what else it takes.
            timeout: Seconds to wait for all of them.
            progress_handler: Hears of progress.

        Raises:
            InvalidOperationError: There are none, or too many.
            ToolError: The server's `proxy` tool knows no batches.
        """
        sent = {"action": "batch", "operations": [dict(each) for each in operations]}
        answer = await self._send(parse_operation(sent), sent, timeout, progress_handler, raise_on_error=False)
        try:
            results: list[mcp_types.CallToolResult] = get_proxy_query_result(answer)
        except ValueError:
            answer.raise_if_error()
            raise
        return [ProxyResult(each) for each in results]

    async def discover_proxy(self) -> str | None:
        """The name of the server's `proxy` tool, which is used from then on; None if it has none.

        Looked for by name, then by description, and believed when it answers a list.

        Source: docs/design/proxy-extension.md#discovery
        """
        tools = await super().list_tools()
        named = [tool.name for tool in tools if tool.name == self.proxy_tool_name]
        described = [
            tool.name
            for tool in tools
            if {"action", "type", "path"} <= set(tool.input_schema.get("properties", ()))
            and any(word in f"{tool.name} {tool.description}".lower() for word in ("proxy", "prompt"))
        ]
        for name in dict.fromkeys((*named, *described)):
            before, self.proxy_tool_name = self.proxy_tool_name, name
            if await self._answers():
                return name
            self.proxy_tool_name = before
        return None

    async def list_tools(self, max_pages: int = MAX_PAGES, *, cache_mode: CacheMode = "use") -> list[mcp_types.Tool]:
        """All tools; behind the `proxy` tool in transparent mode."""
        if not self.is_transparent:
            return await super().list_tools(max_pages, cache_mode=cache_mode)
        return await self._list("tool", max_pages)

    async def list_resources(  # type: ignore[override]  # the extension lists templates here as well
        self, max_pages: int = MAX_PAGES
    ) -> list[mcp_types.Resource | mcp_types.ResourceTemplate]:
        """All resources; in transparent mode those behind the `proxy` tool, and the resource templates."""
        if not self.is_transparent:
            return [*await super().list_resources(max_pages)]
        return await self._list("resource", max_pages)

    async def list_resource_templates(self, max_pages: int = MAX_PAGES) -> list[mcp_types.ResourceTemplate]:
        """All resource templates; behind the `proxy` tool in transparent mode."""
        if not self.is_transparent:
            return await super().list_resource_templates(max_pages)
        listed = await self._list("resource", max_pages)
        return [each for each in listed if isinstance(each, mcp_types.ResourceTemplate)]

    async def list_prompts(self, max_pages: int = MAX_PAGES) -> list[mcp_types.Prompt]:
        """All prompts; behind the `proxy` tool in transparent mode."""
        if not self.is_transparent:
            return await super().list_prompts(max_pages)
        return await self._list("prompt", max_pages)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        version: str | None = None,
        timeout: Timeout = None,
        progress_handler: ProgressHandler | None = None,
        raise_on_error: bool = True,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """The tool's result; in transparent mode a list of its content blocks, see `ProxyResult`.

        Raises:
            ToolError: The tool failed.
        """
        if not self.is_transparent:
            return await super().call_tool(
                name,
                arguments,
                version=version,
                timeout=timeout,
                progress_handler=progress_handler,
                raise_on_error=raise_on_error,
                meta=meta,
            )
        _refuse_version(version)
        return await self.proxy(
            "tool", "call", name, arguments, timeout, progress_handler, raise_on_error=raise_on_error, meta=meta
        )

    async def read_resource(
        self, uri: AnyUrl | str, *, version: str | None = None, meta: dict[str, Any] | None = None
    ) -> list[Contents]:
        """The resource's contents; behind the `proxy` tool in transparent mode."""
        if not self.is_transparent:
            return await super().read_resource(uri, version=version, meta=meta)
        _refuse_version(version)
        return tool_result_as_resource_result(await self.proxy("resource", "call", str(uri), meta=meta))

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        version: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> mcp_types.GetPromptResult:
        """The prompt's messages; behind the `proxy` tool in transparent mode."""
        if not self.is_transparent:
            return await super().get_prompt(name, arguments, version=version, meta=meta)
        _refuse_version(version)
        found = tool_result_as_prompt_result(await self.proxy("prompt", "call", name, arguments, meta=meta))
        if found is None:
            raise InvalidAnswerError(
                f"The server's {self.proxy_tool_name} answered with something that is no prompt.",
                hint=f"The server is at fault; proxy('prompt', 'call', {name!r}) returns its answer as it is.",
                delivery="executed",
            )
        return found

    async def _list(self, proxy_type: str, max_pages: int) -> list[Any]:
        listed: list[Any] = []
        cursor: str | None = None
        for _ in range(max_pages):
            page = await self.proxy(proxy_type, "list", cursor=cursor)
            listed += get_proxy_query_result(page)
            following = ProxyResponseInfo.from_content(page[0]).next_cursor if page else None
            if following is None or following == cursor:
                return listed
            cursor = following
        raise InvalidAnswerError(
            f"The server's list goes on after {max_pages} pages.", hint="Pass a higher max_pages if that is right."
        )

    async def _send(
        self,
        request: Operation | Batch,
        sent: dict[str, Any],
        timeout: Timeout,
        progress_handler: ProgressHandler | None,
        *,
        raise_on_error: bool,
        meta: dict[str, Any] | None = None,
    ) -> ProxyResult:
        try:
            result = await self.call_tool_mcp(
                self.proxy_tool_name, sent, progress_handler=progress_handler, timeout=timeout, meta=meta
            )
        except MCPError as exc:
            if exc.error.code in (mcp_types.INVALID_PARAMS, mcp_types.METHOD_NOT_FOUND):
                await self._require_tool(exc)
            raise
        answer = ProxyResult(result)
        if answer.is_error and answer.structured_content is None:
            await self._require_tool()
        if raise_on_error:
            answer.raise_if_error()
        if isinstance(request, Operation) and not answer.is_error:
            for block in answer:
                _complete(block, request)
        return answer

    async def _require_tool(self, cause: Exception | None = None) -> None:
        """Pass if the server lists the tool; asked for only after a failure that may come from its absence."""
        if self.proxy_tool_name not in [tool.name for tool in await super().list_tools()]:
            raise MissingProxyToolError(
                f"The server has no tool named {self.proxy_tool_name!r}.",
                hint="discover_proxy() finds one of another name; without one, connect without transparent=True.",
            ) from cause

    async def _answers(self) -> bool:
        """Whether the tool answers as a `proxy` tool does."""
        try:
            answer = await self.proxy("prompt", "list", raise_on_error=False)
            return not answer.is_error and isinstance(get_proxy_query_result(answer), list)
        except (MCPError, ValueError):
            return False


def _complete(block: mcp_types.ContentBlock, request: Operation) -> None:
    """Writes on a block what was asked for, where it does not say so itself.

    Servers of the older form say it in annotations, and today's models drop what they do not know there.
    """
    info, is_list = ProxyResponseInfo.from_content(block), request.action == "list"
    called = "GetPromptResult" if request.type == "prompt" else ""
    python_type = called if request.action == "call" else _LISTED[request.type]
    told = proxy_meta(
        proxyAction=info.proxy_action or request.action,
        proxyType=info.proxy_type or request.type,
        proxyPath=info.proxy_path or request.path or None,
        pythonType=info.python_type or python_type or None,
        many=info.many if info.many is not None or request.action == "call" else is_list,
    )
    block.meta = {**told, **(block.meta or {})}


def _refuse_version(version: str | None) -> None:
    if version is not None:
        raise InvalidOperationError(
            f"A proxy tool knows no versions, and {version[:80]!r} is asked for.",
            hint="Leave version out, or use transparent=False.",
        )
