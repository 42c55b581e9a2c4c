#!/usr/bin/env bash
# anthropic 2.14.0 (Python): its helper for MCP tools turns a done call whose result holds a link into an error for the model.
#
# `resource_link` is one of the kinds of content that a tool may answer with since 2025-06-18. `async_mcp_tool` calls the
# server first and converts the answer afterwards, and for a link it raises UnsupportedMCPValueError, as its docstring says.
# One would expect the text beside the link to reach the model. The tool runner makes the exception a tool result with
# `is_error`, so the model reads that a call failed which the server carried out, and may well do it again.
# Source: https://modelcontextprotocol.io/specification/2025-06-18/server/tools
#
# Seen: "text: 1 run by the server, the model is told: saved", and
# "link: 1 run by the server, the model is told an error: ... Unsupported MCP content type: resource_link ...".
# Needs python3 3.10 or newer with venv and pip. Talks to loopback only, but for the installation.
set -euo pipefail
version=2.14.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" || exit 2
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "anthropic==$version" "mcp==2.3.0" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys

TEXT = {"type": "text", "text": "saved"}
LINK = {"type": "resource_link", "uri": "file:///report.txt", "name": "report.txt", "mimeType": "text/plain"}
content = [TEXT, LINK] if sys.argv[1] == "link" else [TEXT]
runs = open(sys.argv[2], "a", buffering=1)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        info = {"name": "reports", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "save", "description": "Save the report.", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        runs.write("run\n")
        result = {"content": content}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
PYTHON

cat >"$work/try.py" <<'PYTHON'
import asyncio, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from anthropic import AsyncAnthropic
from anthropic.lib.tools.mcp import async_mcp_tool
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

told = []


class Model(BaseHTTPRequestHandler):
    """Uses the tool once, then ends."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        blocks = [block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"]]
        results = [block for block in blocks if block["type"] == "tool_result"]
        told.extend(results)
        use = {"type": "tool_use", "id": "t1", "name": "save", "input": {}}
        answer = {
            "id": "m1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "done"}] if results else [use],
            "stop_reason": "end_turn" if results else "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def ask(kind, port):
    told.clear()
    runs = Path(sys.argv[1]).with_name(kind)
    client = AsyncAnthropic(api_key="none", base_url=f"http://127.0.0.1:{port}", max_retries=0)
    server = StdioServerParameters(command=sys.executable, args=[sys.argv[1], kind, str(runs)])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = [async_mcp_tool(tool, session) for tool in (await session.list_tools()).tools]
        messages = [{"role": "user", "content": "Save the report."}]
        await client.beta.messages.tool_runner(model="m", max_tokens=99, tools=tools, messages=messages).until_done()
    (result,) = told
    said = result["content"]
    words = said if isinstance(said, str) else " ".join(block.get("text", block["type"]) for block in said)
    how = "told an error" if result.get("is_error") else "told"
    print(f"{kind}: {runs.read_text().count('run')} run by the server, the model is {how}: {words}")


web = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=web.serve_forever, daemon=True).start()
for kind in ("text", "link"):
    asyncio.run(ask(kind, web.server_port))
PYTHON

seen=$("$work/venv/bin/python" "$work/try.py" "$work/server.py" 2>"$work/errors") || { cat "$work/errors" >&2; exit 2; }
echo "anthropic $version"
echo "$seen"
[[ $seen == "text: 1 run by the server, the model is told: saved"*"link: 1 run by the server, the model is told an error: "*"resource_link"* ]] || {
    echo "This has changed." >&2
    exit 1
}
