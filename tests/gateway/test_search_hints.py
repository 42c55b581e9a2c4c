"""Hints for clients that defer tools themselves: on servers' tools that are listed, and only where asked for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.demo import demo_servers
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.shared.search_hints import HINT_CHARS, SEARCH_HINT, add_search_hint
from smart_mcp_proxy.models import LOCAL
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


async def listed(data_dir: Path, **settings: Any) -> list[Mapping[str, Any]]:
    """What a modern client finds at `/mcp` of a gateway that lists its whole catalog."""
    servers = load_servers(json.dumps({"mcpServers": {"todo": demo_servers()["todo"]}})).servers
    asked = Settings(data_dir=data_dir, list_all_below_tokens=100_000, **settings)
    async with open_gateway(asked, servers, environ={}) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(30)
        return list(gateway.agent.require_tools("", LOCAL).definitions("modern"))


@pytest.mark.long  # a third of a second of processor time
async def test_servers_tools_carry_hints_where_they_are_asked_for(tmp_path: Path) -> None:
    """Nothing else differs, and without the setting not one byte; the gateway's own tools are loaded anyway."""
    plain, told = await listed(tmp_path), await listed(tmp_path, search_hints=True)
    hints = {tool["name"]: tool["_meta"].get(SEARCH_HINT) for tool in told if "_meta" in tool}
    assert hints["todo__add_task"].startswith("todo add task")
    assert hints["retrieve_tools"] is None
    assert not any(SEARCH_HINT in tool.get("_meta", {}) for tool in plain)
    assert json.dumps(plain[:6]) == json.dumps(told[:6])
    bare = [{key: value for key, value in tool.items() if key != "_meta"} for tool in told]
    assert bare == [{key: value for key, value in tool.items() if key != "_meta"} for tool in plain]


def test_a_hint_holds_the_words_that_matter_once_and_shortly() -> None:
    """Server, name, first sentence and parameters."""
    tool = {
        "name": "mail__sendMessage_now",
        "description": "Send a message. Then send ten more.",
        "inputSchema": {"type": "object", "properties": {"recipientAddress": {}, "to": {}}},
    }
    hint = add_search_hint(tool, "mail")["_meta"][SEARCH_HINT]
    assert hint == "mail send message now a recipient address to"
    long = add_search_hint(tool | {"description": " ".join(f"word{number}" for number in range(500))}, "mail")
    assert len(long["_meta"][SEARCH_HINT]) <= HINT_CHARS
    assert len(add_search_hint(tool | {"description": "x" * 5_000}, "y" * 5_000)["_meta"][SEARCH_HINT]) <= HINT_CHARS


@pytest.mark.parametrize("meta", [{SEARCH_HINT: "its own"}, [], "x", 7])
def test_a_server_s_own_hint_and_odd_meta_stay(meta: Any) -> None:
    """What it is is not ours to say."""
    assert add_search_hint({"name": "x", "_meta": meta}, "s") == {"name": "x", "_meta": meta}


@pytest.mark.parametrize("odd", [{"inputSchema": 7}, {"description": None}, {"inputSchema": {"properties": []}}, {}])
def test_odd_definitions_get_the_hint_that_they_allow(odd: dict[str, Any]) -> None:
    """Servers send anything."""
    assert add_search_hint({"name": "x", **odd}, "s")["_meta"][SEARCH_HINT] == "s x"
