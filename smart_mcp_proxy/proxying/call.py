"""The answers to call: what the tool, resource or prompt gave, in the form of a tool's result."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smart_mcp_proxy.proxying.metadata import META_PREFIX, proxy_meta
from smart_mcp_proxy.proxying.operation import Operation
from smart_mcp_proxy.proxying.query import build_embedded_result, proxy_uri

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_blocks = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_JSON = msgspec.Raw(b'"application/json"')
_EMPTY = msgspec.Raw(b"{}")


def tool_result(raw: bytes, operation: Operation) -> bytes:
    """A tool's result with our metadata on each content block; all else is as it came."""
    members = _members.decode(raw)
    try:
        blocks = _blocks.decode(members.get("content", b"[]"))
    except msgspec.ValidationError:  # not what the protocol calls content: nothing to write on
        return raw
    for block in blocks:
        block["_meta"] = _merge_meta(block.get("_meta", _EMPTY), _call_meta(operation))
    members["content"] = _raw(blocks)
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
            resource["_meta"] = _merge_meta(resource.get("_meta", _EMPTY), proxy_meta(contentType=own_type))
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


def _merge_meta(theirs: msgspec.Raw, ours: Mapping[str, Any]) -> msgspec.Raw:
    """Both; what a server says under our prefix is not taken for ours."""
    try:
        members = _members.decode(theirs)
    except msgspec.ValidationError:  # some servers send null
        members = {}
    kept = {key: value for key, value in members.items() if not key.startswith(META_PREFIX)}
    return _raw({**kept, **ours})


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
