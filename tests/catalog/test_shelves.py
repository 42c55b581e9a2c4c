"""Prompts and resources in the catalog: kept like tools, beside them, and never taken for one."""

from typing import Any

import pytest

from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import IDENTITIES, extract_server_name, parse_canonical, parse_content, shelf

pytestmark = pytest.mark.anyio

TOOL = {"name": "x", "inputSchema": {"type": "object"}}
PROMPT = {"name": "x"}
RESOURCE = {"uri": "test://x", "name": "same"}


async def test_items_are_told_apart_by_the_member_of_their_kind(store: Any) -> None:
    """Two resources of one name are two; a tool and a prompt of one name do not meet."""
    async with store.opened() as catalog:
        await catalog.sync("fx", [TOOL])
        await catalog.sync(shelf("fx", "prompts"), [PROMPT])
        await catalog.sync(shelf("fx", "resources"), [RESOURCE, RESOURCE | {"uri": "test://y"}])
        keys = set(catalog.snapshot.by_key)
    expected = {("fx", "x"), ("fx:prompts", "x"), ("fx:resources", "test://x"), ("fx:resources", "test://y")}
    assert keys == {ToolKey(*key) for key in expected}


async def test_a_later_change_is_withheld_over_a_restart(store: Any) -> None:
    """The first list is trusted, an empty one too: what comes after it waits."""
    place = shelf("fx", "prompts")
    async with store.opened() as catalog:
        await catalog.sync(shelf("fx", "resources"), [])
        await catalog.sync(place, [PROMPT])
        await catalog.sync(place, [PROMPT | {"description": "other"}])
        await catalog.sync(shelf("fx", "resources"), [RESOURCE])
    async with store.opened() as catalog:
        assert catalog.snapshot.by_key == {}
        assert set(catalog.snapshot.withheld) == {ToolKey(place, "x"), ToolKey("fx:resources", "test://x")}


async def test_they_leave_with_their_server_and_stay_with_it(store: Any) -> None:
    """A shelf is no server of its own."""
    async with store.opened() as catalog:
        for server in ("fx", "gone"):
            await catalog.sync(server, [TOOL])
            await catalog.sync(shelf(server, "prompts"), [PROMPT])
        await catalog.forget_servers({"fx"})
        assert set(catalog.snapshot.by_key) == {ToolKey("fx", "x"), ToolKey("fx:prompts", "x")}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_the_name_of_an_item_leads_back_to_it(kind: str) -> None:
    """Also where it holds colons; a tool's name never reads as one of a known kind by accident."""
    key = ToolKey(shelf("fx", kind), "test://a:b")  # type: ignore[arg-type]  # the keys are the kinds
    assert parse_content(str(key)) == key
    assert extract_server_name(key.server) == "fx"
    assert parse_content("fx:other:x") is None
    assert parse_content(f"fx:{kind}:") is None
    assert parse_canonical(str(key)) == ToolKey("fx", f"{kind}:test://a:b")


async def test_an_empty_first_list_is_one_also_when_the_store_is_lost_after_it(store: Any) -> None:
    """It moved nothing else, and still what comes later waits."""
    async with store.opened() as catalog:
        assert not catalog.is_known(shelf("fx", "prompts"))
        await catalog.sync(shelf("fx", "prompts"), [])
        assert catalog.is_known(shelf("fx", "prompts"))
        store.lose()
        await catalog.refresh()
        await catalog.sync(shelf("fx", "prompts"), [PROMPT])
        assert catalog.snapshot.by_key == {}
        assert set(catalog.snapshot.withheld) == {ToolKey("fx:prompts", "x")}
