"""JSON-RPC messages as bytes: envelopes are read, what is inside them stays as it came."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.invisible.quick_look import is_clean
from smart_mcp_proxy.raw_result import RawResult, refuse_deep

_ABSENT = msgspec.Raw(b"")
_BOM = b"\xef\xbb\xbf"
_EDGE_BYTES = 256
_SURROGATE = re.compile(rb"\\u[dD]")
_LONE_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|[^u])"
)
"""A surrogate pair, a lone surrogate, or another escape; pairs and other escapes are matched to be stepped over."""
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?'
_HEAD_ID = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*" + _ID + rb"|" + _ID + rb"\s*,\s*" + _VERSION + rb")\s*,")
_TAIL_ID = re.compile(
    rb",\s*(?:" + _VERSION + rb"\s*,\s*" + _ID + rb"|" + _ID + rb"\s*,\s*" + _VERSION + rb")\s*\}\s*$"
)
_LOST_ID = re.compile(rb"|null|\d+[.eE].*")
_WIRE_ID = re.compile(rb'(\d{1,18})|"(\d{1,18})"')
_BLANK_ENDS = bytes.maketrans(b"\r\n", b"  ")
_LONG_BYTES = 16_384
"""From here on reading a text twice costs more than all that is done to read it once."""
OFF_LOOP_BYTES = 262_144
"""A longer text is read in a thread. To hand one over takes 0.1 ms, to read so much up to 0.3 ms (measured)."""
_VERSION_FIRST = re.compile(rb'\{"jsonrpc":"2\.0","id":(0|[1-9]\d{0,17}),"result":(?=\{)')
_RESULT_FIRST = re.compile(rb'\{"result":(?=\{)')
_VERSION_LAST = re.compile(rb'(?<=\}),"jsonrpc":"2\.0","id":(0|[1-9]\d{0,17})\}\Z')
"""Ending of a reply as the common SDKs write it."""


class Envelope(msgspec.Struct):
    """The outside of one JSON-RPC message; members the sender left out are empty."""

    jsonrpc: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    method: str = ""
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT

    @property
    def request_id(self) -> int | None:
        """The id as one of ours, None for anything else: null, floats, words. Some servers send ours as text."""
        match = _WIRE_ID.fullmatch(bytes(self.id))
        return int(match[1] or match[2]) if match else None

    @property
    def has_lost_id(self) -> bool:
        """Whether the sender lost the id on its way: left out, null, or turned into a float."""
        return _LOST_ID.fullmatch(bytes(self.id)) is not None

    @property
    def is_reply(self) -> bool:
        """Whether this answers a request, well or badly."""
        return not self.method and (len(bytes(self.result)) > 0 or len(bytes(self.error)) > 0)

    def read_result(self) -> RawResult | None:
        """The result in one line; None where there is none.

        Line ends can only stand between its tokens. Where messages are lines, what stands behind one would be a message
        of its own, from the gateway.
        """
        text = bytes(self.result)
        if _has_line_ends(text):
            text = text.translate(_BLANK_ENDS)
        return RawResult(text) if text else None


class LongReply(Envelope):
    """The outside of a reply in one line, whose result was looked through together with it.

    Attributes:
        whole: The result, which stands in no other member.
    """

    whole: RawResult | None = None

    @property
    def is_reply(self) -> bool:
        """True."""
        return True

    def read_result(self) -> RawResult | None:
        """The result, which is one line."""
        return self.whole


class BrokenMessage(msgspec.Struct, frozen=True):
    """Text that looks like a JSON-RPC message and is none.

    Attributes:
        request_id: The id it carries, if that can be told for certain.
        reason: What is wrong with it.
    """

    request_id: int | None
    reason: str


class RpcError(msgspec.Struct):
    """The `error` member of a reply."""

    code: int = 0
    message: str = ""
    data: Any = None


_envelope = msgspec.json.Decoder(Envelope)
_batch = msgspec.json.Decoder(list[Envelope])


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a line of JSON, line feed included.

    Raises:
        RequestError: A value has no JSON form, or text holds half a surrogate pair.
    """
    try:
        return msgspec.json.encode(message) + b"\n"
    except (TypeError, ValueError, RecursionError) as exc:
        raise RequestError(
            f"The arguments cannot be written as JSON: {exc}", hint="Send plain JSON values and valid Unicode."
        ) from exc


def request_line(request_id: int, method: str, params: Mapping[str, Any]) -> bytes:
    """A request as one line; see `encode_message`."""
    return encode_message({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def clean_line(line: bytes) -> bytes:
    """Strip BOM and blanks from `line`; replace invalid UTF-8 and lone surrogates by U+FFFD."""
    line = line.removeprefix(_BOM).strip()
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            line = line.decode(errors="replace").encode()
    # A search for one byte is all that most messages cost here; for three at once it takes longer than reading them.
    if b"\\" in line and _SURROGATE.search(line):
        line = _LONE_SURROGATE.sub(_without_lone_surrogate, line)
    return line


def _without_lone_surrogate(match: re.Match[bytes]) -> bytes:
    text = match[0]
    return rb"\ufffd" if len(text) == len(rb"\ud800") else text


def decode_messages(*pieces: bytes) -> list[Envelope] | BrokenMessage | None:
    """Decode the messages of one line or body, a broken one, or None for no message at all.

    A batch has several.

    They are read from the text as `clean_line` makes it.

    Args:
        pieces: The text, at least one piece.
    """
    is_long = sum(map(len, pieces)) > _LONG_BYTES
    if is_long and len(pieces) > 1 and any(b"\\" in piece for piece in pieces):
        pieces = (b"".join(pieces),)  # an escape may stand in two of them
    if not (is_known_clean := is_long and is_clean(pieces)):
        pieces = (clean_line(b"".join(pieces)),)
    if is_long and (is_known_clean or not _has_line_ends(pieces[0])):
        reply = _long_reply(pieces, is_clean=is_known_clean)
        if reply is not None:
            return [reply]
    line = b"".join(pieces).strip()
    if not line.startswith((b"{", b"[")):
        return None
    try:
        refuse_deep(line)
        messages = _batch.decode(line) if line.startswith(b"[") else [_envelope.decode(line)]
    except (msgspec.DecodeError, RecursionError) as exc:
        edges = line[:_EDGE_BYTES] + line[-_EDGE_BYTES:]
        request_id = recover_request_id(line[:_EDGE_BYTES], b"")
        return BrokenMessage(request_id, str(exc)) if b'"jsonrpc"' in edges else None
    return [message for message in messages if _is_meant(message)] or None


def decode_object(text: bytes | msgspec.Raw) -> dict[str, Any]:
    """A JSON object; an empty one where the text is none."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


async def read_messages(*pieces: bytes) -> list[Envelope] | BrokenMessage | None:
    """Do what `decode_messages` does; a long text in a thread.

    Args:
        pieces: The text, at least one piece.
    """
    if sum(map(len, pieces)) <= OFF_LOOP_BYTES:
        return decode_messages(*pieces)
    return await asyncio.to_thread(decode_messages, *pieces)


def is_blank(line: bytes) -> bool:
    """Whether there is nothing in a line."""
    return not line.removeprefix(_BOM).strip()


def _has_line_ends(text: bytes) -> bool:
    return b"\n" in text or b"\r" in text


def _long_reply(pieces: Sequence[bytes], *, is_clean: bool) -> LongReply | None:
    """Recognise a reply in a usual spelling whose result is one JSON object; None for others.

    Args:
        pieces: A line, cleaned.
        is_clean: Whether there was nothing to clean; see `is_clean` of quick_look.
    """
    first, last = pieces[0], pieces[-1]
    if last.endswith(b"}}") and (head := _VERSION_FIRST.match(first)):
        start, end, request_id = head.end(), len(last) - 1, head[1]
    elif (head := _RESULT_FIRST.match(first)) and (tail := _VERSION_LAST.search(last, max(0, len(last) - _EDGE_BYTES))):
        start, end, request_id = head.end(), tail.start(), tail[1]
    else:
        return None
    result = (first[start:end],) if len(pieces) == 1 else (first[start:], *pieces[1:-1], last[:end])
    try:
        return LongReply(id=msgspec.Raw(request_id), whole=RawResult.read(*result, is_clean=is_clean))
    except (msgspec.DecodeError, RecursionError):  # something else stands there, too
        return None


def _is_meant(message: Envelope) -> bool:
    """Whether this is a protocol message; JSON log lines on stdout are not, and may well have an `id`."""
    return bool(message.method) or message.is_reply or bool(bytes(message.jsonrpc) and bytes(message.id))


def recover_request_id(head: bytes, tail: bytes) -> int | None:
    """Recover the id of a message from its ends; None unless it is certainly its own.

    Certain means beside the message's `jsonrpc` member: an `id` alone may be anything inside a result.
    """
    match = _HEAD_ID.match(head) or _TAIL_ID.search(tail)
    return int(match[1] or match[2]) if match else None
