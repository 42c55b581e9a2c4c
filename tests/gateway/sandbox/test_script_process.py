"""The process of a script: what it leaves behind when it is gone."""

import os
import shutil

import anyio
import pytest

from smart_mcp_proxy.gateway.sandbox.process import open_script_process
from smart_mcp_proxy.io.watchdog import Watchdog

pytestmark = pytest.mark.anyio

FLOOD_BYTES = 150_000
"""More than is read ahead: the end of the pipe behind it is never seen."""


async def test_output_that_nobody_read_holds_no_descriptor() -> None:
    """Or each script that prints a lot would cost one."""
    flood = shutil.which("head")
    assert flood is not None
    with anyio.fail_after(10):
        async with Watchdog() as watchdog:
            await watchdog.start()
            before = len(os.listdir("/proc/self/fd"))
            async with open_script_process([flood, "-c", str(FLOOD_BYTES), "/dev/zero"], watchdog) as process:
                while process.exit_code is None:
                    await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            assert len(os.listdir("/proc/self/fd")) == before
