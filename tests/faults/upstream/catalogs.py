"""Bad tool lists and greetings: results that are good JSON-RPC and strange MCP.

Each gets the request's params and returns the changes of the good result.
"""

import os
from collections.abc import Callable
from typing import Any

from server import NONCE, TOOLS

CATALOGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
GREETINGS: dict[str, dict[str, Any]] = {
    "wrong-version": {"protocolVersion": "1999-01-01", "supportedVersions": ["1999-01-01"]},
    "version-number": {"protocolVersion": 7, "supportedVersions": 7},
    "no-tools": {"capabilities": {}},
    "capabilities-null": {"capabilities": None},
    "tools-true": {"capabilities": {"tools": True}},
    "big-name": {"serverInfo": {"name": "n" * (1 << 20), "version": "1"}},
    "info-list": {"serverInfo": []},
    "long-instructions": {"instructions": "i" * (1 << 20)},
}
PAGES = 3_000
ELSEWHERE = f"http://127.0.0.1:{os.environ.get('ELSEWHERE_PORT', '9')}"
"""Where nobody must ever ask; a test may listen there."""
EFFECT, ECHO = TOOLS
MANY = 5_000


def tools(name: str, *listed: Any) -> None:
    """A list with `listed` before the good tools."""
    CATALOGS[name] = lambda params: {"tools": [*listed, *TOOLS]}


def odd(name: str, **changes: Any) -> None:
    """A list with one more tool, which is odd; a change to `...` leaves the member out."""
    tool = {**ECHO, "name": "odd", **changes}
    tools(name, {key: value for key, value in tool.items() if value is not ...})


def strange(name: str, **changes: Any) -> None:
    """A list in which the tool that is called is strange itself."""
    CATALOGS[name] = lambda params: {"tools": [{**EFFECT, **changes}, ECHO]}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"nonce": NONCE, **properties}, "required": ["nonce"]}


def nested(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        node = {"type": "object", "properties": {"a": node}}
    return node


for label, value in {
    "null": None, "text": "object", "array": [], "true": True, "number": 7, "wrong-type": {"type": "objekt"},
    "type-list": {"type": ["object", "null"]}, "properties-list": {"type": "object", "properties": []},
    "missing": ..., "empty": {}, "dialect": {"$schema": "https://example.org/unknown", "type": "object"},
    "vocabulary": {"type": "object", "required": "nonce", "minProperties": "one"},
}.items():  # fmt: skip
    odd(f"schema-{label}", inputSchema=value)

strange("ref-remote", inputSchema=schema(pad={"$ref": f"{ELSEWHERE}/never-fetched.json"}))
strange("ref-loop", inputSchema={**schema(pad={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/a"}}})
TREE = {"type": ["string", "object"], "properties": {"b": {"$ref": "#/$defs/a"}}}
strange("ref-tree", inputSchema={**schema(pad={"$ref": "#/$defs/a"}), "$defs": {"a": TREE}})
strange("schema-deep", inputSchema=schema(deep=nested(400)))
strange("schema-wide", inputSchema=schema(**{f"p{number}": {"type": "string"} for number in range(10_000)}))
strange("pattern-slow", inputSchema=schema(pad={"type": "string", "pattern": "^(a+)+$"}))
strange("pattern-slower", inputSchema=schema(pad={"type": "string", "pattern": "^(?=(a+)+b)(a|a)*$"}))
strange("output-invalid", outputSchema={"type": "objekt"})
odd("output-number", outputSchema=7)
strange("annotations-odd", annotations={"readOnlyHint": "yes", "destructiveHint": 1, "title": 7})
strange("annotations-both", annotations={"readOnlyHint": True, "destructiveHint": True})
strange("icons", icons=[{"src": "javascript:alert(1)"}, {"src": f"{ELSEWHERE}/icon.png"}])
strange("description-huge", description="word " * 400_000)
strange("description-lines", description="\n" * 1_000_000)
strange("description-hidden", description="\u200b\u202e\U000e0041 <!-- x --> \x1b[31m text")
strange("renamed-title", title=None, description=None)
odd("description-number", description=7)
odd("meta-list", _meta=[1])
odd("more-read-only", annotations={"readOnlyHint": True})
odd("annotations-list", annotations=[1])
odd("header-crlf", inputSchema=schema(pad={"type": "string", "x-mcp-header": "a\r\nb"}))
odd("header-on-object", inputSchema=schema(pad={"type": "object", "x-mcp-header": "Pad"}))
odd(
    "header-twice",
    inputSchema=schema(a={"type": "string", "x-mcp-header": "A"}, b={"type": "string", "x-mcp-header": "a"}),
)
strange("header-good", inputSchema=schema(pad={"type": "string", "x-mcp-header": "Pad"}))
tools("tool-null", None)
tools("tool-text", "effect")
tools("tool-list", [])
CATALOGS["duplicates"] = lambda params: {"tools": [*TOOLS, {**EFFECT, "description": "another"}, *TOOLS]}
tools("names-odd", *({**ECHO, "name": name} for name in (
    "", "n" * 300, "a b", ";rm -rf /", "a\nb", "a\x00b", "工具", "__proto__", "a:b:c", "..", "%2e", "retrieve_tools",
)))  # fmt: skip
tools("names-typed", {**ECHO, "name": 7}, {**ECHO, "name": None}, {**ECHO, "name": ["effect"]})
tools("5000-tools", *({**ECHO, "name": f"more_{number}"} for number in range(MANY)))
CATALOGS["none"] = lambda params: {"tools": []}
CATALOGS["tools-null"] = lambda params: {"tools": None}
CATALOGS["tools-object"] = lambda params: {"tools": {}}
CATALOGS["tools-number"] = lambda params: {"tools": 7}
CATALOGS["cursor-same"] = lambda params: {"nextCursor": "again"}
CATALOGS["cursor-empty"] = lambda params: {"nextCursor": ""} if "cursor" not in params else {}
CATALOGS["cursor-number"] = lambda params: {"nextCursor": 7}
CATALOGS["cursor-huge"] = lambda params: {"nextCursor": "c" * (1 << 20)} if "cursor" not in params else {}
CATALOGS["cursor-null"] = lambda params: {"nextCursor": None}


def _ever_new(params: dict[str, Any]) -> dict[str, Any]:
    return {"nextCursor": str(int(params.get("cursor", 0)) + 1)}


CATALOGS["cursor-new"] = _ever_new
