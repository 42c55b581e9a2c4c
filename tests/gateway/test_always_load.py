"""Clients that hide tools behind a search of their own are asked to show the gateway's from the first turn on."""

from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.models import LOCAL, Era
from smart_mcp_proxy.servers import Profile
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

EVERY_TOOL: dict[str, Any] = {"proxy_tool": "proxy", "manage": True}
ROUTES: tuple[Any, ...] = ("CALL_TOOL", "DYNAMIC")
ERAS: tuple[Era, ...] = ("handshake", "modern")


async def _tell() -> None:
    """For a client that nobody tells anything."""


async def lists_of(tmp_path: Path, **settings: Any) -> list[dict[str, Any]]:
    """Every definition that a client of either era finds at `/mcp` and at a profile, in a session or without one."""
    found: list[dict[str, Any]] = []
    profiles = {"work": Profile("work")}
    asked = Settings(data_dir=tmp_path, **EVERY_TOOL, **settings)
    async with open_gateway(asked, {}, environ={}, profiles=profiles) as gateway:
        for path in ("", "p/work"):
            session = gateway.agent.open_session(HandshakeClient("some-client", "1", path, LOCAL, _tell))
            for tools in (gateway.agent.require_tools(path, LOCAL), session.tool_list):
                for era in ERAS:
                    found += map(dict, tools.definitions(era))
            session.close()
    return found


@pytest.mark.parametrize("routing_type", ROUTES)
async def test_every_tool_of_ours_asks_to_be_loaded_at_once(routing_type: Any, tmp_path: Path) -> None:
    """In both eras, at every path that lists them, whether the list is fixed or grows."""
    listed = await lists_of(tmp_path, routing_type=routing_type)
    assert {tool["name"] for tool in listed} >= {"retrieve_tools", "read_output", "proxy", "upstream_servers"}
    assert [tool["_meta"] for tool in listed] == [{"anthropic/alwaysLoad": True}] * len(listed)


async def test_the_operator_can_leave_that_to_the_client(tmp_path: Path) -> None:
    """The list is the same otherwise."""
    asked, left = [await lists_of(tmp_path, always_load=is_on) for is_on in (True, False)]
    assert not any("_meta" in tool for tool in left)
    assert [{key: value for key, value in tool.items() if key != "_meta"} for tool in asked] == left
