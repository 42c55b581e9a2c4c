"""`python -m smart_mcp_proxy.demo.server NAME`: one demo server on stdio, in both eras.

A request that carries the modern `_meta` envelope is answered in the modern era, every other one in the handshake
era. Requests are answered one after the other.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic;
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import importlib
import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NoReturn

from smart_mcp_proxy import __version__
from smart_mcp_proxy.demo import DEMO_NAMES
from smart_mcp_proxy.demo.tool import Server

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN_VERSION = "2026-07-28"
_META_PREFIX = "io.modelcontextprotocol/"
LIST_TTL_MS = 3_600_000
"""The tools change with the installed version only, that is, never while the process lives."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_PROTOCOL_VERSION = -32022

_Handler = Callable[[Mapping[str, Any]], dict[str, Any]]


class _RpcError(Exception):
    """A JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class _Session:
    """Answers the requests of one client.

    Args:
        name: Server name.
        server: Its tools.
    """

    def __init__(self, name: str, server: Server) -> None:
        self._info = {"name": f"demo-{name}", "version": __version__}
        self._instructions = server.instructions
        self._tools = server.tools
        self._state = server.new_state()
        self._has_handshake = False
        self._handshake: dict[str, _Handler] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": self._list,
            "tools/call": self._call,
        }
        self._modern: dict[str, _Handler] = {
            "server/discover": lambda _: _cacheable({"supportedVersions": [MODERN_VERSION], **self._about()}),
            "tools/list": lambda params: _cacheable(self._list(params)),
            "tools/call": self._call,
        }

    def answer(self, line: bytes) -> dict[str, Any] | None:
        """The answer to one line of input; None where none is due."""
        try:
            message = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return {"jsonrpc": "2.0", "id": None, "error": _RpcError(PARSE_ERROR, "Not valid JSON.").error}
        if not _is_request(message):
            return {"jsonrpc": "2.0", "id": None, "error": _RpcError(INVALID_REQUEST, "Not one request object.").error}
        if "id" not in message:  # a notification; none of them changes anything here
            return None
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            return reply | {"result": self._dispatch(message["method"], message.get("params", {}))}
        except _RpcError as exc:
            return reply | {"error": exc.error}

    def _dispatch(self, method: str, params: object) -> dict[str, Any]:
        if not isinstance(params, dict) or not isinstance(meta := params.get("_meta", {}), dict):
            raise _RpcError(INVALID_PARAMS, "params and params._meta must be objects.")
        version = meta.get(f"{_META_PREFIX}protocolVersion")
        if version is None:
            if not (self._has_handshake or method in {"initialize", "ping"}):
                raise _RpcError(INVALID_PARAMS, f"{method} needs an earlier initialize, or the _meta envelope.")
            return _handler(self._handshake, method)(params)
        if version != MODERN_VERSION:
            versions = {"supported": [MODERN_VERSION], "requested": str(version)}
            raise _RpcError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", versions)
        if not isinstance(meta.get(f"{_META_PREFIX}clientCapabilities"), dict):
            raise _RpcError(INVALID_PARAMS, f"params._meta lacks {_META_PREFIX}clientCapabilities.")
        result = _handler(self._modern, method)(params)
        return result | {"resultType": "complete", "_meta": {f"{_META_PREFIX}serverInfo": self._info}}

    def _about(self) -> dict[str, Any]:
        return {"capabilities": {"tools": {"listChanged": False}}, "instructions": self._instructions}

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._has_handshake = True
        requested = params.get("protocolVersion")
        version = requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
        return {"protocolVersion": version, "serverInfo": self._info, **self._about()}

    def _list(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": [tool.definition() for tool in self._tools.values()]}

    def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or (tool := self._tools.get(name)) is None:
            raise _RpcError(INVALID_PARAMS, f"Unknown tool: {name!r}. Known: {', '.join(self._tools)}.")
        if not isinstance(arguments, dict):
            raise _RpcError(INVALID_PARAMS, "arguments must be an object.")
        try:
            bound = tool.bind(arguments)
            value = tool.run(**bound) if self._state is None else tool.run(self._state, **bound)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, ArithmeticError) as exc:
            return _content(str(exc), is_error=True)
        return _content(text) | ({} if isinstance(value, str) else {"structuredContent": value})


def _is_request(message: object) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("method"), str)
        and isinstance(message.get("id", 0), int | str)
    )


def _cacheable(result: dict[str, Any]) -> dict[str, Any]:
    return result | {"ttlMs": LIST_TTL_MS, "cacheScope": "public"}


def _content(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _handler(methods: Mapping[str, _Handler], method: str) -> _Handler:
    if (handler := methods.get(method)) is None:
        raise _RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
    return handler


def _refuse_constant(constant: str) -> NoReturn:
    """NaN and Infinity are no JSON, although the standard library reads them."""
    raise ValueError(f"{constant} is not JSON")


def serve(name: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers every line of `requests` until it ends.

    Args:
        name: One of the demo servers.
        requests: JSON-RPC messages, one a line.
        answers: Where the answers go, one a line. ASCII only, so that half a surrogate pair survives the way.
    """
    server: Server = importlib.import_module(f"smart_mcp_proxy.demo.{name}").SERVER
    session = _Session(name, server)
    for line in requests:
        if line.strip() and (answer := session.answer(line)) is not None:
            answers.write(json.dumps(answer, separators=(",", ":")).encode("ascii") + b"\n")
            answers.flush()


def main() -> None:
    """Serves the demo server named on the command line until stdin ends."""
    if len(sys.argv) != 2 or sys.argv[1] not in DEMO_NAMES:
        sys.stderr.write(f"usage: python -m smart_mcp_proxy.demo.server {{{','.join(DEMO_NAMES)}}}\n")
        sys.exit(2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


if __name__ == "__main__":
    main()
