#!/usr/bin/env bash
# Gemini CLI 0.61.0 reads the first page of an MCP server's tools/list and follows no nextCursor.
#
# Tools of later pages do not exist for its model, and nothing says so. The specification lets a server choose the size of
# its pages and has clients follow the cursor.
# Source: https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination
#
# Seen: one `tools/list` without a cursor; the model is offered `first` and not `second`.
# Needs python3, node 22 or newer, and npm. Talks to loopback only, but for the installation.
set -euo pipefail
version=0.61.0
work=$(mktemp -d)
model=
leave() {
    [[ -z $model ]] || kill "$model" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
npm install --prefix "$work/npm" --no-fund --no-audit --loglevel=error "@google/gemini-cli@$version" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys

notes = open(sys.argv[1], "a", buffering=1)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method is None or "id" not in message:
        continue
    result = {}
    if method == "initialize":
        info = {"name": "paging", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        notes.write(f"tools/list cursor {params.get('cursor')}\n")
        name = "second" if params.get("cursor") else "first"
        tool = {"name": name, "description": f"The {name} tool.", "inputSchema": {"type": "object", "properties": {}}}
        result = {"tools": [tool]} | ({} if params.get("cursor") else {"nextCursor": "2"})
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
PYTHON

cat >"$work/model.py" <<'PYTHON'
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

notes = open(sys.argv[1], "a", buffering=1)


class Model(BaseHTTPRequestHandler):
    """Notes the tools that it is offered, and ends."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        offered = [each["name"] for group in request.get("tools") or () for each in group.get("functionDeclarations", ())]
        if own := sorted(name for name in offered if name.endswith(("first", "second"))):
            notes.write(f"offered {' '.join(own)}\n")
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        is_stream = "stream" in self.path
        body = (b"data: %s\n\n" if is_stream else b"%s") % json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON

mkfifo "$work/port"
python3 "$work/model.py" "$work/notes" >"$work/port" &
model=$!
read -r port <"$work/port"
mkdir -p "$work/home/.gemini"
cat >"$work/home/.gemini/settings.json" <<JSON
{
  "mcpServers": {"s": {"command": "python3", "args": ["$work/server.py", "$work/notes"], "trust": true}},
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
  "general": {"disableAutoUpdate": true, "disableUpdateNag": true}
}
JSON
(cd "$work/home" && HOME="$work/home" GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$port" GEMINI_API_KEY=none \
    GEMINI_CLI_TRUST_WORKSPACE=true NO_PROXY=127.0.0.1 HTTPS_PROXY=http://127.0.0.1:9 \
    timeout 120 "$work/npm/node_modules/.bin/gemini" -p "Say done." --approval-mode yolo --model gemini-2.5-flash \
    </dev/null >"$work/said" 2>&1) || {
    cat "$work/said" >&2
    exit 2
}
sort -u "$work/notes"
if grep -q "tools/list cursor 2" "$work/notes" || grep -q "offered.*second" "$work/notes"; then
    echo "changed: the second page was asked for" >&2
    exit 1
fi
grep -q "^offered .*first" "$work/notes" || { echo "the model was offered no tool of the server" >&2; exit 2; }
echo "as stated: gemini-cli $version reads the first page alone"
