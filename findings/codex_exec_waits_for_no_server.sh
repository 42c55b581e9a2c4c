#!/usr/bin/env bash
# Codex 0.171.0, `codex exec`: the model's first turn begins before an MCP server of a few seconds' start is there.
#
# `startup_timeout_sec` of a server bounds how long its start may take; it does not make the first turn wait for it. A model
# that needs a single turn never sees the server's tools, and the run ends with status 0 and without a word of it.
# Source: https://github.com/openai/codex/blob/main/docs/config.md
#
# Seen: with a server that answers initialize after 8 s (startup_timeout_sec = 60) the only request to the model offers no
# tool of it; with the same server without the pause the tool is offered.
# Needs python3, node 22 or newer, and npm. Talks to loopback only, but for the installation.
set -euo pipefail
version=0.171.0
work=$(mktemp -d)
model=
leave() {
    [[ -z $model ]] || kill "$model" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
npm install --prefix "$work/npm" --no-fund --no-audit --loglevel=error "@openai/codex@$version" >&2 || exit 2

cat >"$work/server.py" <<'PYTHON'
import json, sys, time

TOOL = {"name": "look_here", "description": "Look.", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method is None or "id" not in message:
        continue
    result = {}
    if method == "initialize":
        time.sleep(float(sys.argv[1]))
        info = {"name": "slow", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
PYTHON

cat >"$work/model.py" <<'PYTHON'
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

notes = open(sys.argv[1], "a", buffering=1)


class Model(BaseHTTPRequestHandler):
    """Notes whether it is offered the tool, and ends."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send(b'{"data":[],"models":[],"object":"list"}', "application/json")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        notes.write("with the tool\n" if "look_here" in json.dumps(request.get("tools")) else "without the tool\n")
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [item], "usage": usage}},
        ]
        body = b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)
        self.send(body, "text/event-stream")

    def send(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
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

first_turn() { # SECONDS
    local home="$work/home-$1"
    mkdir -p "$home/.codex"
    cat >"$home/.codex/config.toml" <<TOML
model = "m"
model_provider = "m"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.m]
name = "m"
base_url = "http://127.0.0.1:$port/v1"
wire_api = "responses"
env_key = "KEY"
[mcp_servers.s]
command = "python3"
args = ["$work/server.py", "$1"]
startup_timeout_sec = 60
TOML
    : >"$work/notes"
    (cd "$home" && HOME="$home" CODEX_HOME="$home/.codex" KEY=none NO_PROXY=127.0.0.1 HTTPS_PROXY=http://127.0.0.1:9 timeout 120 \
        "$work/npm/node_modules/.bin/codex" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
        "Say done." </dev/null >"$work/said" 2>&1) || {
        cat "$work/said" >&2
        exit 2
    }
    head -n 1 "$work/notes"
}

at_once=$(first_turn 0)
slow=$(first_turn 8)
echo "a server that answers at once: $at_once"
echo "a server that answers after 8 s: $slow"
[[ $at_once == "with the tool" ]] || { echo "the tool of a quick server was not offered: nothing can be said" >&2; exit 2; }
[[ $slow == "without the tool" ]] || { echo "changed: the first turn waited for the server" >&2; exit 1; }
echo "as stated: codex $version begins its first turn without a server that is starting"
