"""The gateway's parts are made once, when it is opened."""

import json
from pathlib import Path

import pytest
from transports import ENVIRON, in_memory, odd_servers

from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import Profile, load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


async def test_no_part_gets_an_attribute_after_it_was_made(tmp_path: Path) -> None:
    """Opening, listing, searching, calling and another configuration use what the constructors have made."""
    servers = load_servers(json.dumps({"mcpServers": odd_servers(tmp_path / "ledger")})).servers
    settings = Settings(data_dir=tmp_path / "data", learn=True, proxy_tool="proxy", manage=True)
    async with open_gateway(settings, servers, environ=ENVIRON) as gateway:
        parts = {name: getattr(gateway, name) for name in vars(gateway)}
        made = {name: set(vars(part)) for name, part in parts.items() if hasattr(part, "__dict__")}
        assert {"fleet", "calls", "agent", "tool_sync", "management"} <= made.keys()
        gateway.start_upstreams()
        assert await gateway.wait_settled(20)
        async with in_memory(gateway, "handshake") as agent:
            await agent.call("retrieve_tools", query="echo")
            await agent.call("call_tool_write", name="old:echo", args={"text": "x"})
        await gateway.apply(dict(list(servers.items())[:1]), {"work": Profile("work")})
        assert {name: set(vars(part)) for name, part in parts.items() if name in made} == made
        assert {name: getattr(gateway, name) for name in vars(gateway)} == parts
