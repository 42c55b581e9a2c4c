#!/usr/bin/env bash
# Runs the protocol's own conformance suite against the fixture server directly and through the gateway, for both
# protocol eras, and prints both columns. Exit status 1: the gateway fails something that the fixture passes and that
# tests/conformance/baseline.yml does not explain, or the baseline explains something that passes.
# With "client" as first word: its client scenarios, with the gateway as the client of the suite's servers, compared with
# the entries of
# tests/conformance/baseline.yml that begin with "client:".
# Exit status 3, with the reason on stderr: there is no node, or the suite cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=@modelcontextprotocol/conformance@0.2.0-alpha.12
prefix=$PWD/.cache/conformance
package=$prefix/node_modules/@modelcontextprotocol/conformance

node=$(scripts/node.sh)
export PATH=$node:$PATH
if ! grep -qs "\"version\": \"${suite##*@}\"" "$package/package.json"; then
    mkdir -p "$prefix"
    npm install --prefix "$prefix" --no-fund --no-audit --loglevel=error \
        --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000 \
        "$suite" >&2 || {
        printf 'conformance.sh: npm could not install the suite\n' >&2
        exit 3
    }
fi
program=conformance
if [[ ${1-} == client ]]; then
    program=conformance_client
    shift
fi
exec .venv/bin/python "scripts/$program.py" "$package/dist/index.js" "$@"
