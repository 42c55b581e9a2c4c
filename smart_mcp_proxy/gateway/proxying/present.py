"""What servers answer about resources and prompts, made fit to become the output of a tool of ours."""

from collections.abc import Callable
from typing import Any

import msgspec

from smart_mcp_proxy.gateway.cleaning import clean, fence, may_need_cleaning

__all__ = ["presented_prompt", "presented_resource"]

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def presented_resource(raw: bytes, uri_of: Callable[[str], str], *, is_cleaned: bool, is_fenced: bool) -> bytes:
    """The result of `resources/read` with URIs that lead to the gateway, cleaned and fenced as tools' output is.

    Args:
        raw: JSON text as the server sent it.
        uri_of: The gateway's URI for one of the server's.
        is_cleaned: Whether what steers a terminal or hides from the eye is taken out.
        is_fenced: Whether text stands between two lines that mark it as untrusted.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    members = _members.decode(_cleaned(raw) if is_cleaned else raw)
    parts: list[dict[str, Any]] = list(_parts.decode(members.get("contents", b"[]")))
    for part in parts:
        if isinstance(uri := msgspec.json.decode(part.get("uri", b"null")), str):
            part["uri"] = uri_of(uri)
    contents = [_fenced({"type": "resource", "resource": part})["resource"] for part in parts] if is_fenced else parts
    return msgspec.json.encode({**members, "contents": contents})


def presented_prompt(raw: bytes, *, is_cleaned: bool, is_fenced: bool) -> bytes:
    """The result of `prompts/get`, cleaned and fenced as tools' output is.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    raw = _cleaned(raw) if is_cleaned else raw
    if not is_fenced:
        return raw
    members = _members.decode(raw)
    messages: list[dict[str, Any]] = list(_parts.decode(members.get("messages", b"[]")))
    for message in messages:
        message["content"] = _fenced(message.get("content", {}))
    return msgspec.json.encode({**members, "messages": messages})


def _cleaned(raw: bytes) -> bytes:
    return clean(raw) if may_need_cleaning(raw) else raw


def _fenced(block: Any) -> dict[str, msgspec.Raw]:
    """A content block with its text fenced."""
    [found] = _parts.decode(_members.decode(fence(msgspec.json.encode({"content": [block]})))["content"])
    return found
