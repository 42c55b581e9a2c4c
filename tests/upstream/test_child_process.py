"""The process of a server: what it leaves behind when it is gone."""

import asyncio
import contextlib
import os
import signal
import threading
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.config import Isolation, IsolationMode
from smart_mcp_proxy.upstream import find_way
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = pytest.mark.anyio

MODES: tuple[IsolationMode, ...] = ("none", "sandbox") if find_way() else ("none",)

FLOOD = "head -c 2000000 /dev/zero"
"""More than is read ahead: the end of the pipe behind it is never seen."""
HELD = "setsid sleep 600 & echo $!; wait"
"""Its pipes stay open: what left the group is not ended with it."""


def shell(script: str, mode: IsolationMode) -> ServerConfig:
    """A server that is a script of the shell."""
    return ServerConfig(name="s", transport="stdio", command="/bin/sh", args=("-c", script), isolation=Isolation(mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", [FLOOD, HELD])
async def test_pipes_that_do_not_end_hold_no_descriptor(script: str, mode: IsolationMode) -> None:
    """Or a server that is restarted for ever would use them all up."""
    config = shell(script, mode)
    before = len(os.listdir("/proc/self/fd"))
    with anyio.fail_after(20):
        child = await ChildProcess.start(config, dict(os.environ), lambda line: None)
        said = await child.read()
        await child.close()
        await anyio.lowlevel.checkpoint()
    if script == HELD:
        os.kill(int(said), 9)
    assert len(os.listdir("/proc/self/fd")) == before


def find_children() -> set[str]:
    """Process ids of what this process started and has not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while it was looked at
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(stat.parent.name)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_nothing(mode: IsolationMode, steps: int) -> None:
    """No process and no descriptor, at whichever step of the loop that is."""

    def has_ended() -> bool:
        threads = [each.name for each in threading.enumerate()]
        is_idle = not any("start confined" in name or "waitpid" in name for name in threads)
        return is_idle and (find_children(), len(os.listdir("/proc/self/fd")), asyncio.all_tasks()) == before

    before = find_children(), len(os.listdir("/proc/self/fd")), asyncio.all_tasks()
    with anyio.fail_after(20):
        starting = asyncio.create_task(
            ChildProcess.start(shell("sleep 600", mode), dict(os.environ), lambda line: None)
        )
        for step in range(steps):
            await asyncio.sleep(0)
            while step == 1 and any(each.name.startswith("start confined") for each in threading.enumerate()):
                await asyncio.sleep(0)
        starting.cancel()
        outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
        if isinstance(outcome, ChildProcess):
            await outcome.close()
        assert find_children() == before[0]  # or the loop of a short command might close before one is reaped
        while not has_ended():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # what a thread has posted last


@pytest.mark.parametrize("mode", MODES)
async def test_who_closes_it_may_be_cancelled(mode: IsolationMode) -> None:
    """It is ended, waited for and holds no descriptor all the same."""
    config = shell("sleep 600", mode)
    before = len(os.listdir("/proc/self/fd"))
    with anyio.fail_after(20):
        child = await ChildProcess.start(config, dict(os.environ), lambda line: None)
        closing = asyncio.create_task(child.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await anyio.lowlevel.checkpoint()
    assert child.exit_code == -signal.SIGKILL
    assert len(os.listdir("/proc/self/fd")) == before
