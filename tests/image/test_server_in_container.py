"""A server in a container of a real engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.confinement.container import LABEL
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = [pytest.mark.anyio, pytest.mark.image, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "image.sh"
PROBE = ROOT / "tests" / "upstream" / "confinement" / "probe_server.py"
LIMIT_S = 180


def image_script(*words: str) -> "subprocess.CompletedProcess[str]":
    """How `scripts/image.sh engine WORDS` ends."""
    return subprocess.run([SCRIPT, "engine", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.fixture
def engines(tmp_path: Path) -> str:
    """A `PATH` on which podman is the engine that builds the images; the real one where docker works."""
    if image_script("inspect", "mcpproxy:slim").returncode:
        pytest.skip("The images are not built: make image")
    podman = tmp_path / "engines" / "podman"
    podman.parent.mkdir()
    # The script looks for the real one: on a `PATH` without this.
    lines = ["#!/bin/sh", f"PATH='{os.environ['PATH']}'", '[ "$1" = run ] || set -- engine "$@"', f'exec {SCRIPT} "$@"']
    podman.write_text("\n".join(lines))
    podman.chmod(0o755)
    return f"{podman.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_server_in_a_container_reaches_what_it_was_given(
    engines: str, tmp_path: Path, *, is_killed: bool
) -> None:
    """Nothing else; and nothing is left of it in the end, even if the engine's command was killed."""
    work, keys = tmp_path / "work", tmp_path / ".ssh" / "id"
    for file in (work / "notes.txt", keys, tmp_path / "data" / "proxy.db"):
        file.parent.mkdir()
        file.write_text("x")
    entry = {
        "command": "python3",
        "args": [str(PROBE), str(work)],
        "env": {"API_KEY": "hidden-value"},
        "isolation": {"image": "mcpproxy:slim"},
        "allow": {"read": [str(PROBE)], "write": [str(work)], "network": False},
    }
    config, _ = parse_entry("probe", entry)
    environ = {"HOME": str(tmp_path), "PATH": engines}
    shelter = Shelter(tmp_path / "data" / "sandbox", (tmp_path / "data",))
    wanted = [f"write:{work}/notes.txt", f"read:{keys}", f"read:{tmp_path}/data/proxy.db", "write:/etc/passwd"]
    call = {"name": "probe", "arguments": {"wanted": [*wanted, f"environment:{os.getpid()}"]}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    with anyio.fail_after(LIMIT_S):
        child = await ChildProcess.start(config, environ, lambda line: print(line, file=sys.stderr), None, shelter)
        try:
            await child.write(json.dumps(request).encode() + b"\n")
            answer = json.loads(await child.read())
            (name,) = image_script("ps", "--filter", f"label={LABEL}=probe", "--format", "{{.Names}}").stdout.split()
            words = subprocess.run(["ps", "-ww", "-e", "-o", "args"], capture_output=True, text=True, check=True).stdout
            if is_killed:
                os.killpg(child.pid, 9)
        finally:
            await child.close()
    assert json.loads(answer["result"]["content"][0]["text"]) == wanted[:1]
    assert (name in words, "hidden-value" in words) == (True, False)
    assert image_script("ps", "--all", "--filter", f"name={name}", "--format", "{{.Names}}").stdout == ""
