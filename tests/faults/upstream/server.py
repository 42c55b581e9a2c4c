"""A small MCP server of either era that keeps a ledger and a wire log, and knows which fault is switched on.

It needs the standard library only, so that `python -S` starts it in no time. One directory is its whole world:
`fault` is the control file (empty: healthy), `ledger` has one line for each call that was carried out, on disk before
the answer leaves, `wire` everything it was sent, `held` the answers it keeps for later, even from an earlier life.
"""

import json
import os
from pathlib import Path
from typing import Any

META = "io.modelcontextprotocol/"
VERSIONS = {"handshake": "2025-11-25", "modern": "2026-07-28"}
LOGGED_BYTES = 4_000
STAGES = {"initialize": "init", "server/discover": "init", "tools/list": "list", "tools/call": "call"}
"""In which part of a session's life a request falls; a fault is switched on for one of them."""

NONCE = {"type": "string", "description": "What is written into the ledger."}
SCHEMA = {"type": "object", "properties": {"nonce": NONCE, "pad": {"type": "string"}}, "required": ["nonce"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "effect", "description": "Record a nonce in the ledger.", "inputSchema": SCHEMA},
    {"name": "echo", "description": "Say the nonce back.", "inputSchema": SCHEMA},
]


def dump(message: Any) -> bytes:
    return json.dumps(message).encode()


class Ask:
    """One request; its good answer is made, and the call carried out, when somebody first wants it."""

    def __init__(self, server: "Server", message: dict[str, Any]) -> None:
        self.server = server
        self.id = message.get("id")
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params") or {}
        self._good: dict[str, Any] | None = None

    @property
    def stage(self) -> str:
        return STAGES.get(self.method, "other")

    @property
    def fault(self) -> str:
        """The fault that is switched on for requests like this one, empty for none."""
        stage, _, fault = self.server.switched_on().partition(" ")
        return fault if stage == self.stage else ""

    def is_on(self) -> bool:
        """Whether this request's fault is still switched on: what goes on for ever ends with it."""
        return self.fault != ""

    @property
    def good(self) -> dict[str, Any]:
        """The whole JSON-RPC answer of a healthy server."""
        if self._good is None:
            self._good = {"jsonrpc": "2.0", "id": self.id, **self.server.outcome(self.method, self.params)}
        return self._good

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.good.get("result", {})
        return result

    def with_result(self, **changes: Any) -> bytes:
        """The good answer with members of its result changed."""
        return dump({**self.good, "result": {**self.result, **changes}})

    def with_envelope(self, **changes: Any) -> bytes:
        """The good answer with its outside changed; None leaves a member out, a list of one puts any value in."""
        changed = {**self.good, **changes}
        return dump({key: value[0] if isinstance(value, list) else value for key, value in changed.items() if value})


class Server:
    """What stdio and HTTP have in common.

    Args:
        directory: See the module.
        era: handshake or modern; `start downgrade` makes a modern one handshake.
    """

    def __init__(self, directory: Path, era: str) -> None:
        self._directory = directory
        self.era = "handshake" if self.switched_on(directory) == "start downgrade" else era
        self.listen_id: Any = None
        self.waiting: list[bytes] = []
        self._wire = (directory / "wire").open("a", encoding="utf-8")
        self._ledger = (directory / "ledger").open("a", encoding="utf-8")

    def switched_on(self, directory: Path | None = None) -> str:
        """What the control file says: `STAGE FAULT`, or nothing."""
        try:
            return ((directory or self._directory) / "fault").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def see(self, message: bytes, **headers: str) -> None:
        """Writes what arrived into the wire log."""
        text = message[:LOGGED_BYTES].decode(errors="replace")
        self._wire.write(json.dumps({"pid": os.getpid(), "headers": headers, "message": text}) + "\n")
        self._wire.flush()

    def outcome(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """`result` or `error` of a request, which is carried out by this."""
        match method:
            case "initialize" if self.era == "handshake":
                info = {"name": "faulty", "version": "1"}
                return self._result(protocolVersion=VERSIONS["handshake"], capabilities=self._offers(), serverInfo=info)
            case "server/discover" if self.era == "modern":
                info = {META + "serverInfo": {"name": "faulty", "version": "1"}}
                return self._result(supportedVersions=[VERSIONS["modern"]], capabilities=self._offers(), _meta=info)
            case "tools/list":
                return self._result(tools=TOOLS)
            case "tools/call":
                return self._result(content=[{"type": "text", "text": self._call(params)}])
            case "ping":
                return self._result()
        return {"error": {"code": -32601, "message": f"Method not found: {method}"}}

    def _offers(self) -> dict[str, Any]:
        return {"tools": {"listChanged": True}}

    def _result(self, **result: Any) -> dict[str, Any]:
        return {"result": {"resultType": "complete", **result} if self.era == "modern" else result}

    def _call(self, params: dict[str, Any]) -> str:
        nonce = params["arguments"]["nonce"]
        if params["name"] == "effect":
            self._ledger.write(nonce + "\n")
            self._ledger.flush()
            os.fsync(self._ledger.fileno())
        return f"recorded {nonce}"

    def tools_changed(self) -> bytes:
        """The notification that the list is another one, as the era words it."""
        meta = {"_meta": {META + "subscriptionId": self.listen_id}} if self.era == "modern" else {}
        return dump({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})

    def acknowledged(self, ask: Ask) -> bytes:
        """The answer to a new subscription, which stays open."""
        self.listen_id = ask.id
        params = {"notifications": ask.params["notifications"], "_meta": {META + "subscriptionId": ask.id}}
        return dump({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})

    def hold(self, answer: bytes) -> None:
        """Keeps an answer; it leaves before the next healthy one."""
        with (self._directory / "held").open("ab") as held:
            held.write(answer + b"\n")

    def take_held(self) -> list[bytes]:
        """The answers that were kept, once."""
        path = self._directory / "held"
        if not path.exists():
            return []
        held = path.read_bytes().splitlines()
        path.unlink()
        return held
