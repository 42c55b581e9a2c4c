"""Repair of tool results that the protocol forbids: client libraries raise on them, naming no server."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.raw_result import RawResult, means_yes

_SHOWN_CHARS: Final = 40
_MEDIA: Final = ("image", "audio")
_IMAGES: Final[Mapping[str, str]] = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""Beginnings of pictures, as base64. Source: https://mimesniff.spec.whatwg.org/#matching-an-image-type-pattern"""
_TEXT: Final[dict[str, Any]] = {"type": "text", "text": ""}
_LINK: Final[dict[str, Any]] = {"type": "resource_link", "uri": "", "name": ""}
_TEXT_MEMBERS: Final = ("title", "description", "mimeType")


class _FaultError(Exception):
    """Fault that leaves nothing to be read, as the rest of a sentence."""


def repair_result(text: bytes, *, server: str, tool: str) -> bytes:
    """The same result as clients can read it.

    Args:
        text: The result, as its server wrote it.
        server: For messages.
        tool: Likewise.

    Raises:
        UpstreamError: A part of it cannot be read by anybody.
    """
    try:
        result = _result(msgspec.json.decode(text))
    except (_FaultError, msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamError(
            f"Server '{server}' answered a call of '{tool}' with a result that the protocol forbids: {exc}.",
            hint="The call was carried out, and its outcome is lost. The server is at fault: update it, or report it "
            "to its makers.",
            delivery="executed",
            code="upstream_protocol",
        ) from exc
    fixed = msgspec.json.encode(result)
    if RawResult(fixed).is_sound:
        return fixed
    return msgspec.json.encode({"content": [_text_block(result["content"])]})  # a fault that is not known here


def _result(written: Any) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise _FaultError(f"it is {_describe_kind(written)} instead of an object")
    result = {name: value for name, value in written.items() if value is not None or name == "structuredContent"}
    content, structured = result.get("content"), result.get("structuredContent")
    if content is None:
        content = [] if structured is None else [_text_block(structured)]
    elif isinstance(content, str) or (isinstance(content, dict) and ("type" in content or "text" in content)):
        content = [content]
    elif isinstance(content, dict):
        content = [_text_block(content)]
    elif not isinstance(content, list):
        raise _FaultError(f"its content is {_describe_kind(content)} instead of a list")
    result["content"] = _blocks(content)
    if "isError" in result:
        result["isError"] = means_yes(msgspec.json.encode(result["isError"]))
    if "_meta" in result:
        kept = _keep_readable(result.pop("_meta"), lambda each: {"_meta": each})
        result |= {"_meta": kept} if kept else {}
    return result


def _keep_readable(item: Any, within: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The members of an item that clients can read, each looked at in a result of its own."""
    if not isinstance(item, dict):
        return {}
    return {name: value for name, value in item.items() if _fits(**within({name: value}))}


def _blocks(content: list[Any]) -> list[dict[str, Any]]:
    """The blocks as clients can read them; in the place of one that nobody can a text that says so.

    Raises:
        _FaultError: There is none that can be read.
    """
    blocks: list[dict[str, Any]] = []
    fault, is_readable = None, False
    for place, written in enumerate(content):
        try:
            block = _block(written, f"content[{place}]")
        except _FaultError as exc:
            blocks.append(_text_block(f"[Left out by the gateway, because the protocol forbids it: {exc}.]"))
            fault = fault or exc
        else:
            blocks += [] if block is None else [block]
            is_readable = is_readable or block is not None
    if fault is not None and not is_readable:
        raise fault
    return blocks


def _block(block: Any, place: str) -> dict[str, Any] | None:
    """A content block as clients can read it; None for one that says nothing."""
    if block is None:
        return None
    if isinstance(block, str):
        return _text_block(block)
    if not isinstance(block, dict):
        raise _FaultError(f"its {place} is {_describe_kind(block)} instead of an object")
    block = {name: value for name, value in block.items() if value is not None or name == "text"}
    kind = block.get("type", "text")
    if isinstance(block.get("_meta", {}), dict) is False:
        del block["_meta"]
    if "annotations" in block:
        kept = _keep_readable(block.pop("annotations"), lambda each: {"content": [_TEXT | {"annotations": each}]})
        block |= {"annotations": kept} if kept else {}
    if kind in _MEDIA:
        return _media(block, place)
    if kind == "resource_link":
        return _link(block, place)
    if kind == "resource":
        return _repair_embedded(block, place)
    return _text(block, kind, place)


def _text(block: dict[str, Any], kind: Any, place: str) -> dict[str, Any]:
    text = block.get("text")
    if kind != "text" and not isinstance(text, str):
        raise _FaultError(f"its {place} is of the unknown kind {str(kind)[:_SHOWN_CHARS]!r}")
    if text is None:
        raise _FaultError(f"the text of its {place} is {'null' if 'text' in block else 'missing'}")
    return {**block, "type": "text", "text": text if isinstance(text, str) else _encode_json(text)}


def _media(block: dict[str, Any], place: str) -> dict[str, Any]:
    kind, data = block["type"], block.get("data")
    if not isinstance(data, str):
        raise _FaultError(f"its {place} is {kind} without data")
    mime = block.get("mimeType")
    if data.startswith("data:") and ";base64," in data:
        written, _, data = data.removeprefix("data:").partition(";base64,")
        mime = mime or written
    if not isinstance(mime, str):
        mime = next((each for start, each in _IMAGES.items() if kind == "image" and data.startswith(start)), None)
    if mime is None:
        raise _FaultError(f"its {place} is {kind} without a mimeType")
    return {**block, "data": data, "mimeType": mime}


def _link(block: dict[str, Any], place: str) -> dict[str, Any]:
    uri = block.get("uri")
    if not isinstance(uri, str):
        raise _FaultError(f"its {place} is a resource link without a uri")
    kept = _with_texts(block)
    size, icons = kept.pop("size", None), kept.pop("icons", None)
    if isinstance(size, int | float) and not isinstance(size, bool):
        kept["size"] = round(size)
    if isinstance(icons, list) and (icons := [icon for icon in icons if _fits(content=[_LINK | {"icons": [icon]}])]):
        kept["icons"] = icons
    name = block.get("name")
    return {**kept, "name": name if isinstance(name, str) else uri}


def _repair_embedded(block: dict[str, Any], place: str) -> dict[str, Any]:
    resource = block.get("resource")
    if not isinstance(resource, dict):
        raise _FaultError(f"its {place} is a resource without contents")
    resource = {name: value for name, value in _with_texts(resource).items() if value is not None}
    text, blob = resource.get("text"), resource.get("blob")
    if not isinstance(text, str) and not isinstance(blob, str):
        raise _FaultError(f"the resource of its {place} has neither text nor a blob")
    if not isinstance(resource.get("_meta", {}), dict):
        del resource["_meta"]
    if isinstance(resource.get("uri"), str):
        return {**block, "resource": resource}
    if not isinstance(text, str):
        raise _FaultError(f"the resource of its {place} has no uri")
    return _text_block(text)


def _with_texts(item: Mapping[str, Any]) -> dict[str, Any]:
    """The item without members that should be text and are not."""
    return {name: value for name, value in item.items() if name not in _TEXT_MEMBERS or isinstance(value, str)}


def _fits(**members: Any) -> bool:
    """Whether clients can read a result with these members."""
    return RawResult(msgspec.json.encode({"content": [], **members})).is_sound


def _text_block(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else _encode_json(value)}


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _describe_kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "a boolean", str: "text", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "an object")
