#!/usr/bin/env bash
# Starts the gateway over HTTP in front of real MCP servers. They are fetched first, so that the start itself is quick.
# What cannot be fetched is left out and said so; if too little is left, the bundled demo servers join in.
# Options are passed on, for example: scripts/run.sh --port 9000
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
uvx=$PWD/.venv/bin/uvx
cache=$PWD/.cache
work=$cache/run
config=$work/mcp_config.json
enough_servers=4
count=0

# uv keeps what it fetches in here, and works with the Python at hand instead of fetching another one.
export UV_CACHE_DIR=$cache/uv UV_PYTHON=$python UV_PYTHON_DOWNLOADS=never
export UV_HTTP_TIMEOUT=30 UV_HTTP_RETRIES=1 UV_NO_PROGRESS=1

# Before anything is fetched, which takes longer than to see this.
"$python" scripts/check_port.py "$@"

say() { printf '%s\n' "$*" >&2; }

# add NAME COMMAND [ARGUMENT...]: one more entry of the configuration file.
add() {
    "$python" - "$config" "$@" <<'PY'
import json, os, pathlib, sys

path, name, command, *arguments = sys.argv[1:]
file = pathlib.Path(path)
config = json.loads(file.read_text(encoding="utf-8"))
config["mcpServers"][name] = entry = {"command": command, "args": arguments}
if command.endswith("/uvx"):  # a server's process gets only the environment that its entry names
    entry["env"] = {key: os.environ[key] for key in ("UV_CACHE_DIR", "UV_PYTHON", "UV_PYTHON_DOWNLOADS")}
if name.startswith("demo-"):  # a sandbox closes this folder, which holds the data directory: a link leads past it
    library = file.parent / "lib"
    entry["env"] = {"PYTHONPATH": str(library)}
    entry["allow"] = {"read": [str(library), str((library / "smart_mcp_proxy").resolve())], "network": False}
file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
PY
    count=$((count + 1))
}

# fetch_python PACKAGE: has uv keep the package and all it needs, from what it kept before if possible.
fetch_python() {
    [[ -x $uvx ]] || return 1
    "$uvx" --offline --quiet --from "$1" python -c '' 2>/dev/null && return
    "$uvx" --from "$1" python -c '' >&2
}

# fetch_node PACKAGE: the same for npm.
fetch_node() {
    [[ -f $cache/npm/node_modules/$1/dist/index.js ]] && return
    npm install --prefix "$cache/npm" --no-fund --no-audit --loglevel=error \
        --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000 "$1" >&2 2>"$work/npm.log" || {
        head -n 1 "$work/npm.log" >&2  # the rest is a stack trace
        return 1
    }
}

add_python_server() {
    local name=$1 package=mcp-server-$1
    shift
    say "  $package"
    if fetch_python "$package"; then
        add "$name" "$uvx" --offline "$package" "$@"
    else
        say "  $package could not be fetched; going on without it"
    fi
}

add_node_server() {
    local name=$1 package=@modelcontextprotocol/server-$1
    shift
    say "  $package"
    if fetch_node "$package"; then
        add "$name" "$node" "$cache/npm/node_modules/$package/dist/index.js" "$@"
    else
        say "  $package could not be fetched; going on without it"
    fi
}

mkdir -p "$work/files" "$cache/npm"
printf 'A folder for the filesystem server.\n' >"$work/files/readme.txt"
printf '{"mcpServers": {}}\n' >"$config"

say "Fetching MCP servers (about half a minute the first time):"
[[ -x $uvx ]] || say "  uv, which runs Python servers"
[[ -x $uvx ]] || "$python" -m pip install --quiet uv >&2 || say "  uv could not be installed; no Python servers"
add_python_server time
add_python_server fetch
if command -v git >/dev/null; then
    [[ -d $work/repository/.git ]] || git init --quiet "$work/repository"
    add_python_server git --repository "$work/repository"
else
    say "  there is no git on this machine; going on without mcp-server-git"
fi
if node=$(command -v node) && command -v npm >/dev/null; then
    add_node_server everything stdio
    add_node_server filesystem "$work/files"
else
    say "  there is no node with npm on this machine; going on without the servers that need it"
fi

if ((count < enough_servers)); then
    say "Only $count of them can be used, so the bundled demo servers join in."
    mkdir -p "$work/lib"
    ln -sfn "$PWD/smart_mcp_proxy" "$work/lib/smart_mcp_proxy"
    while read -r name; do
        add "demo-$name" "$python" -m smart_mcp_proxy.demo.server "$name"
    done < <("$python" -c 'from smart_mcp_proxy.demo import DEMO_NAMES; print(*DEMO_NAMES, sep="\n")')
fi

export MCPPROXY_DATA_DIR=${MCPPROXY_DATA_DIR:-$work/data}
exec .venv/bin/mcpproxy serve --http --config "$config" "$@"
