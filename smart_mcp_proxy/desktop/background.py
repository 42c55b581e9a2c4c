"""Start of a gateway in the background, which takes nothing of the client that happens to start it."""

import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from smart_mcp_proxy.desktop.places import make_private

LISTENER: Final = 3
"""The descriptor of the socket that the gateway is given: whoever connects meanwhile waits in its queue."""
_QUEUE: Final = 128
_USUAL_DESCRIPTORS: Final = 1_024


@contextmanager
def lock_socket(path: str) -> Iterator[None]:
    """Keep others from binding or removing this socket while open.

    Raises:
        OSError: Its folder or lock cannot be made.
    """
    make_private(os.path.dirname(path))
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def listen_at(path: str) -> socket.socket:
    """A listening socket of this user's alone at `path`, at which nobody listens any more.

    Where several may want the path, its lock is held.

    Raises:
        OSError: The path is too long, or cannot be written.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen(_QUEUE)
    except OSError as exc:
        listener.close()
        exc.filename = path
        raise
    finally:
        os.umask(before)
    return listener


def start_in_background(
    words: list[str], listener: socket.socket, environ: Mapping[str, str], folder: str, log: str
) -> None:
    """Start this program as a process that shares nothing with this one.

    Args:
        words: Its command line.
        listener: Its socket, as descriptor `LISTENER`.
        environ: Its environment.
        folder: Its working directory.
        log: File for what it writes to stderr; what is there is kept beside it as `.old`.

    Raises:
        OSError: The system starts no process, or the log cannot be written.
    """
    with suppress(FileNotFoundError):
        os.replace(log, f"{log}.old")
    stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    _become([sys.executable, "-P", "-m", "smart_mcp_proxy", *words], listener, environ, folder, stderr)
            finally:
                os._exit(0)
    finally:
        os.close(stderr)
    with suppress(ChildProcessError):  # where the client ignores SIGCHLD the system takes it away
        os.waitpid(child, 0)


def _close_above(last: int) -> None:
    """Close every descriptor behind this one; not all up to the limit, which may be a billion."""
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:  # without /proc
        numbers = list(range(_USUAL_DESCRIPTORS))
    for number in numbers:
        if number > last:
            with suppress(OSError):  # that of the listing itself
                os.close(number)


def _become(argv: list[str], listener: socket.socket, environ: Mapping[str, str], folder: str, stderr: int) -> None:
    os.chdir(folder)
    os.umask(0o022)
    listener.listen(_QUEUE)  # anew: who connects is told that this process listens
    null = os.open(os.devnull, os.O_RDWR)
    # Out of the way of the four numbers that they get.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (null, null, stderr, listener.fileno())]
    for number, each in enumerate(high):
        os.dup2(each, number)
    _close_above(LISTENER)
    for limit in ("AS", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC"):
        if hasattr(resource, name := f"RLIMIT_{limit}"):
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            with suppress(OSError, ValueError):  # macOS refuses what it calls unlimited
                resource.setrlimit(kind, (hard, hard))
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))  # less what its user may not have
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(each, signal.SIG_DFL)
    os.execve(argv[0], argv, dict(environ))
