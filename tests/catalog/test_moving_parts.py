"""What differs by itself between two starts of a server is no change, and gives no server a way to another text."""

from collections.abc import Callable
from typing import Any

import pytest

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.catalog.moving_parts import is_unchanged
from smart_mcp_proxy.models import ToolKey

NOW = "/home/u/now"
FOLDERS = (NOW, "/home/u", "/tmp")
A = ToolKey("s", "a")


def tool(text: str = "Does a.", **schema: Any) -> dict[str, Any]:
    return {"name": "a", "description": text, "inputSchema": {"type": "object", "properties": {"x": schema}}}


@pytest.mark.parametrize(
    ("approved", "listed"),
    [
        (tool("Saves to /srv/old."), tool(f"Saves to {NOW}.")),
        (tool("From /srv/old/in to /srv/old/out."), tool(f"From {NOW}/in to {NOW}/out.")),
        (tool(default="/My Files/old"), tool(default=NOW)),
        (tool(description="In C:\\old"), tool(description=f"In {NOW}")),
        (tool(examples=["/srv/old/a.png", "b"]), tool(examples=[f"{NOW}/a.png", "b"])),
        (tool("At home: /root"), tool("At home: /home/u")),
        (tool("Temporary: /var/folders/x"), tool("Temporary: /tmp")),
        (tool(default="b,a,c"), tool(default="c,a,b")),
        (tool(default="b, a"), tool(default="a, b")),
        (tool(default=["b", "a"]), tool(default=["a", "b"])),
        (tool(enum=["b", "a", 1]), tool(enum=[1, "a", "b"])),
        (tool(required=["b", "a"]), tool(required=["a", "b"])),
    ],
)
def test_a_folder_or_an_order_is_no_change(approved: dict[str, Any], listed: dict[str, Any]) -> None:
    assert is_unchanged(approved, listed, FOLDERS) and is_unchanged(approved, approved, FOLDERS)


@pytest.mark.parametrize(
    ("approved", "listed"),
    [
        (tool("Saves to /srv/old."), tool("Saves to /srv/new.")),
        (tool("Saves to /srv/old."), tool(f"Saves to {NOW}. Then sends it.")),
        (tool("Saves to the cloud."), tool(f"Saves to {NOW}.")),
        (tool("From /srv/old to /srv/other"), tool(f"From {NOW} to {NOW}")),
        (tool("From /srv/old to /srv/other"), tool(f"From {NOW} to /srv/third")),
        (tool("In /srv/old", description="In /srv/other"), tool(f"In {NOW}", description=f"In {NOW}")),
        (tool("In /srv\n<SYSTEM>"), tool(f"In {NOW}")),
        (tool(const="/srv/old"), tool(const=NOW)),
        (tool(enum=["/srv/old"]), tool(enum=[NOW])),
        (tool(pattern="/srv/old"), tool(pattern=NOW)),
        ({"name": "a", "_meta": {"at": "/srv/old"}}, {"name": "a", "_meta": {"at": NOW}}),
        ({"name": "a", "/srv/old": 1}, {"name": "a", NOW: 1}),
        (tool("First a, then b"), tool("First b, then a")),
        (tool(default="a,b"), tool(default="a,b,b")),
        (tool(default=[1]), tool(default=[True])),
        (tool(default=1), tool(default=1.0)),
        (tool(prefixItems=["a", "b"]), tool(prefixItems=["b", "a"])),
    ],
)
def test_anything_else_is_one(approved: dict[str, Any], listed: dict[str, Any]) -> None:
    assert not is_unchanged(approved, listed, FOLDERS)


def test_what_is_nested_too_deeply_is_a_change() -> None:
    deep: Any = "a"
    for _ in range(3_000):
        deep = [deep]
    assert not is_unchanged({"default": deep}, {"default": [deep]}, FOLDERS)


@pytest.mark.anyio
async def test_what_was_approved_stays_as_it_was_read(store: Any, clock: Callable[[], float]) -> None:
    """Hash and text, while it is listed elsewhere, after a change and after a restart; for a server's tools alone."""
    old, now, changed = tool("Saves to /srv/old."), tool(f"Saves to {NOW}."), tool("Sends it.")
    async with store.opened(clock=clock) as catalog:
        await catalog.sync("s", [old], None, ())
        before = catalog.snapshot
        await catalog.sync("s", [now], None, FOLDERS)
        assert catalog.snapshot is before and catalog.get_listed_hash(A) == change_hash("s", old)
        await catalog.sync("s", [changed], None, FOLDERS)
        assert A in catalog.snapshot.withheld
        await catalog.sync("s", [now], None, FOLDERS)
        assert catalog.snapshot.by_key[A].raw == before.by_key[A].raw
    async with store.opened(clock=clock) as catalog:
        await catalog.sync("s", [now], None, FOLDERS)
        assert catalog.snapshot.by_key[A].change_hash == change_hash("s", old)
        await catalog.sync("s", [now])
        assert A in catalog.snapshot.withheld, "where no folders are known every difference counts"
