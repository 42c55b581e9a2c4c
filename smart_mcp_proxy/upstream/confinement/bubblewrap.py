"""Confinement by bubblewrap: mounts, processes and, if asked for, network of its own."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import PurePath
from subprocess import DEVNULL, TimeoutExpired, run
from typing import Final

from smart_mcp_proxy.upstream.confinement.places import PRIVATE, SYSTEM
from smart_mcp_proxy.upstream.confinement.reach import ServerReach

_NAMESPACES: Final = ("user", "pid", "ipc", "uts")
_TRIAL_S: Final = 5.0
STEERS_LOADER: Final = r"LD_.*|GLIBC_TUNABLES|GCONV_PATH"
"""Variables that load code into bubblewrap itself, which nothing confines: they are set inside."""
_OF_ITS_OWN: Final = ("/proc", "/sys", "/dev")


def find_bubblewrap() -> str | None:
    """The program, if it is installed and the system lets it work; None else."""
    with suppress(LookupError):  # never remembered: it may be installed meanwhile
        return _try_bubblewrap(shutil.which("bwrap"))
    return None


@cache
def _try_bubblewrap(program: str | None) -> str:
    if program is None:
        raise LookupError
    trial = [program, *_unshare(network=True), "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/true"]
    try:
        code = run(trial, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, timeout=_TRIAL_S, check=False).returncode
    except (OSError, TimeoutExpired) as exc:
        raise LookupError from exc
    if code:
        raise LookupError
    return program


@contextmanager
def open_system_files(reach: ServerReach) -> Iterator[dict[str, int]]:
    """Open the single files of the system that a server may read: their descriptors by path."""
    with ExitStack() as opened:
        files: dict[str, int] = {}
        for path in filter(os.path.isfile, set(SYSTEM).intersection(reach.read)):
            if not path.startswith(_OF_ITS_OWN):
                with suppress(OSError):  # one that its user may not read
                    files[path] = opened.enter_context(open(path, "rb")).fileno()
        yield files


def wrap(
    program: str, reach: ServerReach, command: Sequence[str], filter_fd: int, files: Mapping[str, int]
) -> list[str]:
    """The command that starts a server inside.

    Args:
        program: bubblewrap's.
        reach: Of the server.
        command: Its own.
        filter_fd: Descriptor that the filter of its sockets is read from.
        files: Descriptors of files, by path, that it gets copies of, where their folder is not mounted.
    """
    # It stays in the group that it is started in, with which all of it ends: its parent is a thread that ends at once.
    # One that lists hosts has the network that bubblewrap is started in.
    words = [program, *_unshare(network=reach.network is not False), "--cap-drop", "ALL"]
    words += ["--seccomp", str(filter_fd), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    if reach.variables["TMPDIR"].startswith(reach.variables["HOME"]):
        words += ["--setenv", "TMPDIR", "/tmp"]  # short enough for the sockets of browsers
    for name, text in reach.variables.items():
        if re.fullmatch(STEERS_LOADER, name):
            words += ["--setenv", name, text]
    binds = {path: "--ro-bind-try" for path in reach.read if not path.startswith(_OF_ITS_OWN)}
    binds |= {path: "--bind-try" for path in reach.write if path not in PRIVATE}
    mounted: dict[str, str] = {}
    for path, option in sorted(binds.items()):  # a folder before what is in it, which comes with it
        above = _find_mount(mounted, path)
        if path in files and not above and option == "--ro-bind-try":
            words += ["--file", str(files[path]), path]  # a mount takes a third of a millisecond
            continue
        place = os.path.realpath(path) if above else path  # a link comes with its folder, what it leads to may not
        if mounted.get(_find_mount(mounted, place)) != option:
            mounted[place] = option
            words += _bind(option, place)
    return [*words, "--dir", reach.cwd, "--chdir", reach.cwd, "--", *command]


def _find_mount(mounted: Mapping[str, str], path: str) -> str:
    """The nearest folder above a path that is mounted; empty for none."""
    return next((each for each in map(str, PurePath(path).parents) if each in mounted), "")


def _bind(option: str, path: str) -> Iterator[str]:
    if os.path.islink(path) and os.path.dirname(path) == "/":
        yield from ("--symlink", os.readlink(path), path)
    else:
        yield from (option, path, path)


def _unshare(*, network: bool) -> list[str]:
    kinds = _NAMESPACES if network else (*_NAMESPACES, "net")
    return [*(f"--unshare-{kind}" for kind in kinds), "--unshare-cgroup-try"]
