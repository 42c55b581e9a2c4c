"""kill -9 of the gateway while the operator's command runs: the command does not outlive it."""

from pathlib import Path

import pytest
from worlds import SmallServer, connected, end, is_alive, until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

ORPHAN_S = 5.0


async def test_the_operators_command_ends_with_a_killed_gateway(tmp_path: Path) -> None:
    """With all that it has started, within seconds."""
    pid_file = tmp_path / "pids"
    script = tmp_path / "hook"
    script.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $$ $! > '{tmp_path}/new'\nmv '{tmp_path}/new' '{pid_file}'\nwait\n"
    )
    script.chmod(0o700)
    settings = {"ROUTING_TYPE": "DYNAMIC", "LIST_CHANGED_EXEC": str(script)}
    pids: list[int] = []
    try:
        async with connected(tmp_path / "data", SmallServer(tmp_path / "world"), **settings) as client:
            await until(pid_file.exists)  # the search for what is covered has changed the client's list
            pids += map(int, pid_file.read_text().split())
            assert all(map(is_alive, pids))
            client.process.kill()
            await until(lambda: not any(map(is_alive, pids)), ORPHAN_S)
    finally:
        end(pids, str(script), "sleep")
