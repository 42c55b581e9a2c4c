"""Which server a process belongs to, by processes that are made up."""

import pytest

from smart_mcp_proxy.io import server_processes
from smart_mcp_proxy.io.server_processes import ServerProcesses

DEEPEST = 1_000_000
STARTED = 5


def test_a_process_has_as_many_ancestors_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep a server's processes stand below it, they are its own; a stranger's are not."""
    real = server_processes._read_stat

    def read(pid: int) -> server_processes._Stat | None:
        if pid < DEEPEST:
            return real(pid)
        return server_processes._Stat(False, pid - 1 if pid % 10_000 else 1, pid, pid, STARTED)

    monkeypatch.setattr(server_processes, "_read_stat", read)
    look = ServerProcesses({DEEPEST: "deep"}, ["deep"])
    assert look.find_server(DEEPEST + 5_000) == "deep"
    assert look.find_server(DEEPEST + 15_000) is None
