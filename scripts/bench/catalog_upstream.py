"""A stdio MCP server that lists the tools of a JSON-lines file, a page at a time, and does nothing else.

Usage: python catalog_upstream.py TOOLS.jsonl
"""

import json
import sys
from pathlib import Path
from typing import Any

PAGE = 1_000
INFO = {"name": "catalog", "version": "1"}


def tools_of(path: Path) -> list[dict[str, Any]]:
    """The definitions; equal names, which one server cannot have, are told apart by number."""
    tools, seen = [], set()
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            name = row["name"] if row["name"] not in seen else f"{row['name']}_{number}"
            seen.add(name)
            schema = row.get("input_schema") or {"type": "object"}
            tools.append({"name": name, "description": row["description"] or "", "inputSchema": schema})
    return tools


def answer(method: str, params: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The result; None for a method that is not known."""
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
        return {"tools": tools[start : start + PAGE], **more}
    return {} if method == "ping" else None


def main() -> None:
    tools = tools_of(Path(sys.argv[1]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, tools)
        error = {"code": -32601, "message": "Method not found"}
        outcome = {"error": error} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
