#!/usr/bin/env bash
# onnxruntime 1.29.0: `import onnxruntime` alone writes a device id and a database of events into the home directory.
#
# No session is made and no model is loaded; 1.28.0 writes nothing. Who starts such a program in a read-only home, or counts
# the files of a container, meets it.
# Source: https://github.com/microsoft/onnxruntime/blob/main/docs/Privacy.md
#
# Seen: .cache/Microsoft/DeveloperTools/.onnxruntime/ with `deviceid` and `onnxruntime.db` after the import.
# Needs python3 with venv and pip, on Linux.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

written() { # VERSION
    local venv="$work/venv-$1" home="$work/home-$1"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "onnxruntime==$1" 2>"$work/pip" >&2 || {
        cat "$work/pip" >&2
        exit 2
    }
    mkdir "$home"
    env -i HOME="$home" PATH="$PATH" "$venv/bin/python" -c 'import onnxruntime'
    (cd "$home" && find . -type f | sort)
}

before=$(written 1.28.0)
after=$(written 1.29.0)
echo "1.28.0 writes: ${before:-nothing}"
echo "1.29.0 writes:"
echo "${after:-nothing}"
[[ -z $before ]] && grep -q "/deviceid$" <<<"$after" || {
    echo "changed: see above" >&2
    exit 1
}
echo "as stated: from 1.29.0 on an import leaves a device id in the home directory"
