"""A gateway as a user has it, `mcpproxy serve` in front of bundled sample servers, over stdio and HTTP."""

import json
import os
from collections.abc import Iterator

import pytest
from installed import GATEWAY, Installation, serving

from smart_mcp_proxy.demo import demo_servers


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A configuration file and a data directory."""
    home = tmp_path_factory.mktemp("home")
    config = home / "mcp_config.json"
    config.write_text(json.dumps({"mcpServers": demo_servers()}), "utf-8")
    variables = {
        "MCPPROXY_CONFIG_PATH": str(config),
        "MCPPROXY_DATA_DIR": str(home / "data"),
        "MCPPROXY_KEEP_ALIVE": "0",
    }
    return Installation(GATEWAY, {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **variables})


@pytest.fixture(scope="session")
def url(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway process that serves HTTP and has listed every server."""
    with serving(installation, tmp_path_factory.mktemp("http")) as address:
        yield address
