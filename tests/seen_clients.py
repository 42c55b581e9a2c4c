"""What a run of a foreign client leaves for the table of clients: which client it was, and the era that it spoke."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping

HANDSHAKE = "handshake"


def era_of_newest(env: Mapping[str, str]) -> str:
    """The protocol revision of the client that connected last, by the gateway's activity log."""
    command = [
        sys.executable,
        "-m",
        "smart_mcp_proxy",
        "activity",
        "list",
        "--kind",
        "session",
        "--json",
        "--limit",
        "1",
    ]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=60, check=False)
    rows = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return str(rows[0]["detail"].get("protocol", HANDSHAKE)) if rows else ""


def note(record: Callable[[str, object], None], client: str, version: str, transport: str) -> None:
    """Write into the report of this test which client it drove."""
    for name, value in {"client": client, "version": version, "transport": transport}.items():
        record(name, value)
