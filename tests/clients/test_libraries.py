"""Client libraries that nobody here wrote: each lists our tools, searches, and calls what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import Installation
from node_tools import node_environment, npm_package
from python_tools import python_with
from seen_clients import era_of_newest, note
from stories import OWN_TOOLS

FOLDER = Path(__file__).parent / "libraries"
sys.path.insert(0, str(FOLDER))
from table import LIBRARIES, Library  # noqa: E402  (the programs beside it import their neighbours by the same names)

LIMIT_S = 120
QUIET = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
"""What a library asks of any other host fails at once; its telemetry is off besides."""
SILENT = {
    "DO_NOT_TRACK": "1",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
}


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, installation: Installation) -> dict[str, Any]:
    """What a client is pointed at: an address, or a command to start."""
    if request.param == "http":
        return {"url": request.getfixturevalue("url")}
    command, *arguments = installation.command
    return {"command": command, "args": arguments, "env": installation.env}


def command_of(library: Library) -> list[str]:
    """The start of the library's program in the library's own environment."""
    program = str(FOLDER / library.program)
    if program.endswith(".mjs"):
        folder = npm_package(*library.packages)
        modules = next(parent for parent in folder.parents if parent.name == "node_modules")
        return ["node", program, str(modules)]
    return [str(python_with(*library.packages)), program]


@pytest.mark.parametrize(
    "library",
    [pytest.param(each, marks=pytest.mark.clients if each.is_in_ci else pytest.mark.soak) for each in LIBRARIES],
    ids=repr,
)
def test_a_library_lists_searches_and_calls(
    library: Library, target: dict[str, Any], tmp_path: Path, installation: Installation, record_property: Any
) -> None:
    """With the arguments that it makes of ours, optional ones filled in or not."""
    note(record_property, library.name, library.version, "http" if "url" in target else "stdio")
    command = [*command_of(library), json.dumps(target)]
    path = node_environment()["PATH"] if command[0] == "node" else os.environ["PATH"]
    environment = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8", **QUIET, **SILENT}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, cwd=tmp_path, check=False
    )
    if "url" not in target:  # the gateway over HTTP has a data directory of its own
        record_property("era", era_of_newest(installation.env))
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert set(seen["tools"]) == set(OWN_TOOLS)
    assert "todo:add_task" in seen["found"], seen["found"][:2_000]
    assert "Milk" in seen["called"], seen["called"][:2_000]
    assert '"isError": true' not in seen["called"] and "invalid_arguments" not in seen["called"]
