"""The process of a server: what it leaves behind when it is gone."""

import os

import anyio
import pytest

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.stdio.process import ChildProcess

pytestmark = pytest.mark.anyio

FLOOD = "head -c 2000000 /dev/zero"
"""More than is read ahead: the end of the pipe behind it is never seen."""
HELD = "setsid sleep 600 & echo $!; wait"
"""Its pipes stay open: what left the group is not ended with it."""


@pytest.mark.parametrize("script", [FLOOD, HELD])
async def test_pipes_that_do_not_end_hold_no_descriptor(script: str) -> None:
    """Or a server that is restarted for ever would use them all up."""
    config = ServerConfig(name="s", transport="stdio", command="/bin/sh", args=("-c", script))
    before = len(os.listdir("/proc/self/fd"))
    with anyio.fail_after(20):
        child = await ChildProcess.start(config, dict(os.environ), lambda line: None)
        said = await child.read()
        await child.close()
        await anyio.lowlevel.checkpoint()
    if script == HELD:
        os.kill(int(said), 9)
    assert len(os.listdir("/proc/self/fd")) == before
