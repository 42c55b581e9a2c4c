"""The example file as a user copies it: into an empty folder, unedited."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from node_tools import node_folder
from python_tools import python_with

EXAMPLE = Path(__file__).parents[2] / "mcp_config.json.example"
ENABLED, DISABLED = {"time", "fetch", "memory"}, {"git", "filesystem", "github"}
UV = "uv==0.13.9"
LIMIT_S = 300


def checked(folder: Path, *programs: Path) -> tuple[int, dict[str, Any], str]:
    """Exit status of `serve --check` with these folders of programs, each server of its report, and what it says."""
    shutil.copy(EXAMPLE, folder / "mcp_config.json")
    (folder / "home").mkdir()
    # What tells uv and npm how to reach their indexes stays as it is here.
    if (npmrc := Path.home() / ".npmrc").is_file():
        shutil.copy(npmrc, folder / "home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPPROXY_")}
    environment = {**kept, "PATH": os.pathsep.join(map(str, programs)), "HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "smart_mcp_proxy", "serve", "--check", "--json"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["servers"]}, done.stdout + done.stderr


@pytest.mark.clients
def test_the_example_file_comes_up_as_it_stands(tmp_path: Path) -> None:
    """Every enabled server is ready and has tools; what needs something of the user's is disabled."""
    system = [Path("/usr/bin"), Path("/bin")]
    status, servers, said = checked(tmp_path, python_with(UV).parent, node_folder(), *system)
    assert {name: row["state"] for name, row in servers.items()} == {
        **dict.fromkeys(ENABLED, "ready"),
        **dict.fromkeys(DISABLED, "disabled"),
    }, said
    assert all(servers[name]["tools"] for name in ENABLED)
    assert status == 0


@pytest.mark.long  # a third of a second of processor time
def test_a_missing_program_is_named_with_what_to_install(tmp_path: Path) -> None:
    """Of each server that lacks it; the check fails."""
    status, servers, said = checked(tmp_path, tmp_path / "nothing")
    assert status == 1
    for name, (program, remedy) in {
        "time": ("uvx", "pip install uv"),
        "fetch": ("uvx", "pip install uv"),
        "memory": ("npx", "Node.js"),
    }.items():
        assert servers[name]["state"] == "error"
        assert f"'{program}'" in said
        assert remedy in said
