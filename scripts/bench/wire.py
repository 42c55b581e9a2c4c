"""What goes over the wire: requests as templates, where a reply ends, and whether it is the right one."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["VERSIONS", "BadReplyError", "Era", "Template", "check", "decode_http", "encode", "http_head", "template"]

Era = Literal["handshake", "modern"]
VERSIONS: Mapping[Era, str] = {"handshake": "2025-11-25", "modern": "2026-07-28"}

_META = "io.modelcontextprotocol/"
_CLIENT = {"name": "bench", "version": "1"}
_ID_MARK = 111111111
"""Ids have nine digits, so that every request of a template has the same length."""
FIRST_ID = 200000000
_EDGE_BYTES = 1024
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]+)[^\r\n]*\r\n")


class BadReplyError(Exception):
    """A reply that is none, or not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Template:
    """A request without its id.

    Attributes:
        parts: What stands before, between and after the places of the id; over HTTP with the head.
        reply_bytes: A right reply is at least this long.
    """

    parts: tuple[bytes, ...]
    reply_bytes: int

    def with_id(self, request_id: int) -> bytes:
        """The request."""
        return (b"%d" % request_id).join(self.parts)


def encode(era: Era, request_id: int | None, method: str, params: Mapping[str, Any]) -> bytes:
    """One message; in the modern era with the `_meta` that every request needs."""
    if era == "modern":
        meta = {"protocolVersion": VERSIONS[era], "clientInfo": _CLIENT, "clientCapabilities": {}}
        params = {**params, "_meta": {**params.get("_meta", {}), **{_META + key: meta[key] for key in meta}}}
    elif method == "initialize":
        params = {"protocolVersion": VERSIONS[era], "capabilities": {}, "clientInfo": _CLIENT}
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    if request_id is None:
        del message["id"]
    return json.dumps(message, separators=(",", ":")).encode()


def template(
    era: Era,
    tool: str,
    params: Mapping[str, Any],
    *,
    reply_bytes: int,
    http: Mapping[str, str] | None,
    has_token: bool = False,
) -> Template:
    """A `tools/call`, as a line or, where `http` gives the session's headers, as an HTTP request.

    Args:
        era: Of the request.
        tool: Called by this name.
        params: Further params: `arguments`.
        reply_bytes: A right reply is at least this long.
        http: Headers of the session; None for a pipe.
        has_token: With a progress token, which is the id, as most clients have it: another one in each call.
    """
    meta = {"_meta": {"progressToken": _ID_MARK}} if has_token else {}
    body = encode(era, _ID_MARK, "tools/call", {"name": tool, **params, **meta})
    text = body + b"\n" if http is None else http_head(era, "tools/call", len(body), http, name=tool) + body
    return Template(tuple(text.split(b"%d" % _ID_MARK)), reply_bytes)


def http_head(era: Era, method: str, size_bytes: int, session: Mapping[str, str], name: str | None = None) -> bytes:
    """The head of a POST to `/mcp`, with all that the era asks for."""
    headers = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(size_bytes),
        **session,
    }
    if era == "modern":
        headers["Mcp-Method"] = method
    if era == "modern" or method != "initialize":
        headers["MCP-Protocol-Version"] = VERSIONS[era]
    if era == "modern" and name is not None:
        headers["Mcp-Name"] = name
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode()


def check(reply: bytes, request_id: int, reply_bytes: int) -> None:
    """Raises BadReplyError unless this looks like that request's result; the middle of a long reply is not read."""
    edges = reply if len(reply) <= 2 * _EDGE_BYTES else reply[:_EDGE_BYTES] + reply[-_EDGE_BYTES:]
    if (
        len(reply) < reply_bytes
        or b"%d" % request_id not in edges
        or b'"result"' not in edges
        or b'"isError":true' in edges
        or b'"error"' in edges
    ):
        raise BadReplyError(edges.decode(errors="replace")[:600])


def decode_http(reply: bytes) -> Any:
    """The JSON-RPC message in a whole HTTP reply: a JSON body, or the last event of a stream."""
    head, _, body = reply.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = _joined_chunks(body)
    if b"text/event-stream" in head.lower():
        events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
        body = events[-1] if events else b""
    try:
        return json.loads(body)
    except ValueError as exc:
        raise BadReplyError(reply[:600].decode(errors="replace")) from exc


def _joined_chunks(body: bytes) -> bytes:
    parts = []
    position = 0
    while match := _CHUNK_SIZE.match(body, position):
        size = int(match[1], 16)
        parts.append(body[match.end() : match.end() + size])
        position = match.end() + size + 2
    return b"".join(parts)
