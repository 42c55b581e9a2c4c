"""A desktop of the tests: a home with a server file, clients that start `mcpproxy serve`, the gateways they share."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("placed_server.py")
PROGRAM = (sys.executable, "-m", "smart_mcp_proxy")
LIMIT_S = 30.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def placed_server(*words: str, **entry: Any) -> dict[str, Any]:
    """The entry of a server that tells its process, folder, words and variable TOKEN."""
    return {"command": sys.executable, "args": ["-S", "-E", "-I", str(SERVER), *words], **entry}


class Client:
    """A client on stdio, with a gateway that it has started as a process."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, **options: Any) -> None:
        self.errors = cwd / f"stderr-{time.monotonic_ns()}"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=-1, stdout=-1, stderr=errors, env=dict(env), cwd=cwd, bufsize=0, **options
            )
        self._rest = b""
        self._number = 0

    @property
    def said(self) -> str:
        """What it wrote to stderr."""
        return self.errors.read_text("utf-8")

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message; EOFError at the end."""
        assert self.process.stdout is not None
        until_s = time.monotonic() + LIMIT_S
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until_s - time.monotonic()))
            assert ready, f"nothing came within {LIMIT_S} s: {self.said}"
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError(self.said)
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def begin(self, method: str, **params: Any) -> int:
        """Sends a request; returns its id."""
        self._number += 1
        self.send(id=self._number, method=method, params=params)
        return self._number

    def answer(self, request: int) -> dict[str, Any]:
        """The answer to a request; what comes before it is dropped."""
        while True:
            message = self.receive()
            if message.get("id") == request and "method" not in message:
                return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.begin(method, **params))

    def greet(self) -> dict[str, Any]:
        result = self.ask("initialize", **HELLO)
        self.send(method="notifications/initialized")
        return result

    def search(self, query: str = "where") -> dict[str, Any]:
        return self.ask("tools/call", name="retrieve_tools", arguments={"query": query})

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call, as soon as the server is there."""
        until_s = time.monotonic() + LIMIT_S
        params: dict[str, Any] = {"name": "call_tool_read", "arguments": {"name": name, "args": arguments}}
        while True:
            answer = self.ask("tools/call", **params)
            if "error" not in answer and not answer["result"].get("isError"):
                return answer["result"]
            assert time.monotonic() < until_s, answer

    def where(self, server: str) -> dict[str, Any]:
        """Where the server that answers this client runs."""
        found: dict[str, Any] = json.loads(self.call(f"{server}:where")["content"][0]["text"])
        return found

    def leave(self) -> int:
        """Closes its end, and returns the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Home:
    """A home directory, its server file, and what clients start there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.clients: list[Client] = []
        self.serve(placed=placed_server())

    def serve(self, **servers: dict[str, Any]) -> None:
        """Writes the server file."""
        (self.data / "mcp_config.json").write_text(json.dumps({"mcpServers": servers}))

    def environment(self, **variables: str) -> dict[str, str]:
        named = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "MCPPROXY_DATA_DIR": str(self.data)}
        named["MCPPROXY_ISOLATION"] = "none"  # tests/upstream/confinement has the sandbox
        return named | variables

    def client(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> Client:
        """A client that has started `mcpproxy serve WORDS`."""
        command = [*options.pop("before", ()), *PROGRAM, "serve", *words]
        client = Client(command, env or self.environment(), cwd or self.folder, **options)
        self.clients.append(client)
        return client

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs `mcpproxy WORDS` to its end."""
        return subprocess.run(
            [*PROGRAM, *words], env=self.environment(), cwd=self.folder, capture_output=True, text=True, check=False
        )

    def gateways(self) -> list[int]:
        """Processes that serve in the background on this data directory."""
        mark = f"MCPPROXY_DATA_DIR={self.data}".encode()
        return sorted(pid for pid, words, environ in processes() if b"--background" in words and mark in environ)

    def servers(self) -> list[int]:
        """Processes of this home's servers."""
        mark = f"HOME={self.folder}".encode()
        return sorted(pid for pid, words, environ in processes() if os.fsencode(SERVER) in words and mark in environ)

    def close(self) -> None:
        """Ends everything; fails where something goes on."""
        for client in self.clients:
            client.kill()
        for pid in self.gateways():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not self.gateways() and not self.servers())


def processes() -> list[tuple[int, list[bytes], list[bytes]]]:
    """Each process of this user, its words and its variables."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with suppress(OSError):
                words = (each / "cmdline").read_bytes().split(b"\0")
                found.append((int(each.name), words, (each / "environ").read_bytes().split(b"\0")))
    return found


def wait_for(is_so: Any) -> None:
    """Returns when something outside of this process has become true."""
    until_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.02)
