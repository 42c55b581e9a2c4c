"""Magg, whose documents describe the `proxy` tool: its client and its decoder understand our answers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import GATEWAY, Installation, serving
from python_tools import python_with

pytestmark = pytest.mark.clients

MAGG = ("magg==1.2.1",)
LIMIT_S = 120
FAKES = Path(__file__).parent.parent / "client"
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from client_fakes import mixed_server as mixed; {}"
UPSTREAM = [sys.executable, "-c", PROGRAM.format("mixed().run(show_banner=False)"), str(FAKES)]
OFFERING = "from smart_mcp_proxy.client import ProxyFastMCP; ProxyFastMCP(mixed()).run(show_banner=False)"
LIBRARY = [sys.executable, "-c", PROGRAM.format(OFFERING), str(FAKES)]


@pytest.fixture
def offering(tmp_path: Path) -> Installation:
    """A gateway that lists the tool, in front of a server with every kind of content."""
    config = tmp_path / "mcp_config.json"
    command, *arguments = UPSTREAM
    config.write_text(json.dumps({"mcpServers": {"mixed": {"command": command, "args": arguments}}}), "utf-8")
    variables = {
        "MCPPROXY_CONFIG_PATH": str(config),
        "MCPPROXY_DATA_DIR": str(tmp_path / "data"),
        "MCPPROXY_PROXY_TOOL": "proxy",
    }
    return Installation(GATEWAY, {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", **variables})


@pytest.fixture(params=["stdio", "http", "library"])
def target(request: pytest.FixtureRequest, offering: Installation, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The gateway over both transports, and a server that our library has given the tool."""
    if request.param == "http":
        with serving(offering, tmp_path) as url:
            yield {"url": url}
        return
    command, *arguments = LIBRARY if request.param == "library" else offering.command
    yield {"command": command, "args": arguments, "env": offering.env}


def test_magg_reads_every_answer(target: dict[str, Any], tmp_path: Path) -> None:
    """Lists and descriptions as its own types, results of tools, resources and prompts by its own transformations."""
    program = Path(__file__).parent / "libraries" / "magg_client.py"
    command = [str(python_with(*MAGG, at_least=(3, 12))), str(program), json.dumps(target)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    prefix = "" if target.get("args") == LIBRARY[1:] else "mixed__"
    tools = [["Tool", prefix + name] for name in ("add", "fails", "picture", "refuses", "slow")]
    assert seen["tools"] == tools
    assert seen["prompts"] == [["Prompt", f"{prefix}greeting"]]
    assert [kind for kind, _ in seen["resources"]] == ["Resource"] * 3 + ["ResourceTemplate"]
    assert seen["info"] == [tools[0], ["Prompt", f"{prefix}greeting"]]
    assert (seen["called"], seen["from_text"], seen["call_is_no_query"]) == ("8", "2", None)
    assert seen["said"] == {"proxyAction": "call", "proxyType": "tool", "proxyPath": "add"}
    assert seen["read"] == ['{"b":1.00,"a":[12345678901234567890,null]}', "application/json", "text/plain"]
    assert seen["greeted"] == "Greet Ada."
    assert (seen["page"], seen["total"]) == (tools[1:3], len(tools))
