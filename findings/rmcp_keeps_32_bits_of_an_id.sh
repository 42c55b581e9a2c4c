#!/usr/bin/env bash
# es-mcp 0.2.2 (made with rmcp 0.1.5, the Rust SDK of early 2025): answers a request under another id than the request's.
#
# It reads a number as id into 32 bits without a sign and answers under what is left of it, so that a client whose ids are
# larger (the time in milliseconds, random ones) waits for ever. JSON-RPC says that the two ids must be the same.
# Source: https://www.jsonrpc.org/specification#response_object
#
# Seen: `initialize` with the id 4294967298 (2^32 + 2) is answered under the id 2.
# Needs python 3.10 or newer, with pip, on Linux. Talks to nobody, but for the installation.
set -euo pipefail
version=0.2.2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-input "es-mcp==$version" >&2 || exit 2

cat >"$work/try.py" <<'PY'
import json
import subprocess
import sys

client = {"name": "one", "version": "1"}
params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client}
request = {"jsonrpc": "2.0", "id": 2**32 + 2, "method": "initialize", "params": params}
server = subprocess.Popen([sys.argv[1], "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"ES_URL": "http://127.0.0.1:1"})
server.stdin.write(json.dumps(request).encode() + b"\n")
server.stdin.flush()
for line in server.stdout:
    if line.startswith(b"{"):
        print(f"asked under {request['id']}, answered under {json.loads(line)['id']}")
        break
server.stdin.close()
server.wait(10)
PY

seen=$(timeout 60 python3 "$work/try.py" "$work/venv/bin/es-mcp") || exit 2
echo "es-mcp $version"
echo "$seen"
[[ $seen == "asked under 4294967298, answered under 2" ]] || { echo "This has changed." >&2; exit 1; }
