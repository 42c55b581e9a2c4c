"""Carries out requests to a `proxy` tool: decides what to ask of whom, and shapes the answer.

Clients of the handshake era look for its metadata in annotations. Source: docs/design/proxy-extension.md#metadata
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from smart_mcp_proxy.errors import ProxyError, RefusedError, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.proxying.metadata import FACTS, META_PREFIX, ProxyType, proxy_meta
from smart_mcp_proxy.proxying.operation import Batch, Operation, parse_operation
from smart_mcp_proxy.proxying.query import Listed, build_embedded_result, info_result, list_result, proxy_uri

OFF_LOOP_BYTES = 65_536
"""Reading and writing a longer text takes milliseconds; it is left to a thread."""
BATCH_BYTES = 4 << 20
"""When the answers of a batch have grown to this, the rest of it is not begun."""
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_blocks = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_JSON = msgspec.Raw(b'"application/json"')

_QUALIFIED: Final = {"Resource | ResourceTemplate": "mcp.types.Resource | mcp.types.ResourceTemplate"}
"""The union as Python writes it, which Magg 1.2.1 compares with to the letter."""


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
            result = await perform(parse_operation(each, is_in_batch=True), source, era)
        except ProxyError as error:
            result = _failure(error)
            failed += 1
        results.append(result)
        size += len(result)
    meta = proxy_meta(proxyAction="batch", pythonType="CallToolResult", many=True)
    return build_embedded_result("proxy:batch", b"[" + b",".join(results) + b"]", meta, is_error=failed == len(results))


def _failure(error: ProxyError) -> bytes:
    value = {"error": error.to_dict()}
    text = msgspec.json.encode(value).decode()
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"content": content, "structuredContent": value, "isError": True})


def tool_result(raw: bytes, operation: Operation) -> bytes:
    """A tool's result with our metadata on each content block; all else is as it came."""
    ours = _call_meta(operation)
    return _edit_blocks(raw, lambda block: {**block, "_meta": _merge_meta(block.get("_meta"), ours)})


def _edit_blocks(raw: bytes, edit: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> bytes:
    members: dict[str, Any] = dict(_members.decode(raw))
    try:
        blocks = _blocks.decode(members.get("content", b"[]"))
    except msgspec.ValidationError:  # not what the protocol calls content: nothing to write on
        return raw
    members["content"] = [edit(block) for block in blocks]
    return msgspec.json.encode(members)


def resource_result(raw: bytes, operation: Operation) -> bytes:
    """A resource's contents as embedded resources; JSON text becomes compact JSON.

    Any other JSON value is left as it is: a text file that holds `123` is text.

    Args:
        raw: The result of `resources/read` as JSON text.
        operation: What was asked.
    """
    contents = _blocks.decode(_members.decode(raw).get("contents", b"[]"))
    blocks = []
    for resource in contents:
        own_type = _objectify(resource)
        if own_type is not None:
            resource["_meta"] = _merge_meta(resource.get("_meta"), proxy_meta(contentType=own_type))
        blocks.append({"type": "resource", "resource": resource, "_meta": _call_meta(operation)})
    return msgspec.json.encode({"content": blocks, "isError": False})


def prompt_result(raw: bytes, operation: Operation) -> bytes:
    """A prompt's messages as JSON inside one embedded resource.

    Args:
        raw: The result of `prompts/get` as JSON text.
        operation: What was asked.
    """
    members = dict(_members.decode(raw))
    members.pop("resultType", None)  # the answer to another request than the one that is answered now
    meta = _call_meta(operation) | proxy_meta(pythonType="GetPromptResult", many=False)
    return build_embedded_result(
        proxy_uri(operation), msgspec.json.format(msgspec.json.encode(members), indent=-1), meta
    )


def _objectify(resource: dict[str, msgspec.Raw]) -> str | None:
    """Make JSON of a text that holds it, and return its former MIME type; else None.

    Numbers and the order of members stay to the letter.

    Source: docs/design/proxy-extension.md#json-as-json
    """
    try:
        text = msgspec.json.decode(resource.get("text", b'""'), type=str)
        if not text.lstrip().startswith(("{", "[")):
            return None
        compact = msgspec.json.format(text, indent=-1)
        own_type = msgspec.json.decode(resource.get("mimeType", b"null"), type=str | None)
    except (msgspec.MsgspecError, RecursionError):
        return None
    resource["text"] = _raw(compact)
    resource["mimeType"] = _JSON
    return own_type


def _call_meta(operation: Operation) -> dict[str, Any]:
    return proxy_meta(proxyAction="call", proxyType=operation.type, proxyPath=operation.path)


def _merge_meta(theirs: msgspec.Raw | None, ours: Mapping[str, Any]) -> msgspec.Raw:
    """Both; what a server says under our prefix is not taken for ours."""
    kept = {key: value for key, value in _object(theirs).items() if not key.startswith(META_PREFIX)}
    return _raw({**kept, **ours})


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def annotate_result(raw: bytes) -> bytes:
    """The answer with the facts of each block's `_meta` among its annotations, too; all else is as it was.

    Args:
        raw: A tool's result as JSON text.
    """
    return _edit_blocks(raw, annotate_block)


def annotate_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same for one content block, whose members may be JSON text.

    Under our names a server's own annotations are not taken for ours; all others stay.
    """
    facts = _facts(block.get("_meta"))
    if not facts:
        return block
    if "pythonType" in facts:
        facts["pythonType"] = _QUALIFIED.get(facts["pythonType"], facts["pythonType"])
    theirs = {key: value for key, value in _object(block.get("annotations")).items() if key not in FACTS}
    changed = {**block, "annotations": {**theirs, **facts}}
    resource = _object(block.get("resource"))
    if own := _facts(resource.get("_meta")):
        changed["resource"] = {**resource, **own}
    return changed


def _facts(meta: Any) -> dict[str, Any]:
    """The facts that we state in `_meta`, by the draft's names."""
    ours = {key.removeprefix(META_PREFIX): value for key, value in _object(meta).items() if key.startswith(META_PREFIX)}
    return {key: _value(value) for key, value in ours.items() if key in FACTS}


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, msgspec.Raw):
        try:
            return _members.decode(value)
        except msgspec.ValidationError:  # some servers send null
            return {}
    return value if isinstance(value, Mapping) else {}


def _value(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
