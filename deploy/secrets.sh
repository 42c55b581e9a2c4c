#!/usr/bin/env bash
# Makes the secrets of compose.yaml's fleet in deploy/secrets (or the folder that is given), each once: what is there stays.
# The folder is its owner's alone; the files in it can be read by the users that the containers run as.
set -euo pipefail
folder=${1:-$(dirname "$0")/secrets}
mkdir -p -m 0700 "$folder"

make_once() { # NAME, the secret on stdin
    if [[ -s $folder/$1 ]]; then
        cat >/dev/null
        return
    fi
    cat >"$folder/.$1"
    if [[ ! -s $folder/.$1 ]]; then
        rm -f "$folder/.$1"
        echo "secrets.sh: nothing was made for $1" >&2
        exit 1
    fi
    chmod 0444 "$folder/.$1"
    mv "$folder/.$1" "$folder/$1"
}

openssl rand -hex 24 | make_once postgres_password
printf 'postgresql://mcpproxy:%s@postgres:5432/mcpproxy\n' "$(<"$folder/postgres_password")" | make_once database_url
openssl rand -base64 48 | make_once secret_key
openssl rand -hex 24 | make_once auth_token
