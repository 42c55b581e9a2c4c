"""A client that starts the gateway with a pipe for its log and never reads it."""

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import ENVIRON, LINE_BYTES, Client, SmallServer, end, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")]

PIPE_BYTES = 1024 * 1024
"""As large as the gateway makes it."""


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end to write to of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(writer, bytes(PIPE_BYTES))
    yield writer
    os.close(writer)
    os.close(reader)


@pytest.mark.long  # a whole start
async def test_a_log_that_nobody_reads_holds_nothing_up(tmp_path: Path, full_pipe: int) -> None:
    """F64: the gateway starts, serves and ends as ever, at its most talkative."""
    small = SmallServer(tmp_path / "world")
    settings = {
        "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": {"up": small.entry}}),
        "MCPPROXY_DATA_DIR": str(tmp_path / "data"),
        "MCPPROXY_LOG_LEVEL": "DEBUG",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "smart_mcp_proxy", "serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=full_pipe,
        env=ENVIRON | settings,
        limit=LINE_BYTES,
    )
    try:
        client = Client(process)
        await client.greet()
        await client.covered()
        call = client.call("call_tool_write", {"name": "up:echo", "args": {"text": "a"}})
        assert text_of(await client.result(call)) == "said a"
        client.stdin.close()
        assert (await client.ended())[0] == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        end(small.pids())
