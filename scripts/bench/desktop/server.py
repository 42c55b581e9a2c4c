"""A stdio MCP server with 20 tools, as light as Python allows (`raw`) or as heavy as most are (`sdk`).

Usage: python -S -E -I server.py raw | python server.py sdk
"""

import json
import sys
from collections.abc import Callable
from typing import Any

TOOLS = 20
SUBJECTS = ("sheep", "invoices", "letters", "planets", "tickets")
VERBS = ("Count", "List", "Sort", "Weigh")


def described() -> list[tuple[str, str]]:
    """Names and descriptions."""
    pairs = [(verb, subject) for verb in VERBS for subject in SUBJECTS]
    return [(f"tool{n}", f"{verb} the {subject} of a place.") for n, (verb, subject) in enumerate(pairs[:TOOLS])]


def serve_raw() -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    hint = {"annotations": {"readOnlyHint": True}, "inputSchema": schema}
    info = {"serverInfo": {"name": "raw", "version": "1"}, "capabilities": {"tools": {}}}
    results: dict[str, dict[str, Any]] = {
        "tools/list": {"tools": [{"name": name, "description": text, **hint} for name, text in described()]},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
        "ping": {},
    }
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        found = results.get(message["method"])
        if message["method"] == "initialize":  # whichever version is asked for: peers know other ones
            found = {"protocolVersion": message["params"]["protocolVersion"], **info}
        outcome = {"error": {"code": -32601, "message": "Method not found"}} if found is None else {"result": found}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
        sys.stdout.flush()


def serve_with_sdk() -> None:
    # Here and not above: the light one does without them.
    from fastmcp import FastMCP
    from mcp_types import ToolAnnotations

    server = FastMCP("sdk")

    def build() -> Callable[[str], str]:
        def act(place: str = "") -> str:
            return f"done {place}".strip()

        return act

    for name, text in described():
        server.tool(build(), name=name, description=text, annotations=ToolAnnotations(readOnlyHint=True))
    server.run("stdio", show_banner=False)


if __name__ == "__main__":
    {"raw": serve_raw, "sdk": serve_with_sdk}[sys.argv[1]]()
