"""What a server reaches whose entry lists hosts: those, and nothing else of any network."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.errors import ConfigError, UpstreamError
from smart_mcp_proxy.servers import ServerConfig, explain_reach, isolate
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.servers.isolation import NetworkHost
from smart_mcp_proxy.upstream.addresses import AddressReach
from smart_mcp_proxy.upstream.confinement import host_proxy, sandbox
from smart_mcp_proxy.upstream.confinement.bubblewrap import find_bubblewrap
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.confinement.refusals import hint_refusal
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = pytest.mark.anyio
needs_bubblewrap = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap may not be used")

LIMIT_S = 30
CLIENT = """
import json, sys, urllib.request
def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode()
    except Exception as error:
        return str(error)
def connect(place):
    import os, socket
    with socket.create_connection(("127.0.0.1", int(os.environ["HTTPS_PROXY"].rpartition(":")[2]))) as end:
        end.sendall(f"CONNECT {place} HTTP/1.1\\r\\n\\r\\n".encode())
        answer = end.recv(1000).decode()
        if " 200 " in answer:
            end.sendall(b"GET /tunnel HTTP/1.0\\r\\n\\r\\n")
            while more := end.recv(1000):
                answer += more.decode()
    return answer.splitlines()[-1] if " 200 " in answer else answer.splitlines()[0]
print(json.dumps([(ask if "//" in each else connect)(each) for each in json.loads(sys.stdin.readline())]))
"""
SITE = """
import http.server
class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} for {self.headers['Host']}".encode())
    def log_message(self, *words):
        pass
site = http.server.HTTPServer(("", 0), Site)
print(site.server_port, flush=True)
site.serve_forever()
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where another program of this machine answers HTTP."""
    with subprocess.Popen([sys.executable, "-c", SITE], stdout=subprocess.PIPE, text=True) as site:
        assert site.stdout is not None
        yield int(site.stdout.readline())
        site.kill()


def entry(*hosts: str, isolation: str | None = "sandbox", **more: Any) -> ServerConfig:
    """A server that may reach hosts alone."""
    written = {"command": sys.executable, "args": ["-c", CLIENT], "allow": {"network": [*hosts]}, **more}
    asked = {} if isolation is None else {"isolation": isolation}
    return isolate({"probe": parse_entry("probe", written | asked)[0]}, "auto", {"probe": ""})["probe"]


async def answers(config: ServerConfig, folder: Path, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the server was answered at these addresses, and what its log says."""
    said: list[str] = []
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "NO_PROXY": "*", "npm_config_proxy": "http://other:1"}
    with anyio.fail_after(LIMIT_S):
        child = await ChildProcess.start(config, environ, said.append, None, Shelter(folder / "shelter"))
        try:
            await child.write(json.dumps([*wanted]).encode() + b"\n")
            found: list[str] = json.loads(await child.read())
        finally:
            await child.close()
    return found, said


@needs_bubblewrap
async def test_a_port_of_this_machine_is_found_at_its_own_place(tmp_path: Path, port: int) -> None:
    """By programs that know of no proxy as well; what is not listed is not there."""
    wanted = [f"http://127.0.0.1:{port}/a", f"http://localhost:{port}/b", f"http://127.0.0.2:{port}/c"]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        (first, second, third), _ = await answers(entry(host), tmp_path, wanted)
        assert (first, second) == (f"/a for 127.0.0.1:{port}", f"/b for localhost:{port}")
        assert "403" in third or "refused" in third


@needs_bubblewrap
async def test_a_listed_host_is_reached_through_the_proxy(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With http:// and through tunnels; the host that is not listed is told with the command that lists it."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **named: resolve("127.0.0.2", *more, **named))
    monkeypatch.setattr(host_proxy, "classify_address", lambda address: AddressReach.PUBLIC)
    config = entry("API.example", "*.pages.example:443", f"*.pages.example:{port}")
    wanted = [
        *(f"http://api.example:{port}/a?b=c", f"api.example:{port}", f"http://x.pages.example:{port}/"),
        *(f"http://pages.example:{port}/", f"other.example:{port}", "x.pages.example:1", "http://192.0.2.1/"),
    ]
    found, said = await answers(config, tmp_path, wanted)
    own = f"/a?b=c for api.example:{port}"
    assert found[:3] == [own, "/tunnel for None", f"/ for x.pages.example:{port}"]
    assert all("403 mcpproxy refused" in each or "403: mcpproxy refused" in each for each in found[3:])
    assert len(said) == len(found[3:])
    command = f"mcpproxy server allow probe --network other.example:{port}"
    assert command in found[4]
    assert command in hint_refusal(config, said[:2])


@needs_bubblewrap
async def test_a_name_does_not_lead_to_this_machine(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps it could open what listens here."""
    monkeypatch.setattr(socket, "getaddrinfo", _resolve_here(socket.getaddrinfo))
    (found,), _ = await answers(entry("api.example"), tmp_path, [f"api.example:{port}"])
    assert "which leads to 127.0.0.1: allow.network has to name that itself" in found


def _resolve_here(resolve: Any) -> Any:
    return lambda host, *more, **named: resolve("127.0.0.1", *more, **named)


@needs_bubblewrap
async def test_the_gateway_itself_is_not_reached_through_it(tmp_path: Path) -> None:
    """A request that it carried to its own doors would seem to be its own."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = f"127.0.0.1:{door.getsockname()[1]}"
        (found,), said = await answers(entry(place), tmp_path, [place])
    assert "which is the gateway's own" in found
    assert said


async def test_without_bubblewrap_it_is_not_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Landlock alone does not keep to hosts."""
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    with pytest.raises(UpstreamError, match=r"bubblewrap, which keeps to them, is not installed|this system has none"):
        await answers(entry("api.example"), tmp_path, [])


@needs_bubblewrap
async def test_where_the_system_gives_no_network_it_is_not_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reason is told."""
    program = tmp_path / "own_network.py"
    program.write_text("import socket, sys; socket.socket(fileno=int(sys.argv[1])).sendall(b'Operation not permitted')")
    monkeypatch.setattr(host_proxy, "_PROGRAM", str(program))
    with pytest.raises(UpstreamError, match="no network of its own: Operation not permitted"):
        await answers(entry("api.example"), tmp_path, [])


@pytest.mark.parametrize("isolation", ["none", "container", None])
async def test_a_server_outside_of_the_sandbox_is_not_started(tmp_path: Path, isolation: str | None) -> None:
    """Nothing keeps it to hosts, neither where its entry says so nor where it is known of old."""
    with pytest.raises(UpstreamError, match=r"it is to run (unconfined|in a container)") as caught:
        await answers(entry("api.example", isolation=isolation), tmp_path, [])
    assert "mcpproxy server allow probe --network on" in caught.value.hint


@pytest.mark.parametrize(
    "host", ["", "*", "https://a.example", "a.example/x", "a b", "a.example:0", "a.example:65536", "127.0.0.1", "[::1]"]
)
def test_what_is_no_host_is_told(host: str) -> None:
    """An address of this machine needs its port."""
    with pytest.raises(ConfigError, match=r"'allow\.network' names") as caught:
        entry(host)
    assert "api.github.com" in caught.value.hint


def test_no_host_is_no_network() -> None:
    """An empty list opens nothing."""
    allow = entry().isolation.allow
    assert allow is not None
    assert allow.network is False


@pytest.mark.parametrize(
    ("text", "name", "port", "is_covered"),
    [
        ("a.example", "a.example", 1, True),
        ("a.example", "b.a.example", 1, False),
        ("*.a.example", "b.a.example", 1, True),
        ("*.a.example", "a.example", 1, False),
        ("*.a.example", "ba.example", 1, False),
        ("a.example:443", "a.example", 80, False),
        ("[2001:db8::1]:5432", "2001:db8::1", 5432, True),
    ],
)
def test_a_host_covers_what_it_names(text: str, name: str, port: int, is_covered: bool) -> None:
    """A star means all names below, never the name itself."""
    assert NetworkHost.read(text).covers(name, port) is is_covered


def test_hosts_are_told_where_a_server_is_described() -> None:
    """In the words that doctor, approve and the page use."""
    reach = {"read": [], "write": [], "network": ["a.example", "b.example"]}
    assert "; it may open network connections to a.example, b.example alone." in explain_reach(reach)
