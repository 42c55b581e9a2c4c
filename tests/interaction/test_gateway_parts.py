"""The gateway's parts are made once, when it is opened."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transports import ENVIRON, in_memory, odd_servers

from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.servers import Profile, load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


def all_parts(gateway: Gateway) -> Iterator[tuple[str, Any]]:
    """By name: the groups, the parts in them, and those that are made of all groups."""
    for name, group in msgspec.structs.asdict(gateway).items():
        yield name, group
        if isinstance(group, msgspec.Struct):
            yield from msgspec.structs.asdict(group).items()


@pytest.mark.long  # a third of a second of processor time
async def test_no_part_gets_an_attribute_after_it_was_made(tmp_path: Path) -> None:
    """Opening, listing, searching, calling and another configuration use what the constructors have made."""
    servers = load_servers(json.dumps({"mcpServers": odd_servers(tmp_path / "ledger")})).servers
    settings = Settings(data_dir=tmp_path / "data", learn=True, proxy_tool="proxy", manage=True)
    async with open_gateway(settings, servers, environ=ENVIRON) as gateway:
        parts = dict(all_parts(gateway))
        made = {name: set(vars(part)) for name, part in parts.items() if hasattr(part, "__dict__")}
        assert {"fleet", "calls", "agent", "tool_sync", "management"} <= made.keys()
        gateway.start_upstreams()
        assert await gateway.wait_settled(20)
        async with in_memory(gateway, "handshake") as agent:
            await agent.call("retrieve_tools", query="echo")
            await agent.call("call_tool_write", name="old:echo", args={"text": "x"})
        await gateway.apply(dict(list(servers.items())[:1]), {"work": Profile("work")})
        assert {name: set(vars(part)) for name, part in parts.items() if name in made} == made
        assert dict(all_parts(gateway)) == parts
