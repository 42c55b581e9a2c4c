"""Carries out requests to a `proxy` tool: decides what to ask of whom, and shapes the answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from smart_mcp_proxy.errors import ProxyError, RefusedError, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.proxying.annotations import annotate_result
from smart_mcp_proxy.proxying.call import prompt_result, resource_result, tool_result
from smart_mcp_proxy.proxying.failures import InvalidOperationError
from smart_mcp_proxy.proxying.metadata import ProxyType, proxy_meta
from smart_mcp_proxy.proxying.operation import Batch, Operation, parse_operation
from smart_mcp_proxy.proxying.query import Listed, build_embedded_result, info_result, list_result
from smart_mcp_proxy.proxying.spellings import abbreviate_value

OFF_LOOP_BYTES = 65_536
"""Reading and writing a longer text takes milliseconds; it is left to a thread."""
BATCH_BYTES = 4 << 20
"""When the answers of a batch have grown to this, the rest of it is not begun."""


class Source(Protocol):
    """Access behind a `proxy` tool for one caller."""

    async def list_definitions(self, type: ProxyType) -> Sequence[Listed]:
        """Every definition of a type; resource templates are among the resources."""

    async def find(self, type: ProxyType, path: str) -> Listed:
        """The definition with this name or URI.

        Raises:
            RequestError: There is none.
        """

    async def call_tool(self, path: str, args: Mapping[str, Any]) -> bytes:
        """The result of `tools/call` as JSON text; a tool's own failure is a result."""

    async def read_resource(self, path: str) -> bytes:
        """The result of `resources/read` as JSON text."""

    async def get_prompt(self, path: str, args: Mapping[str, str]) -> bytes:
        """The result of `prompts/get` as JSON text."""


async def perform(request: Operation | Batch, source: Source, era: Era = "modern") -> bytes:
    """The answer as JSON text of a tool's result.

    Args:
        request: What was asked.
        source: What there is.
        era: Of the client; one of the handshake era finds the metadata in annotations, too.

    Raises:
        ProxyError: What was asked cannot be had. In a batch only the operation concerned says so.
    """
    answer = await (_perform_batch(request, source, era) if isinstance(request, Batch) else _perform(request, source))
    return answer if era == "modern" else await _shape_answer(answer, annotate_result)


async def _perform(request: Operation, source: Source) -> bytes:
    if request.action == "list":
        return await asyncio.to_thread(list_result, request, await source.list_definitions(request.type))
    if request.action == "info":
        return info_result(request, await source.find(request.type, request.path))
    return await _call(request, source)


async def _call(request: Operation, source: Source) -> bytes:
    shape: Callable[[bytes, Operation], bytes]
    try:
        if request.type == "tool":
            shape, raw = tool_result, await source.call_tool(request.path, request.args)
        elif request.type == "resource":
            shape, raw = resource_result, await source.read_resource(request.path)
        else:
            shape, raw = prompt_result, await source.get_prompt(request.path, _texts(request.args))
        return await _shape_answer(raw, lambda raw: shape(raw, request))
    except msgspec.MsgspecError as exc:
        raise UpstreamError(
            f"The server answered for {request.type} {request.path[:200]!r} with something that is no such result.",
            hint="The server is at fault.",
            delivery="executed",
        ) from exc


async def _shape_answer(raw: bytes, shape: Callable[[bytes], bytes]) -> bytes:
    return await asyncio.to_thread(shape, raw) if len(raw) > OFF_LOOP_BYTES else shape(raw)


def _texts(args: Mapping[str, Any]) -> dict[str, str]:
    """Write a prompt's arguments as strings, others as JSON.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/server/prompts
    """
    return {name: arg if isinstance(arg, str) else msgspec.json.encode(arg).decode() for name, arg in args.items()}


async def _perform_batch(batch: Batch, source: Source, era: Era) -> bytes:
    """Answer each operation, one after the other: a later one may rest on an earlier one."""
    results: list[bytes] = []
    size = failed = 0
    for each in batch.operations:
        try:
            if size > BATCH_BYTES:
                raise RefusedError(
                    f"The answers before this one hold {size} bytes, so it was not begun.",
                    hint="Send it again in another batch.",
                    code="batch_full",
                )
            result = await perform(_parse_batch_entry(each), source, era)
        except ProxyError as error:
            result = _failure(error)
            failed += 1
        results.append(result)
        size += len(result)
    meta = proxy_meta(proxyAction="batch", pythonType="CallToolResult", many=True)
    return build_embedded_result("proxy:batch", b"[" + b",".join(results) + b"]", meta, is_error=failed == len(results))


def _parse_batch_entry(operation: Any) -> Operation | Batch:
    if not isinstance(operation, Mapping):
        raise InvalidOperationError(
            f"proxy: an operation is {abbreviate_value(operation)}.",
            hint='Send objects like {"action": "info", "type": "tool", "path": "..."}.',
            code="invalid_arguments",
        )
    return parse_operation(operation, is_in_batch=True)


def _failure(error: ProxyError) -> bytes:
    value = {"error": error.to_dict()}
    text = msgspec.json.encode(value).decode()
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"content": content, "structuredContent": value, "isError": True})
