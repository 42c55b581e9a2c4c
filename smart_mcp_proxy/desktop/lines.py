"""Lines of JSON-RPC as far as a door has to know them: which request each asks or answers."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

Id = int | str
_INTERNAL_ERROR: Final = -32603
_HEAD: Final = b'{"jsonrpc":"2.0","id":'
_KINDS: Final = {b',"result":': "answer", b',"error":': "answer", b',"method":': "request"}
_AT_END: Final = b"shutting_down"
ACKNOWLEDGED: Final = b"notifications/subscriptions/acknowledged"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_REPEATABLE: Final = frozenset({
    "initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete",
    "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read",
    "resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/list", "tasks/result",
})  # fmt: skip
"""Methods that change nothing, or nothing more when they come twice."""
_OWN_READS: Final = frozenset({"retrieve_tools", "describe_tool"})
"""Tools of the gateway that may be called twice."""


def split_lines(rest: bytearray, chunk: bytes) -> Iterator[bytes]:
    """The lines that `chunk` completes, without their ends; an unfinished one stays in `rest`."""
    start = 0
    while (end := chunk.find(b"\n", start)) >= 0:
        if rest:
            rest += chunk[start:end]
            line = bytes(rest)
            rest.clear()
        else:
            line = chunk[start:end]
        start = end + 1
        yield line
    rest += chunk[start:]


def read_message(line: bytes) -> dict[str, Any]:
    """The message in a line; empty for what is none: the gateway answers that."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def get_param(message: dict[str, Any], name: str) -> Any:
    """A member of a message's params; None where there are none."""
    params = message.get("params")
    return params.get(name) if isinstance(params, dict) else None


def read_head(line: bytes) -> tuple[str, Any]:
    """Whether a line of the gateway is an answer, a request or something else, and its id."""
    if line.startswith(_HEAD):
        start = len(_HEAD)
        end = line.find(b'"', start + 1) + 1 if line[start : start + 1] == b'"' else line.find(b",", start)
        after = line[end : end + 10]
        kind = _KINDS.get(after) or _KINDS.get(after[:9])
        if kind is not None and b"\\" not in line[start:end]:
            with suppress(ValueError):
                return kind, json.loads(line[start:end])
    message = read_message(line)
    if "id" not in message:
        return "other", None
    return "request" if "method" in message else "answer", message["id"]


def is_repeatable(request: dict[str, Any]) -> bool:
    """Whether a request that was perhaps carried out may be sent again."""
    if request.get("method") == "tools/call":
        return get_param(request, "name") in _OWN_READS
    return request.get("method") in _REPEATABLE


def build_lost_error(request: dict[str, Any]) -> bytes:
    """The answer to a request of which nobody knows whether it was carried out."""
    why = "The gateway ended while this was under way: nobody knows whether it was carried out. It is not repeated."
    error = {"code": _INTERNAL_ERROR, "message": why, "data": {"delivery": "unknown"}}
    return encode({"jsonrpc": "2.0", "id": request["id"], "error": error})


def build_cancellation(key: Id) -> bytes:
    """Tell a client that the answer to a request is no longer wanted."""
    params = {"requestId": key, "reason": "the gateway has ended"}
    return encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def is_refused_at_end(line: bytes) -> bool:
    """Whether a leaving gateway answers that it has not begun this call: the next one may be asked."""
    if _AT_END not in line:
        return False
    message = read_message(line)
    for outcome, member in (("error", "data"), ("result", "structuredContent")):
        found = message.get(outcome)
        told = found.get(member) if isinstance(found, dict) else None
        told = told.get("error", told) if isinstance(told, dict) else None
        if isinstance(told, dict) and (told.get("code"), told.get("delivery")) == ("shutting_down", "not_sent"):
            return True
    return False


def build_missed_news(line: bytes) -> list[bytes]:
    """Say to a client that listens that all may have changed of what it listens to.

    Args:
        line: A gateway's acknowledgement of what it is to tell.
    """
    message = read_message(line)
    agreed, meta = get_param(message, "notifications"), {"_meta": get_param(message, "_meta")}
    if not isinstance(agreed, dict):
        return []
    lists = [each for each in ("tools", "prompts", "resources") if agreed.get(f"{each}ListChanged")]
    news = [(f"notifications/{each}/list_changed", meta) for each in lists]
    uris = agreed.get("resourceSubscriptions") or ()
    news += [("notifications/resources/updated", {"uri": each, **meta}) for each in uris]
    return [encode({"jsonrpc": "2.0", "method": method, "params": params}) for method, params in news]


def encode(message: dict[str, Any]) -> bytes:
    """The message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
