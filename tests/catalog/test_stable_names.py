"""Listed names are the same in every order of servers, and after every restart."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trusting import TrustingCatalog

from smart_mcp_proxy.models import ToolKey

NAME_LIMIT = 12
"""Short, so that many names have to be shortened."""

parts = st.text(st.sampled_from("ab_é-"), min_size=1, max_size=8)
keys = st.sets(st.builds(ToolKey, parts, parts), min_size=2, max_size=8)


async def names_in(directory: Path, order: list[ToolKey]) -> dict[ToolKey, str]:
    """The names of the tools when their servers list them in this order, the catalog opened anew for each."""
    by_server: dict[str, list[str]] = {}
    for key in order:
        by_server.setdefault(key.server, []).append(key.tool)
    for server, tools in by_server.items():
        async with TrustingCatalog.open(directory, name_limit=NAME_LIMIT) as catalog:
            await catalog.sync(server, [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools])
    async with TrustingCatalog.open(directory, name_limit=NAME_LIMIT) as catalog:
        return {record.key: record.listed_name for record in catalog.snapshot.by_id.values()}


@pytest.mark.long  # many generated examples, seconds of them
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(keys)
def test_names_depend_neither_on_order_nor_on_restarts(found: set[ToolKey]) -> None:
    """No two are alike, and all keep to the limit."""
    orders = [sorted(found), sorted(found, reverse=True)]
    names = []
    for order in orders:
        with tempfile.TemporaryDirectory() as directory:
            names.append(asyncio.run(names_in(Path(directory), order)))
    assert names[0] == names[1]
    assert len(set(names[0].values())) == len(found)
    assert all(len(name) <= NAME_LIMIT for name in names[0].values())
