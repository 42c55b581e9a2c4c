#!/usr/bin/env bash
# npm 11.19.1: npx ends without a word where a script that runs at the installation fails, and npm install says which.
#
# A server that a client starts with `npx -y NAME` and whose dependency has to be built (keytar, for example) ends with the
# script's exit code and nothing on its output but npm's notices; `npm install NAME` shows the script and what it wrote.
# Source: https://docs.npmjs.com/cli/v11/commands/npx
#
# Seen: npx ends with 3 and no "npm error" line; with npm_config_foreground_scripts=true what the script wrote is there.
# Needs node 20 or newer, and npm. Talks to nobody, but for the installation.
set -euo pipefail
version=11.19.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-fund --no-audit --loglevel=error "npm@$version" >&2 || exit 2
npx() { HOME="$work/home" node "$work/node_modules/npm/bin/npx-cli.js" -y --package="$work/acme.tgz" acme-mcp </dev/null 2>&1; }

mkdir -p "$work/acme/package" "$work/home"
cat >"$work/acme/package/package.json" <<'JSON'
{"name": "acme-mcp", "version": "1.0.0", "bin": {"acme-mcp": "x.js"}, "scripts": {"install": "echo libacme is not there >&2; exit 3"}}
JSON
printf '#!/usr/bin/env node\n' >"$work/acme/package/x.js"
tar -C "$work/acme" -czf "$work/acme.tgz" package

cd "$work"
plain=$(npx) && code=0 || code=$?
shown=$(npm_config_foreground_scripts=true npx) || true
echo "npm $version"
echo "npx ended with $code; lines that begin with 'npm error': $(grep -c '^npm error' <<<"$plain" || true)"
echo "with npm_config_foreground_scripts=true: $(grep -m1 libacme <<<"$shown" || echo nothing)"
[[ $code == 3 && $plain != *libacme* && $plain != *"npm error"* && $shown == *"libacme is not there"* ]] ||
	{ echo "This has changed." >&2; exit 1; }
