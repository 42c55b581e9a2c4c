"""Decides which messages are answered before the gateway is loaded, and with what."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from smart_mcp_proxy.desktop.places import FIRST_MESSAGE_BYTES
from smart_mcp_proxy.greeting.eras import StdioEras, client_name

ENVELOPE = "io.modelcontextprotocol/"
MODERN_VERSION = "2026-07-28"
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


class BacklogLine(NamedTuple):
    """Line that waits for the gateway to be loaded.

    Attributes:
        line: Without its end.
        request: What it asks for; None where it asks for nothing.
        said: What was answered already; None where the gateway is to answer.
    """

    line: bytes
    request: EarlyRequest | None = None
    said: bytes | None = None


class Answers:
    """Answers first messages as the SDK did at an earlier start; keeps the rest in order.

    What opens a session is kept, too, beside its answer: the SDK has to know of it.

    Args:
        known: Results as JSON by method, and in each by version of the protocol.
        name: The gateway's own; to a client of this name, another gateway, the SDK says more.
        eras: Which clients are offered the modern era.

    Attributes:
        kept: Lines for the gateway, in the order in which they came.
        rest: An unfinished line.
    """

    def __init__(self, known: Mapping[str, Mapping[str, str]], name: str, eras: StdioEras) -> None:
        self._known = known
        self._name = name
        self._eras = eras
        self._era = ""
        self._version = ""
        self._waiting: set[str] = set()
        self.kept: list[BacklogLine] = []
        self.rest = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """The answers to the lines that `chunk` completes, each with its end."""
        looked_at = len(self.rest)
        self.rest += chunk
        said, start = [], 0
        while (end := self.rest.find(b"\n", max(start, looked_at))) >= 0:
            said.append(self._take(bytes(self.rest[start:end])))
            start = end + 1
        del self.rest[:start]
        return b"".join(said)

    def list_unanswered(self) -> list[EarlyRequest]:
        """The requests that have not been answered."""
        return [each.request for each in self.kept if each.request is not None and each.said is None]

    def _take(self, line: bytes) -> bytes:
        request = read_request(line)
        is_free = request is not None and request.key not in self._waiting
        if request is not None and is_free and request.is_plain and self._is_withheld(request):
            error = self._eras.refuse(request.method, request.params)
            written = json.dumps(error, separators=(",", ":"), ensure_ascii=False)
            return _reply(request, "error", written) + b"\n"  # this leaves nothing behind
        result = self._result(request) if request is not None and is_free else None
        if request is None or result is None:
            if line.strip():
                self.kept.append(BacklogLine(line, request))
            if request is not None:
                self._waiting.add(request.key)
                self._note_era(request)
            return b""
        said = _reply(request, "result", result)
        if request.method not in ("ping", "server/discover"):  # these two leave nothing behind
            self.kept.append(BacklogLine(line, request, said))
            self._note_era(request)
        return said + b"\n"

    def _result(self, request: EarlyRequest) -> str | None:
        if not request.is_plain:
            return None
        if request.is_modern:
            return self._modern_result(request)
        if request.method == "ping":
            return "{}" if self._era != "modern" and request.params.keys() <= {"_meta"} else None
        if request.method == "initialize":
            return None if self._era else self._answer_initialize(request)
        if request.method == "tools/list" and self._version and request.params.keys() <= {"_meta"}:
            return self._known.get("tools/list", {}).get(self._version)
        return None

    def _modern_result(self, request: EarlyRequest) -> str | None:
        meta = request.params["_meta"]
        if self._era == "handshake" or request.params.keys() != {"_meta"} or not is_envelope(meta):
            return None
        if self._is_own(meta["io.modelcontextprotocol/clientInfo"]):
            return None
        if request.method in ("server/discover", "tools/list"):
            return self._known.get(request.method, {}).get(MODERN_VERSION)
        return None

    def _answer_initialize(self, request: EarlyRequest) -> str | None:
        params = request.params
        is_good = (
            {"protocolVersion", "capabilities", "clientInfo"} <= params.keys()
            and params.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
            and isinstance(params["protocolVersion"], str)
            and are_capabilities(params["capabilities"])
            and is_client(params["clientInfo"])
            and not self._is_own(params["clientInfo"])
        )
        return self._known.get("initialize", {}).get(params["protocolVersion"]) if is_good else None

    def _is_withheld(self, request: EarlyRequest) -> bool:
        """Whether a request of the modern era comes before any other, and this client is not offered that era."""
        is_modern = request.is_modern or request.method == "server/discover"
        return is_modern and not self._era and not self._eras.offers_modern(client_name(request.params))

    def _is_own(self, client: Mapping[str, str]) -> bool:
        return client["name"] == self._name

    def _note_era(self, request: EarlyRequest) -> None:
        """Takes note of the first request that chooses the era, as `fastmcp_compat.eras` does."""
        if request.method in (("server/discover",) if request.is_modern else ("ping",)) or self._is_withheld(request):
            return
        is_greeting = request.method == "initialize"
        if not self._era:
            self._era = "modern" if request.is_modern and not is_greeting else "handshake"
            if is_greeting and request.key not in self._waiting:
                self._version = request.params["protocolVersion"]


def _reply(request: EarlyRequest, member: str, value: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{json.dumps(request.id)},"{member}":{value}}}'.encode()


def read_request(line: bytes) -> EarlyRequest | None:
    """The request that a line holds; None for anything else, and where that cannot be told."""
    is_plain = len(line) <= FIRST_MESSAGE_BYTES and line.count(b"{") + line.count(b"[") <= MOST_BRACKETS
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
