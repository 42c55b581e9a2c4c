"""The container images as an operator runs them: read-only, not root, no capabilities, configured by environment."""

import gzip
import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import postgres_server
import pytest
from asgi_server import listening
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from packaging.requirements import Requirement
from postgres_server import free_port

from smart_mcp_proxy import __version__

pytestmark = [pytest.mark.anyio, pytest.mark.image, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "image.sh"
LIMIT_S = 180
READY_S = 5
ENDED_S = 10
SERVERS = {
    "time": {"command": "uvx", "args": ["mcp-server-time"], "trust": "trusted"},
    "everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"], "trust": "trusted"},
}
CERTIFICATES = Path("/etc/ssl/certs")
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
PROCESSES = """
import pathlib, json
found = []
for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
        found.append(entry.read_text().rpartition(")")[2].split()[0])
    except OSError:
        pass
print(json.dumps(found))
"""
READY = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:{}/readyz', timeout=2).status)"

LIBRARIES = """
import ctypes, pathlib
found = sorted(pathlib.Path("/opt/mcpproxy/lib").rglob("*.so"))
assert len(found) > 40, found
for path in found:
    ctypes.CDLL(str(path))
print("all of them can be loaded")
"""
COMPILED = """
import importlib, importlib.util, os, sys
for name in ("cli.app", "web.serve_http", "web.page.app", "web.auth.sign_in_pages", "catalog.store.postgres"):
    importlib.import_module("smart_mcp_proxy." + name)
files = [str(getattr(module, "__file__", None)) for module in sys.modules.values()]
late = [file for file in files if file.endswith(".py") and not os.path.exists(importlib.util.cache_from_source(file))]
assert not late, late
print("all of them are compiled")
"""
MOST_BYTES = {"slim": 330_000_000, "full": 520_000_000}

GREETING = """
import json, pathlib, urllib.request as u
asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
    "capabilities": {}, "clientInfo": {"name": "inside", "version": "1"}}}
token = pathlib.Path("/data/auth.token").read_text().strip()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream"}
with u.urlopen(u.Request("http://127.0.0.1:8000/mcp", json.dumps(asked).encode(), headers), timeout=5) as answer:
    text = answer.read().decode()
print(json.loads(text[text.index("{"):])["result"]["serverInfo"]["name"])
"""
"""What an agent of the handshake era does first, with the token that the gateway has made."""

SIGNAL = """
import os, pathlib, signal
(gateway,) = pathlib.Path("/proc/1/task/1/children").read_text().split()
os.kill(int(gateway), signal.{})
"""

LABELS = {
    "org.opencontainers.image.title": "smart-mcp-proxy",
    "org.opencontainers.image.description": "One search tool in front of all your MCP servers.",
    "org.opencontainers.image.licenses": "MIT",
}


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """Skips where there are none."""
    done = subprocess.run(
        [SCRIPT, "engine", "inspect", "mcpproxy:slim", "mcpproxy:full"], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("The images are not built: make image")


def image_script(*words: str, check: bool = True) -> str:
    """What `scripts/image.sh WORDS` prints."""
    done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert not check or done.returncode == 0, done.stderr
    # A container's log is told as it was written, to stdout or stderr; stderr also has the engine's own warnings.
    return done.stdout + (done.stderr if "logs" in words else "")


class Container:
    """A container that runs.

    Attributes:
        name: For the engine's commands.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def engine(self, *words: str, check: bool = True) -> str:
        """What the engine's command prints, its last word being the container."""
        return image_script("engine", *words, self.name, check=check)

    def python(self, program: str) -> str:
        """What a program prints in the container; empty where it fails."""
        return image_script("engine", "exec", self.name, "python3", "-c", program, check=False).strip()

    def exit_status(self, command: list[str], **variables: str) -> int:
        """How a command ends in the container, with these variables beside its own."""
        given = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        words = [SCRIPT, "engine", "exec", *given, self.name, *command]
        return subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False).returncode

    def inspect(self) -> Any:
        return json.loads(self.engine("inspect"))[0]

    def until_ready(self, port: int = 8000) -> float:
        """Seconds until `/readyz` says yes."""
        began = time.monotonic()
        while self.python(READY.format(port)) != "200":
            assert time.monotonic() - began < LIMIT_S, self.engine("logs")
        return time.monotonic() - began

    def stop(self) -> tuple[int, float]:
        """Its exit status after SIGTERM, and the seconds that took."""
        began = time.monotonic()
        self.engine("stop", "--time", str(2 * ENDED_S))
        return self.inspect()["State"]["ExitCode"], time.monotonic() - began


@contextmanager
def started(target: str, *options: str) -> Iterator[Container]:
    """A container of the image; it and its volume are removed in the end."""
    container = Container(f"mcpproxy-test-{secrets.token_hex(4)}")
    volume = ("-v", f"{container.name}:/data")
    try:
        image_script("run", "-d", "--name", container.name, *HARDENED, *volume, *options, f"mcpproxy:{target}")
        yield container
    finally:
        container.engine("rm", "--force", "--volumes", check=False)
        container.engine("volume", "rm", "--force", check=False)


@pytest.mark.parametrize("target", ["slim", "full"])
def test_it_starts_without_network_as_nobody_and_ends_by_sigterm(target: str) -> None:
    """Ready in time with nothing in its volume, uid 10001, and nothing written beside the volume and /tmp."""
    with started(target, "--network", "none") as container:
        seconds = container.until_ready()
        assert container.python("import os; print(os.getuid(), os.getgid(), os.getcwd())") == "10001 10001 /data"
        assert container.python("open('/opt/x', 'w')") == ""
        assert container.python(GREETING) == "smart-mcp-proxy"
        status, end_s = container.stop()
        print(f"{target}: ready after {seconds:.1f} s, ended after {end_s:.1f} s")
        assert (status, end_s < ENDED_S) == (0, True), container.engine("logs")
        assert seconds < READY_S
        lines = container.engine("logs").splitlines()
        assert not [line for line in lines if "Traceback" in line]


@pytest.mark.parametrize("target", ["slim", "full"])
def test_the_health_check_fails_where_the_gateway_does_not_answer(target: str) -> None:
    """It hangs, or nothing listens at the port; a proxy that the variables name is not asked."""
    kind, *check = _health_check(target)
    assert kind == "CMD"
    with started(target, "--network", "none") as container:
        container.until_ready()
        assert container.exit_status(check) == 0
        assert container.exit_status(check, http_proxy="http://127.0.0.1:9") == 0
        assert container.exit_status(check, MCPPROXY_PORT="9") == 1
        container.python(SIGNAL.format("SIGSTOP"))
        assert container.exit_status(check) == 1
        container.python(SIGNAL.format("SIGCONT"))
        assert container.exit_status(check) == 0


def _health_check(target: str) -> list[str]:
    """The words of it; docker shows them in another place than podman."""
    image = json.loads(image_script("engine", "inspect", f"mcpproxy:{target}"))[0]
    words: list[str] = ({**image["Config"], **image})["Healthcheck"]["Test"]
    return words


@pytest.mark.parametrize("target", ["slim", "full"])
def test_both_images_have_the_driver_of_postgresql(target: str) -> None:
    """With the client library that it brings."""
    program = "import psycopg; print(psycopg.pq.__impl__)"
    done = image_script("run", "--rm", "--entrypoint", "python3", f"mcpproxy:{target}", "-c", program)
    assert done.splitlines()[-1] == "binary"


async def test_a_slim_one_keeps_its_catalog_in_postgresql() -> None:
    """The tool of a server over HTTP has a row there; a search finds it and it can be called."""
    notes = FastMCP("notes")
    notes.tool(lambda text: f"kept: {text}", name="write_note", description="Write a note down.")
    token, port = secrets.token_urlsafe(24), free_port()
    with postgres_server.running_server() as postgres, anyio.fail_after(LIMIT_S):
        database = postgres.new_database()
        async with listening(notes.http_app()) as address:
            servers = {"notes": {"url": f"{address}/mcp", "trust": "trusted"}}
            settings = {
                "MCPPROXY_PORT": port,
                "MCPPROXY_HOST": "127.0.0.1",
                "MCPPROXY_AUTH_TOKEN": token,
                "MCPPROXY_SECRET_KEY": secrets.token_urlsafe(32),
                "MCPPROXY_DATABASE_URL": postgres.url(database),
                "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": servers}),
            }
            given = [part for name, value in settings.items() for part in ("-e", f"{name}={value}")]
            with started("slim", "--network", "host", *given) as container:
                await anyio.to_thread.run_sync(container.until_ready, port)
                headers = {"Authorization": f"Bearer {token}"}
                async with Client(StreamableHttpTransport(f"http://127.0.0.1:{port}/mcp", headers=headers)) as client:
                    names: list[str] = []
                    while not names:
                        found = await client.call_tool("retrieve_tools", {"query": "write a note"})
                        names = [tool["name"] for tool in found.structured_content["tools"]]
                    said = await client.call_tool("call_tool_write", {"name": names[0], "args": {"text": "as it was"}})
                assert (names, "kept: as it was" in str(said.content)) == (["notes:write_note"], True)
                assert postgres.value("SELECT count(*) FROM tools", database) == 1
                assert container.stop()[0] == 0, container.engine("logs")


@pytest.mark.parametrize("restarts", [5, pytest.param(100, marks=pytest.mark.soak)])
async def test_its_servers_are_started_by_uvx_and_npx(restarts: int) -> None:
    """A search and a call through each, restarts without a zombie, and an end in time that loses none of it."""
    token, port = secrets.token_urlsafe(24), free_port()
    settings = {
        "MCPPROXY_PORT": port,
        "MCPPROXY_HOST": "127.0.0.1",
        "MCPPROXY_AUTH_TOKEN": token,
        "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": SERVERS}),
    }
    bundle = CERTIFICATES / "ca-certificates.crt"
    # A network with certificates of its own, where the tests run in one.
    settings |= {name: bundle for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS") if name in os.environ}
    given = [part for name, value in settings.items() for part in ("-e", f"{name}={value}")]
    with started("full", "--network", "host", "-v", f"{CERTIFICATES}:{CERTIFICATES}:ro", *given) as container:
        base = f"http://127.0.0.1:{port}"
        way = StreamableHttpTransport(f"{base}/mcp", headers={"Authorization": f"Bearer {token}"})
        container.until_ready(port)
        operator = container.python("print(open('/data/operator.token').read().strip())")
        headers = {"Authorization": f"Bearer {operator}"}
        with anyio.fail_after(LIMIT_S + 5 * restarts):
            async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as rest, Client(way) as client:
                await _until_connected(rest)
                for query, call, arguments in (
                    ("current time in a timezone", "time:get_current_time", {"timezone": "Europe/Paris"}),
                    ("echo a message back", "everything:echo", {"message": "as it was"}),
                ):
                    found = (await client.call_tool("retrieve_tools", {"query": query})).structured_content
                    assert call in [tool["name"] for tool in found["tools"]], found
                    said = await client.call_tool("call_tool_read", {"name": call, "args": arguments})
                    assert arguments.get("message", "Europe/Paris") in str(said.content)
                for _ in range(restarts):
                    reply = await rest.post("/api/v1/servers/everything/restart")
                    assert reply.status_code == 200, reply.text
                    await _until_connected(rest)
        assert "Z" not in json.loads(container.python(PROCESSES))
        status, seconds = container.stop()
        print(f"full: ended after {seconds:.1f} s")
        assert (status, seconds < ENDED_S) == (0, True), container.engine("logs")
        assert token not in container.engine("logs")


async def _until_connected(rest: httpx2.AsyncClient) -> None:
    """Waits until both servers are there: at first they are downloaded."""
    states: list[str] = []
    while states != ["ready", "ready"]:
        states = [server["state"] for server in (await rest.get("/api/v1/servers")).json()["servers"]]
        await anyio.sleep(0.2)


@pytest.mark.parametrize("target", ["slim", "full"])
def test_the_image_says_what_it_is_and_holds_no_secret(target: str) -> None:
    """Labels, port, volume, user, health check; no variable that is named like a secret."""
    image = json.loads(image_script("engine", "inspect", f"mcpproxy:{target}"))[0]
    config = image["Config"]
    labels = {name: text for name, text in config["Labels"].items() if name.startswith("org.opencontainers.")}
    assert labels.pop("org.opencontainers.image.base.name")
    assert labels == LABELS
    assert (list(config["ExposedPorts"]), list(config["Volumes"])) == (["8000/tcp"], ["/data"])
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][0] == "dumb-init"
    history = image_script("engine", "history", "--no-trunc", f"mcpproxy:{target}")
    for word in ("TOKEN", "SECRET", "PASSWORD"):
        assert word not in " ".join(config["Env"])
        assert word not in history
    if not os.environ.get("BASE"):  # one that somebody named may be as large as they like
        assert image["Size"] <= MOST_BYTES[target]


PLACES = ("deploy/secrets/auth_token", ".env", "mcp_config.json", "data/catalog.db", "smart_mcp_proxy/.env")
"""Where a checkout may hold what is nobody else's."""
SHIPPED = b"Loads the settings from environment and flags"
"""Of a file of the package: words that a search of an image finds."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what git tracks here, as it is now, and a repository of its own."""
    if not (ROOT / ".git").exists():
        pytest.skip("This folder is no checkout of git.")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    for words in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_what_git_does_not_track_gets_into_no_image(checkout: Path) -> None:
    """Secrets, settings and data in the checkout, and in the package's folder; each layer is searched."""
    name, canary = f"mcpproxy-test-{secrets.token_hex(4)}", f"canary-{secrets.token_hex(16)}"
    for place in PLACES:
        (checkout / place).parent.mkdir(parents=True, exist_ok=True)
        (checkout / place).write_text(canary)
    try:
        words, environ = [checkout / "scripts" / "image.sh", "build"], {**os.environ, "NAME": name}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=5 * LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        for target in ("slim", "full"):
            assert _found_in_image(f"{name}:{target}", {canary.encode(), SHIPPED}) == {SHIPPED}
    finally:
        image_script("engine", "rmi", f"{name}:slim", f"{name}:full", check=False)


def _found_in_image(image: str, words: set[bytes]) -> set[bytes]:
    """Those of the words that stand in the image: its configuration, its history, and the files of its layers."""
    found: set[bytes] = set()
    with (
        subprocess.Popen([SCRIPT, "engine", "save", image], stdout=subprocess.PIPE) as saving,
        tarfile.open(fileobj=saving.stdout, mode="r|") as archive,
    ):
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                found |= _found(file, words)
        assert saving.stdout is not None
        saving.stdout.read()  # what fills the last block; without a reader the engine would fail
    assert saving.returncode == 0
    return found


def _found(file: Any, words: set[bytes]) -> set[bytes]:
    """Those of the words that stand in a file, which may be compressed."""
    found: set[bytes] = set()
    stream, seen = io.BufferedReader(file), b""
    plain = gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == b"\x1f\x8b" else stream
    while chunk := plain.read(1 << 20):
        seen = seen[-max(map(len, words)) :] + chunk
        found |= {word for word in words if word in seen}
    return found


def _list_pins(name: str) -> set[str]:
    """Package addresses of what a file of pins has for the Python of the images."""
    version = image_script("run", "--rm", "--entrypoint", "python3", "mcpproxy:slim", "--version").split()[-1]
    lines = (ROOT / "deploy" / "pins" / f"{name}.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line.removesuffix(" \\")) for line in lines if line[:1].isalnum()]
    fitting = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_full_version": version})]
    return {f"pkg:pypi/{pin.name}@{next(iter(pin.specifier)).version}" for pin in fitting}


@pytest.mark.parametrize(("target", "pinned"), [("slim", ["gateway"]), ("full", ["gateway", "runners"])])
def test_the_list_beside_an_image_has_what_is_pinned_and_nothing_else_of_python(target: str, pinned: list[str]) -> None:
    """It is written when the image is built, and also names the base's packages."""
    told = json.loads((ROOT / "build" / f"mcpproxy-{target}.cdx.json").read_text("utf-8"))
    addresses = {part["purl"] for part in told["components"]}
    assert {each for each in addresses if each.startswith("pkg:pypi/")} == set().union(*map(_list_pins, pinned))
    assert len([each for each in addresses if each.startswith("pkg:deb/")]) > 50
    assert told["metadata"]["component"]["purl"] == f"pkg:generic/smart-mcp-proxy@{__version__}"


def test_what_a_gateway_loads_is_compiled() -> None:
    """Where the root is read-only it would be compiled at each start; what is left out nobody loads."""
    done = image_script("run", "--rm", "--entrypoint", "python3", "mcpproxy:slim", "-c", COMPILED)
    assert done.splitlines()[-1] == "all of them are compiled"


def test_every_library_can_be_loaded_without_its_symbols() -> None:
    """Those that are used first in a rare case, too."""
    done = image_script("run", "--rm", "--entrypoint", "python3", "mcpproxy:slim", "-c", LIBRARIES)
    assert done.splitlines()[-1] == "all of them can be loaded"
