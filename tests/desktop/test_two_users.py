"""Two users of one machine never meet, even where folders would let them."""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from homes import Home, wait_for

from smart_mcp_proxy.desktop.joining import Place
from smart_mcp_proxy.desktop.places import make_private

OTHER = 54_321
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="needs another user, which root alone can be"
)


@contextmanager
def as_other(work: Callable[[], bytes]) -> Iterator[int]:
    """A process of the other user that does this work; a descriptor from which its outcome can be read.

    Forked: the interpreter's own file is in a home that is closed to others.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(OTHER)
        os.setuid(OTHER)
        os.write(writes, work())
        os._exit(0)
    os.close(writes)
    try:
        yield reads
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)


def ask_at(path: Path) -> bytes:
    """Connects, and gives what it is told."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        return b"told: " + link.recv(99)


def listen_at(path: Path) -> bytes:
    """Listens, and gives what the first that connects says."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        held, _ = listener.accept()
        return b"told: " + held.recv(99)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can write to."""
    with tempfile.TemporaryDirectory(prefix="desk-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_a_connection_of_another_user_is_refused(open_folder: Path) -> None:
    """The gateway says whose it was, and nothing else."""
    home = Home(open_folder)
    try:
        home.client().greet()
        (path,) = (home.data / "run").glob("join-*.sock")
        for each in (path, path.parent, home.data):
            each.chmod(0o777)
        with as_other(partial(ask_at, path)) as outcome:
            assert os.read(outcome, 99) == b"told: "
        wait_for(lambda: f"of user {OTHER} was refused" in (home.data / "run" / "background.log").read_text())
    finally:
        home.close()


def test_a_gateway_of_another_user_is_not_joined(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens in the place of ours is told nothing."""
    place = Place([], {"MCPPROXY_DATA_DIR": str(open_folder), "HOME": str(open_folder)})
    place.path = str(open_folder / "s")
    with as_other(partial(listen_at, open_folder / "s")) as outcome:
        wait_for((open_folder / "s").exists)
        with pytest.raises(PermissionError, match=f"of user {OTHER}"):
            place.connect()
        assert os.read(outcome, 99) == b"told: "


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_folder_that_others_can_write_to_holds_no_socket(open_folder: Path, mode: int) -> None:
    """Nor one that is theirs."""
    folder = open_folder / "run"
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, OTHER if mode == 0o700 else 0, -1)
    with pytest.raises(PermissionError):
        make_private(str(folder))
