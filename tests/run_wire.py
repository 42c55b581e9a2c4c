"""Nothing from an agent goes out to a server: every server over HTTP in the tests looks at the headers it is sent.

It holds in the whole run: a test in which a server was sent a header that is not on the list fails, whatever else it
shows. What is configured for a server may be sent to it, and so may an `authorization` that is no agent's.

A server in a process of its own notes what it is sent in a file, which is looked at after each test: only this
process knows what is configured and what agents sent. Standard library only: those servers use it, too.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "NOTES",
    "UPSTREAM_HEADERS",
    "Notes",
    "Watched",
    "came_from_agent",
    "configured_with",
    "look_at",
    "note",
    "noting",
    "sent_by_agents",
    "strays",
    "strays_in",
]

UPSTREAM_HEADERS = frozenset(
    {
        *("host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "connection"),
        *("authorization", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "traceparent"),
        *("cache-control", "dpop", "last-event-id", "x-run-canary"),
    }
)
"""All that an upstream may be sent besides what is configured for it; `authorization` only as its own."""
PARAMETER_PREFIX = "mcp-param-"
"""Of an argument that the tool's definition wants in a header.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http"""
NOTES = "RUN_WIRE_NOTES"
"""The variable that names the file to servers in processes of their own; one that is not told it notes nothing."""
LEAST_CHARS = 8
"""A shorter value may be anybody's word."""
HARMLESS = frozenset({"accept", "accept-encoding", "connection", "content-type", "host", "mcp-name", "user-agent"})
"""Headers of an agent whose values another client sends as well: a tool's own name is the same for all."""

configured: set[tuple[str, str]] = set()
"""Names and values of headers that an entry of this run is configured with."""
sent_by_agents: set[str] = set()
"""What agents sent in headers of their own."""
strays: list[str] = []
"""What reached a server and should not have, since the last look."""


def configured_with(headers: Mapping[str, str]) -> None:
    """Remembers what some server is to be sent."""
    configured.update((name.lower(), value) for name, value in headers.items())


def strays_in(headers: Mapping[str, str]) -> list[str]:
    """The names of headers that a server should not have been sent; all in lower case."""
    return [name for name, value in headers.items() if _is_stray(name, value) and (name, value) not in configured]


def _is_stray(name: str, value: str) -> bool:
    is_known = name in UPSTREAM_HEADERS or name.startswith(PARAMETER_PREFIX)
    return not is_known or any(sent in value for sent in sent_by_agents)


def look_at(headers: Mapping[str, str]) -> None:
    """Remembers what a server should not have been sent."""
    strays.extend(f"a server was sent the header {name!r}" for name in strays_in(headers))


def note(headers: Mapping[str, str]) -> None:
    """Writes down what a server in a process of its own was sent, before it answers."""
    if path := os.environ.get(NOTES):
        line = json.dumps({name.lower(): value for name, value in headers.items()})
        with Path(path).open("a", encoding="ascii") as file:
            file.write(line + "\n")


def noting() -> dict[str, str]:
    """What the environment of such a server needs besides, for the run to see its notes."""
    return {NOTES: os.environ[NOTES]}


class Notes:
    """What servers in processes of their own write down.

    Args:
        path: The file; not there as long as none of them was sent anything.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen_bytes = 0

    def look(self) -> None:
        """Looks at what has been written since the last look; a line that is being written is for the next."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._seen_bytes)
            whole, end, _ = file.read().rpartition(b"\n")
        self._seen_bytes += len(whole + end)
        for line in whole.splitlines():
            look_at(json.loads(line))


def came_from_agent(headers: Iterable[tuple[str, str]]) -> None:
    """Remembers what an agent sends in headers of its own."""
    sent = (value.removeprefix("Bearer ") for name, value in headers if name.lower() not in HARMLESS)
    sent_by_agents.update(value for value in sent if len(value) >= LEAST_CHARS)


class Watched:
    """An ASGI app that looks at every request.

    Args:
        app: Answers them.
        look: What is done with the headers; `note` where it is served by a process of its own.
    """

    def __init__(self, app: Any, look: Callable[[Mapping[str, str]], None] = look_at) -> None:
        self._app = app
        self._look = look

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            self._look({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        await self._app(scope, receive, send)
