"""Ways from clients to servers: a gateway for each client, one for all, and what peers do."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.desktop.client import Compressed, Dialect, Listed, Ours, start_all
from bench.targets import free_port

__all__ = ["EARLIER", "PEERS", "Place", "Way", "build_earlier", "find_ways", "make_place"]

EARLIER = "earlier"
"""Name of the way in which another build of ours starts a gateway for each client."""

PEERS = {"mcp-hub": "BENCH_MCP_HUB", "mcp-compressor": "BENCH_MCP_COMPRESSOR"}
"""Programs of peers, and the environment variables that say where they are if not on the PATH."""
_PASSED = ("PATH", "LANG", "LC_ALL")
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """A home of its own, with a server file.

    Attributes:
        home: HOME and working directory of the clients.
        servers: Names in the server file.
    """

    home: Path
    servers: tuple[str, ...]

    @property
    def config(self) -> Path:
        """The server file."""
        return self.home / "data" / "mcp_config.json"

    @property
    def log(self) -> Path:
        """What all of them write to stderr."""
        return self.home / "stderr.log"

    @property
    def environ(self) -> dict[str, str]:
        """Of every process that is started here."""
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        return {**passed, "HOME": str(self.home), "MCPPROXY_DATA_DIR": str(self.home / "data")}


@dataclass(frozen=True, slots=True)
class Way:
    """How clients reach their servers.

    Attributes:
        name: In the table.
        command: What a client starts.
        dialect: How it finds and calls tools.
        is_running: Whether a gateway runs before the clients start.
        begin: Starts what runs before; returns what ends it.
    """

    name: str
    command: tuple[str, ...]
    dialect: Callable[[], Dialect]
    is_running: bool
    begin: Callable[[Place], Callable[[], None]]


def make_place(home: Path, weight: str, count: int) -> Place:
    """A home whose servers are all of one weight, each a process of its own."""
    isolated = ["-S", "-E", "-I"] if weight == "raw" else []
    script = str(Path(__file__).with_name("server.py"))
    entry = {"command": sys.executable, "args": [*isolated, script, weight]}
    place = Place(home, tuple(f"s{number}" for number in range(count)))
    place.config.parent.mkdir(parents=True)
    place.config.write_text(json.dumps({"mcpServers": dict.fromkeys(place.servers, entry)}))
    return place


def find_ways(options: Mapping[str, str | None]) -> tuple[list[Way], list[str]]:
    """All ways that can be measured here, and a sentence for each peer that is not installed.

    Args:
        options: Programs of peers by their names, where the command line says.
    """
    program = (sys.executable, "-m", "smart_mcp_proxy", "serve")
    installed = Path(sys.executable).with_name("mcpproxy")
    ours = (str(installed), "serve") if installed.exists() else program
    ways = [
        Way("alone", (*ours, "--alone"), Ours, False, lambda _: _do_nothing),
        Way("joined, gateway running", ours, Ours, True, lambda place: _run_gateway(place, ours)),
        Way("joined, from nothing", ours, Ours, False, lambda place: _stop_later(place, ours)),
    ]
    missing = []
    for name, variable in PEERS.items():
        path = options.get(name) or os.environ.get(variable) or shutil.which(name)
        if path is None:
            flag = f"--{name}"
            missing.append(f"{name} is not installed: no row of it ({flag} or {variable} says where it is).")
        elif name == "mcp-hub":
            ways.append(_build_hub(path))
        else:
            command = (path, "--config", "CONFIG")
            ways.append(Way(name, command, Compressed, False, lambda _: _do_nothing))
    return ways, missing


def build_earlier(program: str) -> Way:
    """A gateway for each client, of a build in which `serve` shares none.

    Args:
        program: Its `mcpproxy`.

    Raises:
        SystemExit: There is no such program.
    """
    if shutil.which(program) is None:
        raise SystemExit(f"--earlier is {program!r}, which is no program. Give the path of an earlier mcpproxy.")
    return Way(EARLIER, (program, "serve"), Ours, False, lambda _: _do_nothing)


def _do_nothing() -> None:
    pass


def _stop_later(place: Place, ours: Sequence[str]) -> Callable[[], None]:
    def stop() -> None:
        subprocess.run([*ours[:-1], "stop"], env=place.environ, cwd=place.home, check=False, capture_output=True)

    return stop


def _run_gateway(place: Place, ours: Sequence[str]) -> Callable[[], None]:
    """A client that has come and gone: the gateway stays for the next."""
    clients, _ = start_all(1, ours, place.environ, place.log, Ours(), place.servers)
    for client in clients:
        client.close()
    return _stop_later(place, ours)


def _build_hub(program: str) -> Way:
    """One hub for all; the npm package mcp-remote, installed beside it, is what each client starts."""
    port = free_port()
    door = (str(Path(program).with_name("mcp-remote")), f"http://127.0.0.1:{port}/mcp", "--transport", "sse-only")

    def begin(place: Place) -> Callable[[], None]:
        command = [program, "--config", str(place.config), "--port", str(port)]
        with place.log.open("ab") as log:
            process = subprocess.Popen(command, env=place.environ, cwd=place.home, stdout=log, stderr=log)

        def end() -> None:
            process.terminate()
            process.wait()

        try:
            _await_port(port)
            clients, _ = start_all(1, way.command, place.environ, place.log, Listed(), place.servers)
        except BaseException:
            end()
            raise
        for client in clients:
            client.close()
        return end

    way = Way("mcp-hub, running", door, Listed, True, begin)
    return way


def _await_port(port: int) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens at port {port} after {_READY_S:g} s")
