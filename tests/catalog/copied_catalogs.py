"""Filled catalogs for tests of copies, and what is stored of them."""

from functools import partial
from typing import Any

from sqlalchemy import insert
from store_places import MakeTool, StorePlace

from smart_mcp_proxy.catalog import (
    AgentToken,
    Catalog,
    Lesson,
    SealedValue,
    Toolset,
    agent_tokens,
    links,
    sealed,
    toolsets,
)
from smart_mcp_proxy.catalog.copying import TABLES, StoreLocation
from smart_mcp_proxy.catalog.tables.schema import approval_votes, unconfined
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

A, B = ToolKey("s", "a"), ToolKey("s", "b")
NOW_S = 1_700_000_000.125


def at(place: StorePlace) -> StoreLocation:
    return StoreLocation(place.url, place.data_dir)


def rows(place: StorePlace) -> dict[str, list[str]]:
    """What is stored, table by table."""
    # Seals are of a place's own key, and that they are made anew is counted.
    columns = {
        table.name: ", ".join(table.c.keys()) for table in TABLES if table.name not in ("seals", "activity_chains")
    }
    columns = {name: listed.removesuffix(", seal").removesuffix(", chain, link") for name, listed in columns.items()}
    found = {name: place.rows(f"SELECT {listed} FROM {name}") for name, listed in columns.items()}
    found["meta"] = [row for row in found["meta"] if row[0] != "approvals_count"]
    return {name: sorted(repr([comparable(value) for value in row]) for row in held) for name, held in found.items()}


def comparable(value: Any) -> Any:
    """PostgreSQL holds no character 0."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


async def fill(place: StorePlace, tool: MakeTool) -> None:
    """A row in every table; a tool that left, a block, ids that are used up, text that only one store can hold."""
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a", description="nul \0 and \u00e9"), tool("b"), tool("gone")])
        await catalog.sync("s", [tool("a", description="nul \0 and \u00e9"), tool("b")])
        await catalog.block(B, "ann")
        await catalog.sync("t", [tool("c", description="As it was approved before.")], lambda _: True)
        await catalog.sync("t", [tool("c")], lambda _: True)
        await catalog.store_vectors("model", {"later": b"\0\1", "sooner": b"\2"})
        await catalog.learn([Lesson(A, "do \u00e9", "do", NOW_S), Lesson(A, "do it", "it", NOW_S)])
        await catalog.append_activity([record("nul \0", detail={"nul": "\0"}, arguments={"\u00e9": 0.1}), record("b")])
        await store_shared(catalog)


async def store_shared(catalog: Catalog) -> None:
    """What gateways share besides tools, decisions and records: a name twice, a link that was given anew, any byte."""
    for hash_ in ("1", "2"):
        token = AgentToken("ci", hash_, NOW_S, None, ("s",), "write", "work")
        await write(catalog, agent_tokens.store, token=token, seals=catalog.seals)
        if hash_ == "1":
            await write(catalog, agent_tokens.revoke, name="ci", now_s=NOW_S + 1, seals=catalog.seals)
    vote = {"server_name": "s", "name": "a", "hash": "1", "person": "ann", "shown": "{}", "at_s": NOW_S, "seal": ""}
    await catalog.write(lambda connection: connection.execute(insert(approval_votes).values(vote)) and None)
    tools = ((1, "sha256:aa"), (2, "sha256:bb"))
    await write(catalog, toolsets.store, toolset=Toolset("aB", "local", "", tools, NOW_S), now_s=NOW_S)
    for uris in (["x:1", "x:2"], ["x:1"]):
        await write(catalog, links.store, principal="ann", server="s", uris=uris, now_s=NOW_S)
    for expires_s in (None, NOW_S):
        value = SealedValue("sign-in", f"until {expires_s}", bytes(range(256)), "stamp", expires_s)
        await write(catalog, sealed.store, value=value)
    await write(
        catalog, lambda connection: connection.execute(insert(unconfined), {"server_name": "s", "program": "p"})
    )


async def write(catalog: Catalog, work: Any, **given: Any) -> None:
    await catalog.write(partial(work, **given), is_ordered=False)


def record(subject: str, **more: Any) -> Activity:
    return Activity("call", "local", subject, "ok", duration_ms=0.1, at_s=NOW_S, **more)


async def is_closed(place: StorePlace, tool: MakeTool) -> bool:
    """Whether a start there trusts no first list."""
    async with place.opened() as catalog:
        await catalog.sync("new", [tool("a")], lambda _: True)
        assert catalog.is_closed != bool(catalog.snapshot.by_server.get("new"))
        return catalog.is_closed
