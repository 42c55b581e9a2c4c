"""Servers' answers about resources and prompts, in the form of a tool's output."""

from collections.abc import Callable
from typing import Any

import msgspec

from smart_mcp_proxy.gateway.results.cleaning import fence

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def present_resource(raw: bytes, uri_of: Callable[[str], str], *, is_fenced: bool) -> bytes:
    """The result of `resources/read` with URIs that lead to the gateway, fenced as tools' output is.

    Args:
        raw: JSON text, cleaned already where the settings ask for it.
        uri_of: The gateway's URI for one of the server's.
        is_fenced: Whether text stands between two lines that mark it as untrusted.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    members = _members.decode(raw)
    parts: list[dict[str, Any]] = list(_parts.decode(members.get("contents", b"[]")))
    for part in parts:
        if isinstance(uri := msgspec.json.decode(part.get("uri", b"null")), str):
            part["uri"] = uri_of(uri)
    contents = (
        [_fence_content_block({"type": "resource", "resource": part})["resource"] for part in parts]
        if is_fenced
        else parts
    )
    return msgspec.json.encode({**members, "contents": contents})


def present_prompt(raw: bytes, *, is_fenced: bool) -> bytes:
    """The result of `prompts/get`, fenced as tools' output is.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    if not is_fenced:
        return raw
    members = _members.decode(raw)
    messages: list[dict[str, Any]] = list(_parts.decode(members.get("messages", b"[]")))
    for message in messages:
        message["content"] = _fence_content_block(message.get("content", {}))
    return msgspec.json.encode({**members, "messages": messages})


def _fence_content_block(block: Any) -> dict[str, msgspec.Raw]:
    """A content block with its text fenced."""
    [found] = _parts.decode(_members.decode(fence(msgspec.json.encode({"content": [block]})))["content"])
    return found
