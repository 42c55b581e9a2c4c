#!/usr/bin/env bash
# tomlkit 0.15.2: a table added to a section of dotted keys is written between them; the keys behind it fall into the table.
#
# MCP clients keep their servers in TOML, and `mcp_servers.one.command = "a"` at the top of a file is as good as a heading.
# Who adds a server to such a file by the library (`document["mcp_servers"]["new"] = table()`) gets a text that is valid
# TOML and says something else: each key that stood behind the section's first one now belongs to the new server. Nothing
# is raised, and the document in memory still shows the right value. Below a heading the same edit is right.
# Source: https://toml.io/en/v1.0.0#table
#
# Seen: `in memory: right`, `dotted keys: the text says otherwise: model is in the new table`, `heading: right`.
# Needs python3 (3.11 or newer) with venv and pip. Talks to nobody, but for the installation.
set -euo pipefail
version=0.15.2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "tomlkit==$version" >&2 || exit 2

cat >"$work/try.py" <<'PYTHON'
import tomllib

import tomlkit

DOTTED = 'mcp_servers.one.command = "a"\nmodel = "large"\n'
HEADING = 'model = "large"\n[mcp_servers.one]\ncommand = "a"\n'
NEW = {"command": "b"}


def add(text):
    """The document with another server: as the library has it in memory, and as it writes it."""
    document = tomlkit.parse(text)
    table = tomlkit.table()
    table.update(NEW)
    document["mcp_servers"]["new"] = table
    return document.unwrap(), tomllib.loads(tomlkit.dumps(document))


wanted = {"mcp_servers": {"one": {"command": "a"}, "new": NEW}, "model": "large"}
held, written = add(DOTTED)
print("in memory:", "right" if held == wanted else "wrong")
is_inside = written["mcp_servers"]["new"].get("model") == "large"
print("dotted keys:", "right" if written == wanted else "the text says otherwise", end="")
print(": model is in the new table" if is_inside else "")
print("heading:", "right" if add(HEADING)[1] == wanted else "wrong")
PYTHON

seen=$("$work/venv/bin/python" "$work/try.py" 2>"$work/stderr") || { cat "$work/stderr" >&2; exit 2; }
echo "tomlkit $version"
echo "$seen"
wanted=$'in memory: right\ndotted keys: the text says otherwise: model is in the new table\nheading: right'
[[ $seen == "$wanted" ]] || { echo "This has changed." >&2; exit 1; }
