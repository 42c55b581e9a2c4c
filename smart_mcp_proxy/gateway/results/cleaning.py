"""Cleaning and fencing of everything that servers say."""

import asyncio
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
)

from smart_mcp_proxy.errors import ProxyError, RpcAnswer, UpstreamError
from smart_mcp_proxy.gateway.results.results import (
    OFF_LOOP_BYTES,
    decode_members,
    encode_raw,
    is_said,
    read_list,
    read_object,
    read_text,
)
from smart_mcp_proxy.invisible.characters import FLAG, INVISIBLE, is_at_home
from smart_mcp_proxy.models import OnProgress, ProgressReport
from smart_mcp_proxy.policy.inputs import redact_json
from smart_mcp_proxy.telemetry import redact

CLEANED_META_KEY = "dev.smartmcpproxy/cleaned"
FENCE_WORD = "untrusted-output"
FENCE_BYTES = 8
"""Bytes of the random part of a fence: nobody who writes a result can know it."""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
"""String literal of a JSON text."""
_UNWANTED = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|"  # CSI: colours, cursor, erasing
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|"  # OSC: title, links, clipboard
    r"\x1b[PX^_][^\x1b]*\x1b\\|"  # DCS, SOS, PM, APC: strings to the terminal
    # A carriage return ends a line only with a newline; half of a surrogate pair is no character.
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
"""Commands to a terminal and direction marks.

Source: https://ecma-international.org/publications-and-standards/standards/ecma-48/;
https://www.unicode.org/reports/tr9/"""
_UNSEEN = re.compile(f"{FLAG}|[{INVISIBLE}]+")
_TEXT = msgspec.Raw(b'"text"')
_LOOKS_LIKE_FENCE = re.compile(rf"<(?=\s*/?\s*{FENCE_WORD})", re.IGNORECASE)

_SAID_DATA: Final = frozenset({"rpc_data", "output"})
"""Members of an error's data whose text is from others."""
_SAID_NOTICE: Final = frozenset({"message", "data"})
"""Members that hold the text of a notification: of progress, and of a log message."""

_RESOURCE_NOT_FOUND: Final = -32002
"""Up to 2025-11-25; -32602 from 2026-07-28 on."""
_DEFINED: Final[Mapping[int, frozenset[str]]] = {
    MISSING_REQUIRED_CLIENT_CAPABILITY: frozenset({"requiredCapabilities"}),
    UNSUPPORTED_PROTOCOL_VERSION: frozenset({"supported", "requested"}),
    URL_ELICITATION_REQUIRED: frozenset({"elicitations"}),
    _RESOURCE_NOT_FOUND: frozenset({"uri"}),
    INVALID_PARAMS: frozenset({"uri"}),
}
"""By code, the members by which a client decides what to do.

Source: https://modelcontextprotocol.io/specification/2025-11-25/schema;
https://modelcontextprotocol.io/specification/2026-07-28/schema"""
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,127}")
"""A name, version or id."""
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,4096}")
"""URI; what it may not hold unencoded, blanks above all, makes free text of it. Source: RFC 3986"""

_Block = Mapping[str, msgspec.Raw]
ErrorT = TypeVar("ErrorT", bound=ProxyError)


def clean(raw: bytes) -> bytes:
    """Remove terminal commands, direction marks and invisible characters from a result.

    The same bytes if it has none.

    Every string is cleaned, keys and structured content included, and so are the strings of JSON that is sent as text:
    text and structured content that said the same still do. `_meta` says how many characters were taken out.

    Halves of surrogate pairs go where something else does: no reader of the rest could take them.

    Args:
        raw: A tool result's JSON text.
    """
    removed = [0]
    text = _clean_strings(raw.decode("utf-8", "replace"), removed)
    if not removed[0]:
        return raw
    members = decode_members(text.encode())
    note = {CLEANED_META_KEY: {"removed_chars": removed[0]}}
    return msgspec.json.encode({**members, "_meta": {**read_object(members.get("_meta")), **note}})


def clean_error(error: ErrorT, *, is_cleaned: bool, is_fenced: bool) -> ErrorT:
    """Clean and fence an error's text like a result's.

    Args:
        error: Left as it is; what is returned may be shown again and stays the same.
        is_cleaned: Whether it is cleaned.
        is_fenced: Whether the words of others are fenced.
    """
    if not (is_cleaned or is_fenced):
        return error
    shown, show = copy(error), partial(_clean_or_drop, is_cleaned=is_cleaned)
    head, said = show(error.message.removesuffix(error.said)), show(error.said)
    shown.message, shown.hint, shown.said = (
        head + (fence_text(said) if said and is_fenced else said),
        show(error.hint),
        "",
    )
    if error.data is not None:
        shown.data = {key: show(value) for key, value in error.data.items()}
        if is_fenced:
            code, said_data = shown.data.get("rpc_code", 0), _SAID_DATA & shown.data.keys()
            shown.data |= {key: _fence_error_data(code, shown.data[key]) for key in said_data}
    if isinstance(error, UpstreamError) and isinstance(shown, UpstreamError) and (answer := error.answer) is not None:
        words, data = show(answer.message), show(answer.data)
        if is_fenced:
            words, data = fence_text(words), _fence_error_data(answer.code, data)
        shown.answer = RpcAnswer(answer.code, words, data)
    return shown


async def clean_error_async(error: ErrorT, *, is_cleaned: bool, is_fenced: bool) -> ErrorT:
    """Do what `clean_error` does; a long error in a thread."""
    show = partial(clean_error, error, is_cleaned=is_cleaned, is_fenced=is_fenced)
    is_long = len(error.message) > OFF_LOOP_BYTES or not _SAID_DATA.isdisjoint(error.data or ())
    return await asyncio.to_thread(show) if is_long else show()


def _clean_or_drop(said: Any, *, is_cleaned: bool) -> Any:
    """Clean a message beside a result; nothing for a value that cannot be read or written."""
    try:
        return clean_message(said, is_cleaned=is_cleaned)
    except (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError):
        return said.encode(errors="replace").decode() if isinstance(said, str) else None


def _fence_value(said: Any) -> Any:
    """A JSON value as text in a fence: there is no other place for one inside of it."""
    if said is None:
        return None
    return fence_text(said if isinstance(said, str) else msgspec.json.encode(said).decode())


def _fence_error_data(code: int, data: Any) -> Any:
    """The data with all text fenced but what the protocol defines for this code and is no free text.

    Args:
        code: The error's.
        data: Any JSON value.
    """
    defined = _DEFINED.get(code, frozenset())
    if not isinstance(data, dict) or defined.isdisjoint(data) or not all(map(_WORD.fullmatch, data)):
        return _fence_value(data)
    return {name: _fence_free_text(value) if name in defined else _fence_value(value) for name, value in data.items()}


def _fence_free_text(value: Any) -> Any:
    """Fence a value's free text: all but words and URIs; an object with such a name as a whole."""
    if isinstance(value, dict):
        if not all(map(_WORD.fullmatch, value)):
            return _fence_value(value)
        return {name: _fence_free_text(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_fence_free_text(each) for each in value]
    is_free = isinstance(value, str) and not (_WORD.fullmatch(value) or _URI.fullmatch(value))
    return _fence_value(value) if is_free else value


def clean_message(said: Any, *, is_cleaned: bool) -> Any:
    """Clean a message beside a result, and mask the secrets in use.

    Args:
        said: Any JSON value.
        is_cleaned: Whether it is cleaned like a result; that comes first, for it may join the parts of a secret.

    Raises:
        RecursionError: It is nested too deeply.
    """
    if is_cleaned:
        said = msgspec.json.decode(clean(msgspec.json.encode({"said": said})))["said"]
    return redact_json(said, redact)


async def clean_message_async(said: Any, size: int, *, is_cleaned: bool) -> Any:
    """Do what `clean_message` does; a long message in a thread.

    Args:
        said: Any JSON value.
        size: Of its text, about.
        is_cleaned: As there.

    Raises:
        RecursionError: As there.
    """
    show = partial(clean_message, said, is_cleaned=is_cleaned)
    return await asyncio.to_thread(show) if size > OFF_LOOP_BYTES else show()


async def show_progress(tell: OnProgress, is_cleaned: bool, is_fenced: bool, report: ProgressReport) -> None:
    """Tell of progress without the secrets in use.

    Args:
        tell: Tells the caller.
        is_cleaned: Whether the words are cleaned like a result.
        is_fenced: Whether they are fenced like one.
        report: What the server reports.
    """
    if report.message:
        told = await clean_message_async(report.message, len(report.message), is_cleaned=is_cleaned)
        report = msgspec.structs.replace(report, message=fence_text(told) if is_fenced else told)
    await tell(report)


def _clean_strings(text: str, removed: list[int]) -> str:
    """A JSON text with its strings cleaned, all else to the letter; adds what is taken out to `removed`."""
    return _STRING.sub(partial(_clean_literal, removed=removed), text)


def _clean_literal(match: re.Match[str], removed: list[int]) -> str:
    literal = match[0]
    if "\\" not in literal and literal.isprintable() and (literal.isascii() or not _UNSEEN.search(literal)):
        return literal
    try:
        said = json.loads(literal, strict=False)
    except ValueError:  # a broken escape: whoever reads it will say so
        return literal
    before = removed[0]
    cleaned = _clean_text(said, removed)
    if "\\" in cleaned and cleaned.lstrip()[:1] in ("{", "["):
        cleaned = _clean_inner(cleaned, removed)
    return literal if removed[0] == before else json.dumps(cleaned, ensure_ascii=False)


def _clean_inner(text: str, removed: list[int]) -> str:
    """Text that is JSON with its strings cleaned; any other text as it is."""
    try:
        json.loads(text)  # which takes halves of surrogate pairs, too
    except (ValueError, RecursionError):
        return text
    return _clean_strings(text, removed)


def _clean_text(whole: str, removed: list[int]) -> str:
    def keep(match: re.Match[str]) -> str:
        return match[0] if match[0][0] == FLAG[0] or is_at_home(text, match) else ""

    text = _UNWANTED.sub("", whole)
    cleaned = _UNSEEN.sub(keep, text)
    removed[0] += len(whole) - len(cleaned)
    return cleaned


def fence(raw: bytes) -> bytes:
    """The result with each text between two lines that only the gateway can have written.

    The lines hold a number that is drawn for this result; what looks like such a line inside the text is spelled
    otherwise. Structured content is not fenced but written as text, or left out where the text already says it.

    Args:
        raw: A tool result's JSON text.
    """
    result = decode_members(raw)
    blocks = [read_object(block) for block in read_list(result.get("content"))]
    structured = bytes(result.pop("structuredContent", b"null")).decode()
    if structured != "null" and not is_said(structured, _join_text(blocks)):
        blocks.append({"type": _TEXT, "text": encode_raw(structured)})
    nonce = secrets.token_hex(FENCE_BYTES)
    result["content"] = encode_raw([_fence_block(block, nonce) for block in blocks])
    return msgspec.json.encode(result)


def fence_contents(raw: bytes) -> bytes:
    """The result of a read, a prompt or a completion, its texts fenced like those of a tool.

    Of completions that is free text alone: a client sends one back as an argument.

    Args:
        raw: A result's JSON text.
    """
    try:
        members = decode_members(raw)
    except msgspec.DecodeError:  # whoever reads it will say so
        return raw
    nonce = secrets.token_hex(FENCE_BYTES)
    if parts := read_list(members.get("contents")):
        members["contents"] = encode_raw([_fence_block(read_object(part), nonce) for part in parts])
    if messages := [read_object(message) for message in read_list(members.get("messages"))]:
        members["messages"] = encode_raw([_fence_message(message, nonce) for message in messages])
    if values := read_list((completion := read_object(members.get("completion"))).get("values")):
        shown = [_fence_free_text(msgspec.json.decode(value)) for value in values]
        members["completion"] = encode_raw({**completion, "values": encode_raw(shown)})
    return msgspec.json.encode(members) if parts or messages or values else raw


def _fence_message(message: _Block, nonce: str) -> _Block:
    """A prompt's message, whose content is a block or several."""
    content = message.get("content")
    blocks = [_fence_block(read_object(block), nonce) for block in read_list(content)]
    return {**message, "content": encode_raw(blocks or _fence_block(read_object(content), nonce))}


def fence_text(text: str, nonce: str | None = None) -> str:
    """`text` between the two lines of a fence; without a `nonce` a new one is drawn."""
    name = f"{FENCE_WORD}-{nonce or secrets.token_hex(FENCE_BYTES)}"
    return f"<{name}>\n{_LOOKS_LIKE_FENCE.sub('&lt;', text)}\n</{name}>"


def fence_notification(params: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a notification with the text of its progress or log message in a fence."""
    said = {key: params[key] for key in _SAID_NOTICE & params.keys() if params[key] is not None}
    return {**params, **{key: _fence_value(value) for key, value in said.items()}}


def _fence_block(block: _Block, nonce: str) -> _Block:
    if (text := read_text(block.get("text"))) is not None:
        return {**block, "text": encode_raw(fence_text(text, nonce))}
    inner = read_object(block.get("resource"))
    if (text := read_text(inner.get("text"))) is not None:
        return {**block, "resource": encode_raw({**inner, "text": encode_raw(fence_text(text, nonce))})}
    return block


def _join_text(blocks: Sequence[_Block]) -> str:
    """The text of all text blocks."""
    return "\n".join(read_text(block.get("text")) or "" for block in blocks if block.get("type") == _TEXT)
