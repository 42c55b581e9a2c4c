"""A gateway that stood still for a while, its connections dead meanwhile, goes on by itself."""

import asyncio
import sys
from pathlib import Path

import pytest
from two_servers import opened_front
from worlds import UPSTREAM, error_of, until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CALL_S = 2
ASLEEP_S = CALL_S + 1
BACK_S = 30


async def test_a_gateway_that_slept_ends_its_calls_and_is_back(tmp_path: Path) -> None:
    """F62: calls under way end, none is sent twice, and servers that were lost are there again without a restart."""
    async with opened_front(tmp_path, limits={"call_s": CALL_S}) as gateway:
        ways = {"up": gateway.up, "web": gateway.web}
        calls = {
            server: asyncio.ensure_future(
                gateway.client.call("call_tool_write", {"name": f"{server}:wait", "args": {"text": server}})
            )
            for server in ways
        }
        for server, small in ways.items():
            await until(lambda small=small, server=server: server in small.waiting())
        with gateway.standing_still():
            for small in ways.values():
                await gateway.lose(small)
            port = (gateway.web.directory / "port").read_text()
            again = (sys.executable, "-S", str(UPSTREAM), str(gateway.web.directory), port)
            other = await asyncio.create_subprocess_exec(*again)
            await until(lambda: len(gateway.web.pids()) == 2)
            await asyncio.sleep(ASLEEP_S)  # what is tested is that time goes by
        try:
            async with asyncio.timeout(BACK_S):
                for call in calls.values():
                    error = error_of(await call)
                    assert error["code"] in ("upstream_timeout", "upstream_failed")
                    assert error["delivery"] == "unknown"
            for server in ways:
                await gateway.back(server)
        finally:
            other.kill()
            await other.wait()
        assert [small.waiting() for small in ways.values()] == [["up"], ["web"]]
    assert "Traceback" not in (tmp_path / "log").read_text()
