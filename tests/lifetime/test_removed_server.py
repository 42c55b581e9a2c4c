"""A server is taken out of the configuration, or gets another entry, while its tools are being called."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from worlds import DEADLINE_S, ENVIRON, UPSTREAM, SmallServer, end, is_alive, until

from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.servers import ServerConfig, load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

CALLS = 3


def configured(small: SmallServer, **more: Any) -> Mapping[str, ServerConfig]:
    """The one server `up`."""
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(small.directory)], "trust": "trusted", **more}
    return load_servers(json.dumps({"mcpServers": {"up": entry}})).servers


async def call(gateway: Gateway, tool: str, text: str) -> bytes:
    return (await gateway.calls.call(CallRequest(f"up:{tool}", {"text": text}, "write"))).text


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "changed"])
async def test_calls_of_a_server_that_is_taken_away_end_with_a_word(tmp_path: Path, *, is_removed: bool) -> None:
    """F59, F60: each says that it may have run; afterwards the tool is nowhere to be found, or is the new entry's."""
    small = SmallServer(tmp_path / "world")
    try:
        async with (
            asyncio.timeout(3 * DEADLINE_S),
            open_gateway(Settings(data_dir=tmp_path / "data"), configured(small), environ=ENVIRON) as gateway,
        ):
            gateway.start_upstreams()
            while not (await gateway.retrieval.retrieve(Question(query="wait", limit=5)))["tools"]:
                await gateway.base.changes.wait()
            calls = [asyncio.ensure_future(call(gateway, "wait", str(number))) for number in range(CALLS)]
            await until(lambda: len(small.waiting()) == CALLS)
            before = small.pids()
            await gateway.apply({} if is_removed else configured(small, env={"CHANGED": "1"}))
            for ended in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(ended, UpstreamError), ended
                assert ended.delivery == "unknown"
                assert "up" in ended.message
            await until(lambda: not any(map(is_alive, before)))
            if is_removed:
                with pytest.raises(ProxyError) as failure:
                    await call(gateway, "echo", "a")
                assert failure.value.error_code in {"tool_not_found", "server_not_found"}
                assert failure.value.delivery == "not_sent"
                assert not (await gateway.retrieval.retrieve(Question(query="echo", limit=5)))["tools"]
            else:
                assert b"said a" in await call(gateway, "echo", "a")
    finally:
        end(small.pids())
