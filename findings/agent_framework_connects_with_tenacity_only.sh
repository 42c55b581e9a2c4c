#!/usr/bin/env bash
# agent-framework-core 1.23.0: connects to no MCP server unless tenacity is installed, which only its extra "all" asks for.
#
# The package declares neither of the two by itself. Without `mcp` its MCPStdioTool says "Please install `mcp`", and one would
# expect to be done after that. But on each connection it imports `tenacity`, by which it opens a lost subscription to changes
# of the list again, and it does so before it looks whether there is anything to subscribe to: a server of 2025-11-25, which
# has no such subscription, is lost as well, and so is one that announces no changes at all. The extra that brings both brings
# some thirty packages of the framework.
# Source: https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use
#
# Seen: "... ModuleNotFoundError ... requires `tenacity`" for three servers, and with tenacity `say` of each of them.
# Needs python3 3.10 or newer with venv and pip. Talks to nobody, but for the installation.
set -euo pipefail
version=1.23.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" || exit 2
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "agent-framework-core==$version" "mcp==2.3.0" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys

from mcp.server.mcpserver import MCPServer


def say(text: str) -> str:
    return text


def serve_2025():
    """A server of 2025-11-25 alone, whose list never changes."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        answer = {"error": {"code": -32601, "message": "Method not found"}}
        if message["method"] == "initialize":
            info = {"name": "one", "version": "1"}
            answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
        elif message["method"] == "tools/list":
            answer = {"result": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if sys.argv[1] == "2025":
    serve_2025()
else:
    server = MCPServer("one") if sys.argv[1] == "changing" else MCPServer("one", subscriptions=False)
    server.add_tool(say)
    server.run()
PYTHON

cat >"$work/try.py" <<'PYTHON'
import asyncio, sys

from agent_framework import MCPStdioTool

KINDS = {"changing": "2026-07-28, announces changes", "fixed": "2026-07-28, announces none", "2025": "2025-11-25, announces none"}


async def connect(kind):
    try:
        async with MCPStdioTool(name="one", command=sys.executable, args=[sys.argv[1], kind]) as tool:
            return " ".join(function.name for function in tool.functions)
    except Exception as error:
        return f"{type(error).__name__} {error}"


for kind, words in KINDS.items():
    print(f"{sys.argv[2]}: {words}: {asyncio.run(connect(kind))}")
PYTHON

try() {
    "$work/venv/bin/python" "$work/try.py" "$work/server.py" "$1" 2>"$work/errors" || { cat "$work/errors" >&2; exit 2; }
}
without=$(try without)
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "tenacity==9.1.4" >&2 || exit 2
with=$(try with)
echo "agent-framework-core $version"
echo "$without"
echo "$with"
failed=$(grep -c 'ModuleNotFoundError.*tenacity' <<<"$without" || true)
connected=$(grep -c ': say$' <<<"$with" || true)
[[ $failed-$connected == 3-3 ]] || { echo "This has changed." >&2; exit 1; }
