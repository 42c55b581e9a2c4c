"""Published servers behind a real gateway: in a sandbox they do what they do without one."""

import json
import os
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import chdir
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from installed import GATEWAY, Installation, serving
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from node_tools import ROOT, node_folder
from published import BATCHES, CHROMIUM, FEW, Published

from smart_mcp_proxy.servers import find_known_server
from smart_mcp_proxy.upstream.confinement.bubblewrap import find_bubblewrap
from smart_mcp_proxy.upstream.confinement.sandbox import find_way

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(find_way() is None, reason="this system has no sandbox")]

START_S = 600
CALL_S = 120
VARIABLES = re.compile(r"PATH|LANG|.*(?:CERT|CA_BUNDLE|_proxy).*|(?:uv|npm|pip)_.*", re.IGNORECASE)
"""What a download needs of the environment."""


KEPT_FROM_BEFORE = {"@falconer/mcp-linux-x64", "@git-library/mcp-linux-x64", "mcp-server-motherduck"}
"""Kept from /proc in the report of 196 servers, before they were known; started as known ones they come up whole."""


class Outcome(NamedTuple):
    """How a server fared that is ready: the number of its tools, and the answer to a call with figures taken out."""

    tools: int
    is_error: bool
    answer: str


class Page(BaseHTTPRequestHandler):
    """A page that any robot may read."""

    def do_GET(self) -> None:
        body = b"User-agent: *\nAllow: /" if self.path == "/robots.txt" else b"<title>t</title><h1>hello</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The address of a page on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def fill(value: Any, work: Path, page: str) -> Any:
    """The value with the folder and the page in it."""
    if isinstance(value, str):
        return page if value == "@" else value.replace("$", str(work))
    if isinstance(value, dict):
        return {key: fill(each, work, page) for key, each in value.items()}
    return [fill(each, work, page) for each in value] if isinstance(value, list | tuple) else value


def ask_states(url: str, data: Path) -> dict[str, Any]:
    """What the gateway says of its servers, by name."""
    token = (data / "operator.token").read_text("utf-8").strip()
    request = urllib.request.Request(f"{url.rpartition('/')[0]}/api/v1/servers")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request) as answer:
        return {server["name"]: server for server in json.load(answer)["servers"]}


async def try_servers(servers: Sequence[Published], isolation: str, folder: Path, page: str) -> dict[str, Outcome]:
    """How each fared, in a gateway of their own with a fresh data directory."""
    work = folder / "home" / "work"
    (work / "data").mkdir(parents=True)
    (work / "page.html").write_text("<h1>hello</h1>")
    subprocess.run(["git", "init", "-q", "-b", "main", work], check=True)
    entries = {
        each.name: {
            "command": each.runner[0],
            "args": [*each.runner[1:], each.package, *fill(each.args, work, page)],
            "trust": "trusted",
            **fill(each.entry, work, page),
        }
        for each in servers
    }
    (folder / "config.json").write_text(json.dumps({"mcpServers": entries}))
    path = os.pathsep.join([str(node_folder()), str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
    environ = {name: text for name, text in os.environ.items() if VARIABLES.fullmatch(name)}
    environ |= {"PATH": path, "HOME": str(folder / "home"), "MCPPROXY_CONFIG_PATH": str(folder / "config.json")}
    environ |= {"MCPPROXY_ISOLATION": isolation, "MCPPROXY_LIST_ALL_BELOW_TOKENS": "1000000"}
    found = {}
    # Some of them leave files in their working directory.
    with chdir(folder), serving(Installation(GATEWAY, environ), folder) as url:
        with anyio.move_on_after(START_S):
            while any(each["state"] == "connecting" for each in ask_states(url, folder / "data").values()):
                await anyio.sleep(1)
        states = ask_states(url, folder / "data")
        homes = [path.name for path in (folder / "data").glob("sandbox/*") if path.is_dir()]
        assert len(homes) == (len(servers) if isolation == "sandbox" else 0), homes
        async with Client(streamable_http_client(url)) as client:
            for each in servers:
                state = states[each.name]
                with anyio.fail_after(CALL_S):
                    arguments = fill(dict(each.arguments), work, page)
                    assert state["state"] == "ready", state
                    result = await client.call_tool(f"{each.name}__{each.tool}", arguments)
                text = "\n".join(getattr(block, "text", "") for block in result.content).replace(str(folder), "$")
                answer = re.sub(r"\d+|page-\S+", "0", text)
                found[each.name] = Outcome(state["tools"], result.is_error, answer)
    return found


@pytest.mark.parametrize(
    "servers",
    [
        pytest.param(FEW, marks=pytest.mark.clients, id="few"),
        *(pytest.param(batch, marks=pytest.mark.soak, id=str(number)) for number, batch in enumerate(BATCHES)),
    ],
)
async def test_published_servers_do_in_a_sandbox_what_they_do_without(
    servers: tuple[Published, ...], page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They start, list and answer one call each, with what their entry allows and their profile gives."""
    if shutil.which("uvx", path=str(ROOT / ".venv" / "bin")) is None:
        pytest.skip("uvx is not installed")
    tried = [
        each
        for each in servers
        if Path(CHROMIUM).exists() or not find_known_server("npx", [each.package]).has_own_world
    ]
    if find_bubblewrap() is None:
        tried = [each for each in tried if not find_known_server("npx", [each.package]).has_own_world]
    outcomes = {}
    for isolation in ("none", "sandbox"):
        folder = tmp_path / isolation
        folder.mkdir()
        outcomes[isolation] = await try_servers(tried, isolation, folder, page)
        shutil.rmtree(folder)  # each has a cache of its own
    with capsys.disabled():
        print()
        for each in tried:
            without, within = (outcomes[isolation][each.name] for isolation in ("none", "sandbox"))
            print(f"{each.package:60} ready, {within.tools} tools, the same: {within == without}")
    assert outcomes["sandbox"] == outcomes["none"]


def test_the_documentation_lists_what_was_tried() -> None:
    """Each package with its version; of each that is known to need a world of its own, it was seen that it does."""
    tried = [each.package.rpartition("@")[::2] for each in (*FEW, *(each for batch in BATCHES for each in batch))]
    page = (ROOT / "docs" / "isolation.md").read_text("utf-8")
    assert [f"`{name}` {version}" for name, version in tried if f"| `{name}` {version} |" not in page] == []
    rows = json.loads((ROOT / "smart_mcp_proxy" / "servers" / "known" / "known_servers.json").read_text("utf-8"))
    report = json.loads((ROOT / "tests" / "atlas" / "report.json").read_text("utf-8"))
    kept_from = {row["package"] for row in report.values() if "--read /proc" in row.get("followed", "")}
    whole = {row["package"] for row in report.values() if row["outcome"] == "same"}
    seen = {name for name, _ in tried} | kept_from | (KEPT_FROM_BEFORE & whole)
    assert {name for name, row in rows.items() if row.get("has_own_world")} <= seen
