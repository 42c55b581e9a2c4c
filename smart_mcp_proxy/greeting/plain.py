"""Requests without anything unusual: the only ones answered before the SDK can check them."""

import json
from typing import Any, NamedTuple

ENVELOPE = "io.modelcontextprotocol/"
MODERN_VERSION = "2026-07-28"
LONGEST_BYTES = 16_384
"""What a client says of itself takes less; a longer message is the SDK's."""
MOST_BRACKETS = 100
ID_CHARS = 200
LARGEST_ID = 2**53

_PLAIN_META = {"progressToken": (int, str), "traceparent": (str,), "tracestate": (str,), "baggage": (str,)}
_CLIENT_TEXTS = {"name", "version", "title", "description", "websiteUrl"}
_ICON_TEXTS = {"src", "mimeType"}


class EarlyRequest(NamedTuple):
    """JSON-RPC request, as far as it was read.

    Attributes:
        id: Its own.
        method: What it asks for.
        params: With what; empty where it has none.
        is_modern: Whether it names the protocol's version, as every request of the modern era does.
        is_plain: Whether it holds nothing but what is known here.
    """

    id: int | str
    method: str
    params: dict[str, Any]
    is_modern: bool
    is_plain: bool

    @property
    def key(self) -> str:
        """The SDK takes 7 and "7" for one id."""
        return str(self.id)


def read_request(line: bytes) -> EarlyRequest | None:
    """The request that a line holds; None for anything else, and where that cannot be told."""
    is_plain = len(line) <= LONGEST_BYTES and line.count(b"{") + line.count(b"[") <= MOST_BRACKETS
    try:
        # A lone surrogate is no text for everybody, nor is NaN a number.
        message = json.loads(line.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return None
    request_id, params = message.get("id"), message.get("params")
    if not isinstance(request_id, int | str) or isinstance(request_id, bool):
        return None
    known = params if isinstance(params, dict) else {}
    meta = known.get("_meta")
    is_modern = isinstance(meta, dict) and f"{ENVELOPE}protocolVersion" in meta
    is_plain = (
        is_plain
        and b"\\ud" not in line.lower()
        and message.keys() <= {"jsonrpc", "id", "method", "params"}
        and message.get("jsonrpc") == "2.0"
        and _is_plain_id(request_id)
        and ("params" not in message or isinstance(params, dict))
        and ("_meta" not in known or _is_plain_meta(meta, is_modern=is_modern))
    )
    return EarlyRequest(request_id, message["method"], known, is_modern, is_plain)


def is_client(value: Any) -> bool:
    """Whether this is a client's name and version, and nothing unusual beside them."""
    if not isinstance(value, dict) or not {"name", "version"} <= value.keys() <= _CLIENT_TEXTS | {"icons"}:
        return False
    icons = value.get("icons", [])
    is_good = all(isinstance(value[key], str) for key in value.keys() - {"icons"})
    return is_good and isinstance(icons, list) and all(map(_is_icon, icons))


def is_envelope(meta: Any) -> bool:
    """Whether this names the modern version, the client, and what it can be asked for."""
    return (
        isinstance(meta, dict)
        and meta.get(f"{ENVELOPE}protocolVersion") == MODERN_VERSION
        and is_client(meta.get(f"{ENVELOPE}clientInfo"))
        and are_capabilities(meta.get(f"{ENVELOPE}clientCapabilities"))
    )


def are_capabilities(value: Any) -> bool:
    """Whether this says what a client can be asked for, in the shapes that the protocol has for it."""
    if not isinstance(value, dict):
        return False
    roots = value.get("roots", {})
    nested = [value[key] for key in value.keys() & {"sampling", "elicitation", "experimental", "extensions"}]
    return (
        value.keys() <= {"roots", "sampling", "elicitation", "experimental", "extensions"}
        and isinstance(roots, dict)
        and (not roots or (roots.keys() == {"listChanged"} and isinstance(roots["listChanged"], bool)))
        and all(isinstance(each, dict) and all(isinstance(part, dict) for part in each.values()) for each in nested)
    )


def _is_plain_id(request_id: Any) -> bool:
    if isinstance(request_id, str):
        return len(request_id) <= ID_CHARS and request_id.isascii() and request_id.isprintable()
    return isinstance(request_id, int) and abs(request_id) < LARGEST_ID


def _is_plain_meta(meta: Any, *, is_modern: bool) -> bool:
    if not isinstance(meta, dict):
        return False
    others = {key: value for key, value in meta.items() if not (is_modern and key.startswith(ENVELOPE))}
    envelope = {f"{ENVELOPE}{key}" for key in ("protocolVersion", "clientInfo", "clientCapabilities")}
    is_known = meta.keys() - others.keys() <= envelope
    return is_known and all(type(value) in _PLAIN_META.get(key, ()) for key, value in others.items())


def _is_icon(icon: Any) -> bool:
    if not isinstance(icon, dict) or not {"src"} <= icon.keys() <= _ICON_TEXTS | {"sizes"}:
        return False
    sizes = icon.get("sizes", [])
    are_sizes = isinstance(sizes, list) and all(isinstance(size, str) for size in sizes)
    return are_sizes and all(isinstance(icon[key], str) for key in icon.keys() - {"sizes"})


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a member is there twice")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
