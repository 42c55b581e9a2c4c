#!/usr/bin/env bash
# google-genai 3.6.1: a session with an MCP server one of whose tools has `"additionalProperties": false` cannot be used.
#
# `generate_content(config={"tools": [session]})` converts the tools of an MCP session by itself. JSON Schema allows a truth
# value as a schema, and `additionalProperties: false` is what most schemas of closed objects say; the conversion reads it as
# an object with members, raises AttributeError, and no request is sent. `{}` in place of `true`, and nothing in place of
# `false`, are converted.
# Source: https://json-schema.org/draft/2020-12/json-schema-core#section-4.3.2
#
# Seen: "closed: AttributeError: 'bool' object has no attribute 'items', 0 requests" and "open: answered, 1 requests".
# Needs python3 3.10 or newer. Talks to loopback only, but for the installation.
set -euo pipefail
version=3.6.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "google-genai==$version" "mcp==2.3.0" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
if sys.argv[1] == "closed":
    SCHEMA["additionalProperties"] = False
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        info = {"name": "one", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "say", "description": "Say it.", "inputSchema": SCHEMA}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
PYTHON

cat >"$work/try.py" <<'PYTHON'
import asyncio, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google import genai
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

asked = []


class Model(BaseHTTPRequestHandler):
    """Answers every request with one word."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(self.rfile.read(int(self.headers["content-length"])))
        parts = {"role": "model", "parts": [{"text": "done"}]}
        body = json.dumps({"candidates": [{"content": parts, "finishReason": "STOP"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def ask(kind, port):
    asked.clear()
    client = genai.Client(api_key="none", http_options={"base_url": f"http://127.0.0.1:{port}"})
    server = StdioServerParameters(command=sys.executable, args=[sys.argv[1], kind])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        try:
            await client.aio.models.generate_content(model="m", contents="hi", config={"tools": [session]})
            seen = "answered"
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
    print(f"{kind}: {seen}, {len(asked)} requests")


web = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=web.serve_forever, daemon=True).start()
for kind in ("closed", "open"):
    asyncio.run(ask(kind, web.server_port))
PYTHON

seen=$("$work/venv/bin/python" "$work/try.py" "$work/server.py" 2>"$work/errors") || { cat "$work/errors" >&2; exit 2; }
echo "google-genai $version"
echo "$seen"
[[ $seen == *"closed: AttributeError"*"0 requests"*"open: answered, 1 requests"* ]] || { echo "This has changed." >&2; exit 1; }
