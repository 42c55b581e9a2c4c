"""A gateway in front of one server that reports progress, as an agent is pointed at it over each transport."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from front import Front
from installed import GATEWAY, Installation, serving
from programs import Target

UPSTREAM = Path(__file__).parent / "counting_upstream.py"


@pytest.fixture(params=["stdio", "http"])
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """A fresh installation of its own for each run."""
    notes, config = tmp_path / "notes", tmp_path / "mcp_config.json"
    server = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(notes)]}
    config.write_text(json.dumps({"mcpServers": {"work": server}}), "utf-8")
    variables = {"MCPPROXY_CONFIG_PATH": str(config), "MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", **variables}
    if request.param == "stdio":
        yield Front(Target(command=GATEWAY, env=environment), notes, environment)
        return
    with serving(Installation(GATEWAY, environment), tmp_path) as url:
        yield Front(Target(url=url), notes, environment)
