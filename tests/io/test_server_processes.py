"""Which server a process belongs to, by processes that are made up."""

import os
import socket
import sys

import pytest

from smart_mcp_proxy.io import server_processes
from smart_mcp_proxy.io.server_processes import LocalEnd, ServerProcesses, Strangers, ask_connection, find_connection

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


@pytest.mark.skipif(sys.platform != "linux", reason="the tables are Linux's")
@pytest.mark.parametrize(("family", "host"), [
    (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1"),
])  # fmt: skip
def test_the_tables_say_what_the_system_answers(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, host: str
) -> None:
    """Whose end of a connection it is, also where only one of both ways is there."""
    with socket.socket(family) as listener, socket.socket(family) as near:
        listener.bind((host, 0))
        listener.listen()
        near.connect(listener.getsockname())
        ends = near.getsockname()[:2], near.getpeername()[:2]
        own = LocalEnd(os.getuid(), os.fstat(near.fileno()).st_ino)
        assert find_connection(*ends) == own
        assert ask_connection(*ends) in (own, None)
        monkeypatch.setattr(server_processes, "ask_connection", lambda *ends: None)
        assert find_connection(*ends) == own
        assert find_connection((host, 1), ends[1]) is None


def test_a_process_is_no_stranger_because_one_before_had_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known by its number and by when it began."""
    with socket.socket() as held:
        inode, strangers = os.fstat(held.fileno()).st_ino, Strangers()
        assert not strangers.hold(inode, is_near=False)
        strangers.note(os.getpid(), held.fileno())
        assert strangers.hold(inode, is_near=True)
        stat = server_processes._read_stat(os.getpid())
        assert stat is not None
        monkeypatch.setattr(server_processes, "_read_stat", lambda pid: stat._replace(started=stat.started + 1))
        assert not strangers.hold(inode, is_near=True) and not strangers.hold(inode, is_near=False)
