"""A gateway as a user has it, `mcpproxy serve` in front of bundled sample servers, over stdio and HTTP."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import GATEWAY, Installation

from smart_mcp_proxy.cli.demo import demo_servers

STOP_S = 15


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A configuration file and a data directory."""
    home = tmp_path_factory.mktemp("home")
    config = home / "mcp_config.json"
    config.write_text(json.dumps({"mcpServers": demo_servers()}), "utf-8")
    variables = {"MCPPROXY_CONFIG_PATH": str(config), "MCPPROXY_DATA_DIR": str(home / "data")}
    return Installation(GATEWAY, {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **variables})


@pytest.fixture(scope="session")
def url(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway process that serves HTTP and has listed every server."""
    log_file = tmp_path_factory.mktemp("log") / "stderr"
    data_dir = {"MCPPROXY_DATA_DIR": str(Path(installation.env["HOME"]) / "http-data")}
    command = [*installation.command, "--http", "--port", "0", "--json"]
    with (
        log_file.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=installation.env | data_dir) as process,
    ):
        assert process.stdout is not None
        report = process.stdout.readline()
        try:
            assert report, log_file.read_text("utf-8")
            yield json.loads(report)["url"]
        finally:
            process.terminate()
            assert process.wait(STOP_S) == 0
