"""A tool's result as a script gets it: the value that it means, without MCP's wrapping."""

import msgspec

from smart_mcp_proxy.gateway.sandbox.messages import Reply, ReplyError

_MESSAGE_CHARS = 2_000


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Result(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")
    structuredContent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815  (MCP's spelling)
    isError: bool | None = False  # noqa: N815  (MCP's spelling)


_result = msgspec.json.Decoder(_Result)
_blocks = msgspec.json.Decoder(list[_Block])


def build_reply(id: int, raw: bytes) -> tuple[Reply, str]:
    """Return the reply to an answered call, and its outcome.

    Structured content, else text, else the content blocks.

    Args:
        id: Of the call.
        raw: The tool's result.
    """
    result = _result.decode(raw)
    text = _join_text_blocks(result.content)
    if result.isError:
        return Reply(id, error=ReplyError("tool_error", (text or "The tool failed.")[:_MESSAGE_CHARS])), "tool_error"
    if result.structuredContent is not msgspec.UNSET and bytes(result.structuredContent) != b"null":
        return Reply(id, value=result.structuredContent), "ok"
    if text is not None:
        return Reply(id, text=text), "ok"
    return Reply(id, value=result.content), "ok"


def _join_text_blocks(content: msgspec.Raw) -> str | None:
    """The text, where there is nothing but text."""
    try:
        blocks = _blocks.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return "\n".join(block.text for block in blocks) if all(block.type == "text" for block in blocks) else None
