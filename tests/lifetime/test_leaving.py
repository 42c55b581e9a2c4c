"""A stop that balancers hear of first: `/readyz` says no while everything is served on.

That it says so without a delay, too, while calls are waited for, is in test_stop.py.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from test_stop import HttpClient
from worlds import SmallServer, end, is_alive, started, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LONG_S = "600"
"""More than any test takes: only what is under test ends the delay."""
CALL = {"name": "up:echo", "args": {"text": "on"}}


class Leaving:
    """A gateway over HTTP that can be asked how it is.

    Attributes:
        process: The gateway.
        client: Has an open session.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str, http: httpx2.AsyncClient) -> None:
        self.process = process
        self.client = HttpClient(url, http)
        self._url, self._http = httpx2.URL(url), http

    async def says(self, path: str) -> tuple[int, str]:
        """The status and the word that a probe gets."""
        reply = await self._http.get(self._url.copy_with(path=path))
        return reply.status_code, reply.json()["status"]

    async def told_to_stop(self) -> None:
        """Returns when balancers can see that the signal has come."""
        assert await self.says("/readyz") == (200, "ready")
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while await self.says("/readyz") == (200, "ready"):
                pass


@asynccontextmanager
async def leaving(tmp_path: Path, small: SmallServer, **settings: str) -> AsyncIterator[Leaving]:
    """Such a gateway in front of the small server."""
    words = ("--http", "--port", "0", "--json")
    try:
        async with (
            started(tmp_path / "data", {"up": small.entry}, *words, **settings) as process,
            httpx2.AsyncClient(trust_env=False, timeout=20) as http,
        ):
            assert process.stdout is not None
            gateway = Leaving(process, json.loads(await process.stdout.readline())["url"], http)
            await gateway.client.greet()
            yield gateway
    finally:
        end(small.pids())
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_a_delay_serves_on_while_probes_are_told_to_look_elsewhere(tmp_path: Path) -> None:
    """Old sessions and new ones alike, until a second signal."""
    small = SmallServer(tmp_path / "world")
    async with leaving(tmp_path, small, STOP_DELAY_S=LONG_S) as gateway:
        await gateway.told_to_stop()
        assert await gateway.says("/readyz") == (503, "stopping")
        assert await gateway.says("/healthz") == (200, "ok")
        assert text_of(await gateway.client.call("call_tool_write", CALL)) == "said on"
        await gateway.client.greet()
        assert text_of(await gateway.client.call("call_tool_write", CALL)) == "said on"
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(gateway.process.wait(), 5.0) == 128 + signal.SIGTERM


async def test_after_the_delay_it_ends_as_without(tmp_path: Path) -> None:
    """With 0, and with nothing left of its servers."""
    small = SmallServer(tmp_path / "world")
    async with leaving(tmp_path, small, STOP_DELAY_S="1") as gateway:
        await gateway.told_to_stop()
        assert await asyncio.wait_for(gateway.process.wait(), 10.0) == 0
        assert not any(map(is_alive, small.pids()))
