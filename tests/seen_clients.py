"""What a run of a foreign client leaves for the table of clients: which client it was, and the era that it spoke."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from forked_programs import run_forked

HANDSHAKE = "handshake"


def era_of_newest(env: Mapping[str, str]) -> str:
    """The protocol revision of the client that connected last, by the gateway's activity log."""
    words = ("activity", "list", "--kind", "session", "--json", "--limit", "1")
    done = run_forked(*words, cwd=Path.cwd(), env=env)
    rows = json.loads(done.out or "[]") if done.status == 0 else []
    return str(rows[0]["detail"].get("protocol", HANDSHAKE)) if rows else ""


def note(record: Callable[[str, object], None], client: str, version: str, transport: str) -> None:
    """Write into the report of this test which client it drove."""
    for name, value in {"client": client, "version": version, "transport": transport}.items():
        record(name, value)
