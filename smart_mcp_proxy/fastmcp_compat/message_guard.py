"""Guard against messages that the SDK would drop, misread or answer with internals.

The transports of the SDK differ in what they take for JSON. One rule for all of them: valid UTF-8, strict JSON, no
member twice, a depth that everybody can read, and a JSON-RPC 2.0 envelope.
"""

import json
import re
from contextlib import suppress
from typing import Any

import mcp_types
import msgspec

MAX_DEPTH = 128
"""Levels of arrays and objects; the SDK's readers give up at 200 (pydantic) or near 1,000 (json)."""
WRITABLE_DEPTH = 240
"""Levels of a server's value that the SDK is given; pydantic writes 255, those around the value included."""

_ID_BESIDE_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(-?\d{1,18}|"[^"\\\x00-\x1f]{1,100}")\s*'
_FIRST_ID = re.compile(rb"\s*\{\s*" + _ID_BESIDE_VERSION + rb",")
_LAST_ID = re.compile(rb",\s*" + _ID_BESIDE_VERSION + rb"\}\s*$")


class Refusal(msgspec.Struct, frozen=True):
    """Why a message is not served.

    Attributes:
        code: Of the JSON-RPC error.
        message: What is wrong with it.
        id: Of the request, None where that cannot be told.
    """

    code: int
    message: str
    id: int | str | None = None

    @property
    def reply(self) -> bytes:
        """The JSON-RPC error."""
        error = {"code": self.code, "message": self.message}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": self.id, "error": error})


class _Head(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None


_head = msgspec.json.Decoder(_Head)


class _TwiceError(Exception):
    """A member is there twice."""


def refuse(message: bytes) -> Refusal | None:
    """Why this message is not served; None if the SDK can be given it."""
    try:
        value = msgspec.json.decode(message)
        is_odd = has_odd_members(message, value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        return Refusal(mcp_types.PARSE_ERROR, f"The message is not valid JSON: {exc or type(exc).__name__}.")
    if isinstance(value, list):
        return Refusal(mcp_types.INVALID_REQUEST, "Batches are not served. Send one message at a time.")
    if not isinstance(value, dict):
        return Refusal(mcp_types.INVALID_REQUEST, "The message is not a JSON object.")
    request_id = value.get("id")
    known_id = request_id if _is_id(request_id) else None
    if is_odd:
        return Refusal(mcp_types.INVALID_REQUEST, "A member of the message is there twice.", known_id)
    return _envelope_fault(value, known_id)


def _envelope_fault(value: dict[str, Any], known_id: int | str | None) -> Refusal | None:
    if value.get("jsonrpc") != "2.0":
        return Refusal(mcp_types.INVALID_REQUEST, "The member 'jsonrpc' is not \"2.0\".", known_id)
    is_reply = "method" not in value and ("result" in value or "error" in value)
    if "id" in value and known_id is None and not (is_reply and value["id"] is None):
        return Refusal(mcp_types.INVALID_REQUEST, "The member 'id' is neither a string nor an integer.")
    if is_reply:
        return None
    if not isinstance(value.get("method"), str):
        return Refusal(mcp_types.INVALID_REQUEST, "The member 'method' is not a string.", known_id)
    if not isinstance(value.get("params"), dict | None) and known_id is not None:
        return Refusal(mcp_types.INVALID_PARAMS, "The member 'params' is not an object.", known_id)
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def has_odd_members(message: bytes, value: Any, others: int = 0, levels: int = MAX_DEPTH) -> bool:
    """Return whether an object has a duplicate member, given its value and member count.

    Readers differ in which of the two they take, so what one checks is not what another one runs.

    Raises:
        RecursionError: `value` is nested deeper than `levels`.
    """
    # Every key is followed by a colon. Where the numbers agree, and no colon stands apart, there is nothing to find.
    is_even = message.count(b'":') == others + count_members(value, levels)
    if is_even and not (b'" ' in message or b"\n" in message or b"\t" in message or b"\r" in message):
        return False
    try:
        json.loads(message, object_pairs_hook=_without_doubles)
    except _TwiceError:
        return True
    return False


def count_members(value: Any, levels: int = MAX_DEPTH) -> int:
    """Count the members of all objects in `value`, an object or an array.

    Raises:
        RecursionError: It is nested deeper than `levels`.
    """
    if type(value) is dict:
        count = len(value)
        value = value.values()
    elif type(value) is list:
        count = 0
    else:
        return 0
    if not levels:
        raise RecursionError(f"it is nested deeper than {MAX_DEPTH} levels")
    for part in value:
        if type(part) is dict or type(part) is list:
            count += count_members(part, levels - 1)
    return count


def read_writable(text: bytes) -> Any:
    """The value of a JSON text, of which the SDK can make text again.

    Raises:
        msgspec.DecodeError: It is not JSON, or holds a number that Python does not read.
        RecursionError: It is nested deeper than `WRITABLE_DEPTH`.
    """
    value = msgspec.json.decode(text)
    if text.count(b"[") + text.count(b"{") > WRITABLE_DEPTH and _is_deep(value):
        raise RecursionError(f"it is nested deeper than {WRITABLE_DEPTH} levels")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(WRITABLE_DEPTH):
        inner = (part for outer in level for part in (outer.values() if type(outer) is dict else outer))
        level = [part for part in inner if type(part) is dict or type(part) is list]
        if not level:
            return False
    return True


def _without_doubles(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        raise _TwiceError


def read_request_id(message: bytes) -> int | str | None:
    """The id of a request that `refuse` had nothing against; None for another message."""
    head = _head.decode(message)
    return head.id if head.method is not None else None


def is_hello(message: bytes) -> bool:
    """Whether a message that `refuse` had nothing against asks for a session."""
    return _head.decode(message).method == "initialize"


def refuse_used_id(request_id: int | str) -> Refusal:
    """Refusal of a request whose id is in use."""
    return Refusal(mcp_types.INVALID_REQUEST, "A request with this id is still being served.", request_id)


def refuse_overlong(head: bytes, tail: bytes, size_bytes: int, limit_bytes: int) -> Refusal:
    """The answer to a message that was too long to be read.

    Args:
        head: Its first bytes.
        tail: Its last bytes.
        size_bytes: Its length.
        limit_bytes: What it may have.
    """
    # Only beside `jsonrpc` at either end an id is certain to be the message's own.
    match = _FIRST_ID.match(head) or _LAST_ID.search(tail)
    request_id: int | str | None = None
    with suppress(UnicodeDecodeError, msgspec.DecodeError):
        request_id = msgspec.json.decode(match[1]) if match else None
    return Refusal(
        mcp_types.INVALID_REQUEST, f"The message has {size_bytes} bytes; {limit_bytes} are allowed.", request_id
    )
