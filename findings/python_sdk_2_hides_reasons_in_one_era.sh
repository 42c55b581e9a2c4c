#!/usr/bin/env bash
# mcp 2.3.0 (Python SDK): the same server tells why a tool failed to clients of 2025-11-25, and to those of 2026-07-28 not.
#
# A handler of the low-level Server that raises is answered with the words of the exception after `initialize`; where the
# client speaks 2026-07-28 the answer is -32603 "Internal server error", and the words stand in the server's log alone. The
# SDK's own client asks for 2026-07-28 by itself, so an agent loses the reason by an update of a library.
# Source: https://modelcontextprotocol.io/specification/2026-07-28/server/tools
#
# Seen: `legacy: 0 no forum at forum.example` and `auto: -32603 Internal server error`.
# Needs python3 with venv and pip. Talks to nobody, but for the installation.
set -euo pipefail
version=2.3.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "mcp==$version" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, Tool


async def list_tools(context, params):
    return ListToolsResult(tools=[Tool(name="list_forums", input_schema={"type": "object"})])


async def call_tool(context, params):
    raise RuntimeError("no forum at forum.example")


async def main():
    server = Server("forum", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


anyio.run(main)
PYTHON

cat >"$work/client.py" <<'PYTHON'
import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError


async def main():
    for mode in ("legacy", "auto"):
        server = StdioServerParameters(command=sys.executable, args=[sys.argv[1]])
        async with Client(server, mode=mode) as client:
            try:
                print(f"{mode}: {await client.call_tool('list_forums', {})}")
            except MCPError as exc:
                print(f"{mode}: {exc.error.code} {exc.error.message}")


anyio.run(main)
PYTHON

seen=$("$work/venv/bin/python" "$work/client.py" "$work/server.py" 2>"$work/stderr") || { cat "$work/stderr" >&2; exit 2; }
echo "mcp $version"
echo "$seen"
[[ $seen == $'legacy: 0 no forum at forum.example\nauto: -32603 Internal server error' ]] || { echo "This has changed." >&2; exit 1; }
