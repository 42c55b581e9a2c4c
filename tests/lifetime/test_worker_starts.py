"""Workers that are started and replaced: what their children inherit, and what becomes of failed starts."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from test_workers import NAMES, served

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def _channels(*pids: int) -> set[str]:
    """Sockets and pipes that processes have open."""
    found = set[str]()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed since
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {link for link in found if link.startswith(("socket:", "pipe:"))}


async def test_a_server_inherits_nothing_that_workers_share(tmp_path: Path) -> None:
    """Neither the port, letter boxes, the pipe that tells of the parent's end, nor the gateway's stdout."""
    async with served(tmp_path) as gateway:
        parents = [gateway.process.pid, *gateway.workers()]
        assert len(parents) == 3
        for name in NAMES:
            [server] = gateway.servers[name].pids()
            own = _channels(server)
            assert own, "its stdin and stdout"
            assert not own & _channels(*parents)
