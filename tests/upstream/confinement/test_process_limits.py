"""Limits of servers' processes: what the system is told, and what users are."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.errors import ConfigError, UpstreamError
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream import find_way
from smart_mcp_proxy.upstream.confinement import sandbox
from smart_mcp_proxy.upstream.confinement.bubblewrap import find_bubblewrap
from smart_mcp_proxy.upstream.confinement.limits import container_limits, hint_limit, limit_command
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = pytest.mark.anyio

MODES = ("none", "sandbox") if find_way() else ("none",)
TELL = "import json, resource as r; print(json.dumps([r.getrlimit(r.RLIMIT_DATA), r.getrlimit(r.RLIMIT_NOFILE)]))"


def entry_with(limits: dict[str, int], **entry: Any) -> Any:
    """A server of Python with limits."""
    return parse_entry("s", {"command": sys.executable, "args": ["-c", TELL], "limits": limits} | entry)[0]


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_starts_with_its_limits(tmp_path: Path, mode: str) -> None:
    """Both hold before its first instruction, and it may raise neither."""
    config = entry_with({"memory_mb": 512, "open_files": 99}, isolation=mode)
    with anyio.fail_after(20):
        child = await ChildProcess.start(config, dict(os.environ), print, None, Shelter(tmp_path))
        try:
            assert json.loads(await child.read()) == [[512 << 20, 512 << 20], [99, 99]]
        finally:
            await child.close()


@pytest.mark.parametrize("mode", MODES)
async def test_no_file_grows_beyond_its_limit(tmp_path: Path, mode: str) -> None:
    """The server is told as its system tells programs of a full disk."""
    script = "f = open('grown', 'wb', 0)\nprint(f.write(bytes(1 << 20)), flush=True)\nf.write(b'x')"
    config = entry_with({"file_mb": 1}, isolation=mode, args=["-c", script], cwd=str(tmp_path))
    lines: list[str] = []
    with anyio.fail_after(20):
        child = await ChildProcess.start(config, dict(os.environ), lines.append, None, Shelter(tmp_path / "shelter"))
        try:
            assert await child.read() == b"1048576\n"
            assert await child.read() == b""
        finally:
            await child.close()
    assert (tmp_path / "grown").stat().st_size == 1 << 20
    assert hint_limit(config, lines) == " Its limits.file_mb is 1, which may be why."


def test_a_server_without_limits_starts_by_its_own_command() -> None:
    """No program stands before it; nor does one where the command is not there, whose own error is clearer."""
    config = entry_with({"call_s": 5})
    assert limit_command(config, os.environ["PATH"]) == (sys.executable, "-c", TELL)
    missing = entry_with({"memory_mb": 512}, command="no-such-program", args=[])
    assert limit_command(missing, os.environ["PATH"]) == ("no-such-program",)


@pytest.mark.parametrize(
    ("limits", "path", "message"),
    [
        ({"processes": 5}, "/usr/bin", "limits.processes, and only a container keeps it, or bubblewrap"),
        ({"memory_mb": 5}, "/nowhere", "limits.memory_mb, and the program prlimit is missing"),
        ({"open_files": 5}, "/nowhere", "limits.open_files, and the program prlimit is missing"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(limits: dict[str, int], path: str, message: str) -> None:
    """A server never runs without one that was asked for."""
    with pytest.raises(UpstreamError, match=message):
        limit_command(entry_with(limits), path)


FORK = """
import os, time
pids = []
try:
    while len(pids) < 30:
        pids.append(os.fork())
        if not pids[-1]:
            time.sleep(600)
except OSError as error:
    print(len(pids), error.strerror, flush=True)
"""


@pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap may not be used")
@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel counts no processes of root")
async def test_bubblewrap_keeps_the_number_of_processes(tmp_path: Path) -> None:
    """Of this server alone: of the user's others there are more."""
    config = entry_with({"processes": 8}, args=["-c", FORK], isolation="sandbox")
    others = [subprocess.Popen(["sleep", "600"]) for _ in range(10)]
    try:
        with anyio.fail_after(20):
            child = await ChildProcess.start(config, dict(os.environ), print, None, Shelter(tmp_path))
            try:
                count, _, reason = (await child.read()).decode().partition(" ")
                assert (
                    1 <= int(count) < 8
                    and hint_limit(config, [reason]) == " Its limits.processes is 8, which may be why."
                )
            finally:
                await child.close()
    finally:
        for each in others:
            each.kill()
            each.wait()


@pytest.mark.skipif(find_way() is None, reason="this system has no sandbox")
async def test_a_number_of_processes_is_refused_where_nothing_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, on an earlier kernel, and without bubblewrap."""
    config = entry_with({"processes": 8}, isolation="sandbox")
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    for user, release in ((0, "6.1.0"), (1000, "5.13.9-x"), (1000, "6.1.0")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        monkeypatch.setattr(platform, "release", lambda release=release: release)
        with pytest.raises(UpstreamError, match=r"limits\.processes, and only a container"):
            await ChildProcess.start(config, dict(os.environ), print, None, Shelter(tmp_path))


def test_a_container_keeps_all_of_them() -> None:
    """In its engine's words."""
    config = entry_with({"memory_mb": 512, "open_files": 99, "processes": 20, "file_mb": 1})
    kept = ["--memory=512m", "--ulimit=nofile=99:99", "--pids-limit=20", "--ulimit=fsize=1048576:1048576"]
    assert list(container_limits(config)) == kept
    assert list(container_limits(entry_with({}))) == []


@pytest.mark.parametrize(
    ("limits", "line", "limit"),
    [
        ({"memory_mb": 512}, "MemoryError", "memory_mb is 512"),
        ({"memory_mb": 512}, "FATAL ERROR: Reached heap limit - JavaScript heap out of memory", "memory_mb is 512"),
        ({"open_files": 9}, "OSError: [Errno 24] Too many open files: '/x'", "open_files is 9"),
        ({"processes": 9}, "RuntimeError: can't start new thread", "processes is 9"),
        ({"file_mb": 9}, "OSError: [Errno 27] File too large", "file_mb is 9"),
        ({"open_files": 9}, "MemoryError", ""),
        ({}, "MemoryError", ""),
    ],
)
def test_a_limit_that_was_met_is_named(limits: dict[str, int], line: str, limit: str) -> None:
    """If the entry sets it, and what the server wrote speaks of it."""
    hint = hint_limit(entry_with(limits), ["Traceback:", line, "  at x"])
    assert hint == (f" Its limits.{limit}, which may be why." if limit else "")


def test_a_limit_is_a_whole_number() -> None:
    """Of one or more."""
    with pytest.raises(ConfigError, match=r"limits\.memory_mb"):
        entry_with({"memory_mb": 0})
