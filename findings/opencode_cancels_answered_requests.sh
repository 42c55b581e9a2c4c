#!/usr/bin/env bash
# OpenCode 1.18.33 sends notifications/cancelled for each tools/call of an MCP server that has been answered already.
#
# The specification has it for requests that are still in progress. A server that looks the id up after its answer left
# finds nothing; one that counts cancellations, or stops what else runs under the id, counts every successful call.
# Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
#
# Seen: `answered tools/call id 2`, then `notifications/cancelled requestId 2`, in this order.
# Needs python3, node 22 or newer, and npm. Talks to loopback only, but for the installation.
set -euo pipefail
version=1.18.33
work=$(mktemp -d)
model=
leave() {
    [[ -z $model ]] || kill "$model" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
npm install --prefix "$work/npm" --no-fund --no-audit --loglevel=error "opencode-ai@$version" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys

TOOL = {"name": "ping", "description": "Say pong.", "inputSchema": {"type": "object", "properties": {}}}
notes = open(sys.argv[1], "a", buffering=1)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        notes.write(f"notifications/cancelled requestId {params['requestId']}\n")
    if method is None or "id" not in message:
        continue
    result = {}
    if method == "initialize":
        info = {"name": "pinging", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "pong"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if method == "tools/call":
        notes.write(f"answered tools/call id {message['id']}\n")
PYTHON

cat >"$work/model.py" <<'PYTHON'
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    """Calls the tool once, then ends."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tool = next((t["function"]["name"] for t in request.get("tools") or () if t["function"]["name"].endswith("ping")), None)
        is_done = any(message["role"] == "tool" for message in request["messages"])
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        delta = {"role": "assistant", "content": "done"} if is_done or tool is None else {"role": "assistant", "tool_calls": [call]}
        end = "stop" if "content" in delta else "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": end}]
        body = b"".join(
            b"data: %s\n\n" % json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                                          "choices": [{"index": 0, **chunk}], "usage": usage}).encode()
            for chunk in chunks
        ) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON

mkfifo "$work/port"
python3 "$work/model.py" >"$work/port" &
model=$!
read -r port <"$work/port"
mkdir -p "$work/home/.config/opencode"
cat >"$work/home/.config/opencode/opencode.json" <<JSON
{
  "mcp": {"s": {"type": "local", "command": ["python3", "$work/server.py", "$work/notes"], "enabled": true}},
  "provider": {"m": {"npm": "@ai-sdk/openai-compatible", "name": "m",
    "options": {"baseURL": "http://127.0.0.1:$port/v1", "apiKey": "none"}, "models": {"m": {"name": "m", "tool_call": true}}}},
  "model": "m/m", "small_model": "m/m", "autoupdate": false, "share": "disabled", "permission": "allow"
}
JSON
(cd "$work/home" && HOME="$work/home" XDG_CONFIG_HOME="$work/home/.config" OPENCODE_DISABLE_MODELS_FETCH=1 \
    timeout 120 "$work/npm/node_modules/.bin/opencode" run --model m/m "Use the ping tool." </dev/null >"$work/said" 2>&1) || {
    cat "$work/said" >&2
    exit 2
}
cat "$work/notes"
id=$(sed -n 's/^answered tools\/call id //p' "$work/notes" | head -n 1)
grep -n "" "$work/notes" | grep -A 1 "answered tools/call id $id" | grep -q "notifications/cancelled requestId $id" || {
    echo "changed: the answered call $id was not cancelled afterwards" >&2
    exit 1
}
echo "as stated: opencode-ai $version cancels a call that has been answered"
