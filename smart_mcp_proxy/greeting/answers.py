"""Decides which messages are answered before the gateway is loaded, and with what."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from smart_mcp_proxy.greeting.eras import StdioEras, client_name
from smart_mcp_proxy.greeting.plain import (
    MODERN_VERSION,
    EarlyRequest,
    are_capabilities,
    is_client,
    is_envelope,
    read_request,
)


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
    request_id = f'"{_escape_json(request.id)}"' if isinstance(request.id, str) else str(request.id)
    return f'{{"jsonrpc":"2.0","id":{request_id},"{member}":{value}}}'.encode()


def _escape_json(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
