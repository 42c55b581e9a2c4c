#!/usr/bin/env bash
# Prints the folder of a node that is new enough, and nothing else, on stdout:
#   PATH="$(scripts/node.sh):$PATH"
# The machine's own node if it will do, else one installed by npm in the user's cache folder.
# Exit status 3, with the reason on stderr, when there is none to be had.
set -euo pipefail
cd "$(dirname "$0")/.."

# The real clients and the protocol's conformance suite need 22.19.
minimum_major=22
minimum_minor=19
# Outside the checkout, so that the next one finds it.
prefix=${XDG_CACHE_HOME:-$HOME/.cache}/smart-mcp-proxy-tests/node
installed=$prefix/node_modules/node/bin

give_up() {
    printf 'node.sh: %s\n' "$*" >&2
    exit 3
}

is_new_enough() {
    local version major minor
    version=$("$1" --version 2>/dev/null) || return 1
    IFS=. read -r major minor _ <<<"${version#v}"
    [[ $major =~ ^[0-9]+$ && $minor =~ ^[0-9]+$ ]] || return 1
    ((major > minimum_major || (major == minimum_major && minor >= minimum_minor)))
}

if own=$(command -v node) && is_new_enough "$own"; then
    dirname "$own"
    exit 0
fi
if is_new_enough "$installed/node"; then
    printf '%s\n' "$installed"
    exit 0
fi
command -v npm >/dev/null || give_up "no node >= $minimum_major.$minimum_minor here, and no npm to install one with"
printf 'node.sh: installing node 24 under %s\n' "$prefix" >&2
mkdir -p "$prefix"
npm install --prefix "$prefix" --no-fund --no-audit --loglevel=error \
    --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000 node@24 >&2 || give_up "npm could not install node 24"
is_new_enough "$installed/node" || give_up "the node that npm installed does not run here"
printf '%s\n' "$installed"
