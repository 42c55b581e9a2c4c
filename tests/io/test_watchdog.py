"""What is left to the watchdog when the gateway is killed."""

import asyncio
import os
import sys

import anyio
import pytest

from smart_mcp_proxy.io.watchdog import Watchdog

pytestmark = pytest.mark.anyio

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found by their environment in /proc")
async def test_a_child_that_nobody_could_tell_of_any_more_is_ended() -> None:
    """The gateway may be killed between the start of a server and the line that names its group."""
    async with Watchdog() as watchdog:
        await watchdog.start()
        announcement = watchdog.announce_child()
        mark = await announcement.__aenter__()
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", STUBBORN),
            stdout=asyncio.subprocess.PIPE,
            env=mark,
            start_new_session=True,
        )
        try:
            assert child.stdout is not None
            with anyio.fail_after(30):
                await child.stdout.readline()
                await watchdog.__aexit__()  # as the pipe closes with the gateway: the announcement still stands
                assert await child.wait() == -9
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            await announcement.__aexit__(None, None, None)
