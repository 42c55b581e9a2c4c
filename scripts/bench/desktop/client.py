"""Clients on stdio, each in a thread: greeting, first search, and one call of a tool of each server."""

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Client", "Compressed", "Dialect", "Listed", "Ours", "Times", "start_all"]

LIMIT_S = 240.0
"""For one client to reach everything; many heavy servers on two cores take minutes."""
_AGAIN_S = 0.05
"""Between two tries of a tool that cannot be called yet."""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
LAST_TOOL = "tool19"


@dataclass(frozen=True, slots=True)
class Times:
    """What one client has seen, in seconds from its spawn.

    Attributes:
        greeted: Answer to the greeting.
        searched: First answer that names tools.
        callable: Every server's last tool has answered.
        ended: Same, on the clock that all clients share.
    """

    greeted: float
    searched: float
    callable: float
    ended: float


class Client:
    """One process and the client at its pipes.

    Args:
        command: What the client starts.
        environ: With this environment.
        log: Gets what it writes to stderr.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.start = time.perf_counter()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environ, bufsize=0,
                cwd=environ["HOME"],
            )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._sink, self._source = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._rest = b""
        self._number = 0
        self._log = log

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; what else comes meanwhile is left out."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = json.loads(self._read_line())
            if message.get("id") == self._number and "method" not in message:
                return dict(message)

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a tool; empty where it is an error."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments}).get("result", {})
        return {} if result.get("isError") else dict(result)

    def greet(self) -> None:
        """Opens the session."""
        self.ask("initialize", HELLO)
        self._send({"method": "notifications/initialized"})

    def since_start(self) -> float:
        """Seconds from the spawn."""
        return time.perf_counter() - self.start

    def close(self) -> None:
        """Leaves, as clients do, and waits for the end of the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()
        self.process.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        os.write(self._sink, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _read_line(self) -> bytes:
        while b"\n" not in self._rest:
            left = LIMIT_S - self.since_start()
            if left <= 0 or not select.select([self._source], [], [], left)[0]:
                raise TimeoutError(f"no answer after {LIMIT_S:g} s: {self._last_words()}")
            chunk = os.read(self._source, 1 << 20)
            if not chunk:
                raise EOFError(f"the process ended: {self._last_words()}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-1000:]


class Dialect(Protocol):
    """How tools are found and called in one kind of gateway."""

    def search(self, client: Client) -> bool:
        """Whether a search, or what takes its place, has named tools."""

    def call(self, client: Client, server: str) -> bool:
        """Whether the last tool of a server has answered."""


class Ours:
    """Search and call by the tools of this gateway."""

    def search(self, client: Client) -> bool:
        found = client.call("retrieve_tools", {"query": "count the sheep"}).get("structuredContent", {})
        return bool(found.get("tools"))

    def call(self, client: Client, server: str) -> bool:
        return bool(client.call("call_tool_read", {"name": f"{server}:{LAST_TOOL}", "args": {}}))


class Compressed:
    """mcp-compressor: a list that names the tools, then the schema of one of them, stand for a search."""

    def search(self, client: Client) -> bool:
        tools = client.ask("tools/list", {}).get("result", {}).get("tools", [])
        schemas = [tool["name"] for tool in tools if tool["name"].endswith("get_tool_schema")]
        return bool(schemas) and bool(client.call(schemas[0], {"tool_name": LAST_TOOL}))

    def call(self, client: Client, server: str) -> bool:
        return bool(client.call(f"{server}_invoke_tool", {"tool_name": LAST_TOOL, "tool_input": {}}))


class Listed:
    """mcp-hub: the list itself, with names such as `s0__tool19`."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def search(self, client: Client) -> bool:
        tools = client.ask("tools/list", {}).get("result", {}).get("tools", [])
        self._names = [tool["name"] for tool in tools]
        return bool(self._names)

    def call(self, client: Client, server: str) -> bool:
        name = next((each for each in self._names if each.startswith(f"{server}_") and each.endswith(LAST_TOOL)), None)
        if name is None:
            self.search(client)
            return False
        return bool(client.call(name, {}))


def start_all(
    count: int, command: Sequence[str], environ: Mapping[str, str], log: Path, dialect: Dialect, servers: Sequence[str]
) -> tuple[list[Client], list[Times]]:
    """So many clients that start at the same moment, and what each has seen once it can call everything."""
    clients = [Client(command, environ, log) for _ in range(count)]
    found: list[Times | Exception | None] = [None] * count

    def run(place: int) -> None:
        try:
            found[place] = _use(clients[place], dialect, servers)
        except (OSError, EOFError, ValueError) as exc:
            found[place] = exc

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        if not isinstance(each, Times):
            for client in clients:
                client.close()
            raise RuntimeError("a client could not reach its tools") from each
    return clients, [each for each in found if isinstance(each, Times)]


def _use(client: Client, dialect: Dialect, servers: Sequence[str]) -> Times:
    client.greet()
    greeted = client.since_start()
    while not dialect.search(client):
        _wait(client)
    searched = client.since_start()
    for server in servers:
        while not dialect.call(client, server):
            _wait(client)
    return Times(greeted, searched, client.since_start(), time.perf_counter())


def _wait(client: Client) -> None:
    if client.since_start() > LIMIT_S:
        raise TimeoutError(f"not everything can be called after {LIMIT_S:g} s")
    time.sleep(_AGAIN_S)
