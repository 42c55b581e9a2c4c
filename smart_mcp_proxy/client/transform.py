"""From the answers of a `proxy` tool back to the protocol's own types."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, get_args

import mcp_types
from fastmcp.client.client import CallToolResult
from pydantic import TypeAdapter

from smart_mcp_proxy.proxying.failures import InvalidAnswerError
from smart_mcp_proxy.proxying.metadata import META_PREFIX, ProxyResponseInfo

T = TypeVar("T")
Contents = mcp_types.TextResourceContents | mcp_types.BlobResourceContents
Answer = mcp_types.CallToolResult | CallToolResult | Sequence[mcp_types.ContentBlock] | mcp_types.ContentBlock
"""A tool's result in any form that clients hold it in: whole, its blocks, or one of these."""

_JSON_TYPE = "application/json"
_TYPES: dict[str, Any] = {
    "Tool": mcp_types.Tool,
    "Resource": mcp_types.Resource,
    "ResourceTemplate": mcp_types.ResourceTemplate,
    "Prompt": mcp_types.Prompt,
    "GetPromptResult": mcp_types.GetPromptResult,
    "CallToolResult": mcp_types.CallToolResult,
}


def tool_result_as_prompt_result(tool_result: Answer) -> mcp_types.GetPromptResult | None:
    """The prompt's messages in an answer to call a prompt; None if it is another answer.

    Raises:
        pydantic.ValidationError: It says that it holds messages, and does not.
    """
    for block in _blocks(tool_result):
        found = get_embedded_resource_python_object(block)
        if found is not None and ProxyResponseInfo.from_content(block).proxy_type == "prompt":
            prompt: mcp_types.GetPromptResult | None
            prompt = deserialize_embedded_resource_python_object(mcp_types.GetPromptResult, *found[:2])
            return prompt
    return None


def tool_result_as_resource_result(tool_result: Answer) -> list[Contents]:
    """Contents in an answer to call a resource, each with its MIME type; empty for others."""
    return [
        _with_own_type(block.resource)
        for block in _blocks(tool_result)
        if isinstance(block, mcp_types.EmbeddedResource)
        and ProxyResponseInfo.from_content(block).proxy_type == "resource"
    ]


def get_embedded_resource_python_object(embedded_resource: Any) -> tuple[str, str, bool] | None:
    """Type of the JSON in an embedded resource, the JSON, and whether it is an array of these.

    Returns:
        Type name, JSON text and `many`; None if it does not say what it holds.
    """
    if not isinstance(embedded_resource, mcp_types.EmbeddedResource):
        return None
    resource, info = embedded_resource.resource, ProxyResponseInfo.from_content(embedded_resource)
    if (
        info.python_type is None
        or not isinstance(resource, mcp_types.TextResourceContents)
        or resource.mime_type != _JSON_TYPE
    ):
        return None
    return info.python_type, resource.text, bool(info.many)


def deserialize_embedded_resource_python_object(
    target_type: Any, python_type: str, json_data: str, many: bool = False
) -> Any:
    """Build the object, or with `many` the list, from JSON; None if it names another type.

    Args:
        target_type: A model of the protocol, or a union of some.
        python_type: What the JSON says to hold: simple or qualified names, several joined by `|`.
        json_data: JSON text.
        many: Whether it is an array.

    Raises:
        pydantic.ValidationError: It is not what it says.

    Source: docs/design/proxy-extension.md#type-names
    """
    targets = {each.__name__ for each in get_args(target_type) or (target_type,)}
    if not _names(python_type) <= targets:
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(list[target_type] if many else target_type)
    # By name too: implementations in Python may write attributes as they call them.
    return adapter.validate_json(json_data, by_alias=True, by_name=True)


def get_proxy_query_result(result: Answer) -> Any:
    """Definitions in an answer to list (a list) or info (one); empty without content.

    Raises:
        InvalidAnswerError: It is another answer.
        pydantic.ValidationError: It is not what it says.
    """
    blocks = _blocks(result)
    if not blocks:
        return []
    found = get_embedded_resource_python_object(blocks[0])
    known = [_TYPES[name] for name in sorted(_names(found[0])) if name in _TYPES] if found else []
    if len(blocks) != 1 or found is None or not known:
        raise InvalidAnswerError(
            "This is not a proxy tool's answer to list or info.",
            hint="Pass the answer of proxy() with action list or info.",
            delivery="executed",
        )
    target = known[0]
    for each in known[1:]:
        target = target | each
    return deserialize_embedded_resource_python_object(target, *found)


def _names(python_type: str) -> set[str]:
    """`mcp.types.Resource | mcp.types.ResourceTemplate` -> Resource and ResourceTemplate."""
    return {name.strip().rpartition(".")[2] for name in python_type.split("|")}


def _blocks(answer: Any) -> list[mcp_types.ContentBlock]:
    found: Any = getattr(answer, "content", answer) if not isinstance(answer, list) else answer
    return list(found) if isinstance(found, Iterable) and not hasattr(found, "type") else [found]


def _with_own_type(resource: Contents) -> Contents:
    """The contents with the MIME type that they have on their server, and without our words about it."""
    info = ProxyResponseInfo.from_content(resource)
    meta = {key: value for key, value in (resource.meta or {}).items() if not key.startswith(META_PREFIX)}
    changes: dict[str, Any] = {"meta": meta or None}
    if info.content_type is not None:
        changes["mime_type"] = info.content_type
    return resource.model_copy(update=changes)
