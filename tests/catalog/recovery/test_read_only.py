"""A catalog in a directory that can only be read: what was approved is served from memory, and that is said."""

import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from read_only_disks import read_only
from test_rollback_guard import LOSSES, NEW_C, POISON, A, C, MakeTool, decide, is_whole, killed, shown, states

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog, change_hash
from smart_mcp_proxy.catalog.recovery.rollback_guard import CHECKPOINT_NAME
from smart_mcp_proxy.errors import CatalogError, ConfigError

pytestmark = pytest.mark.anyio


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Below directories into which everybody may look."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        yield Path(above) / "data"


@pytest.fixture
def opened(data_dir: Path, clock: Any) -> Any:
    """Opens the catalog as the gateway opens one in a directory that nobody chose."""
    return partial(Catalog.open, data_dir, name_limit=60, clock=clock, is_needed=False)


@pytest.mark.parametrize("end", ["closed", "killed"])
async def test_what_was_approved_is_served_from_a_directory_that_can_only_be_read(
    opened: Any, data_dir: Path, tool: MakeTool, end: str
) -> None:
    """What was blocked, or changed since, stays hidden; once it can be written all that was heard is stored."""
    await decide(opened, tool)
    if end == "killed":
        async with killed(opened, data_dir) as catalog:
            await catalog.block(A, "user")
            await catalog.unblock(A, "user")
    approved = {"s:a": change_hash("s", tool("a")), "s:c": change_hash("s", tool("c", **NEW_C))}
    names = sorted(path.name for path in data_dir.iterdir())
    with read_only(data_dir):
        async with opened() as catalog:
            assert (shown(catalog), states(catalog), catalog.is_closed) == (approved, {"s:b": "blocked"}, False)
            assert catalog.problem is not None
            assert f"Data directory '{data_dir}' cannot be used: " in catalog.problem
            assert "kept in memory" in catalog.problem
            assert "change its permissions" in catalog.problem
            await catalog.sync("s", [tool("a", **POISON), tool("b", **POISON), tool("c", **NEW_C), tool("d")])
            assert shown(catalog).keys() == {"s:c"}
            assert states(catalog) == {"s:a": "changed", "s:b": "blocked", "s:d": "pending"}
            with pytest.raises(CatalogError, match="cannot be used"):
                await catalog.block(C, "user")
        assert sorted(path.name for path in data_dir.iterdir()) == names
    async with opened() as catalog:
        assert (shown(catalog), states(catalog), catalog.problem) == (approved, {"s:b": "blocked"}, None)
    assert await is_whole(opened, tool)


async def test_a_directory_that_can_be_written_again_gets_what_was_heard(
    opened: Any, data_dir: Path, tool: MakeTool
) -> None:
    """While the gateway runs."""
    await decide(opened, tool)
    async with AsyncExitStack() as stack:
        with read_only(data_dir):
            catalog = await stack.enter_async_context(opened())
            await catalog.sync("s", [tool("a"), tool("d")])
        await catalog.refresh()
        assert (catalog.problem, shown(catalog).keys(), states(catalog)) == (None, {"s:a"}, {"s:d": "pending"})
    assert await is_whole(opened, tool)


async def test_a_journal_that_cannot_be_read_alone_is_not_left_out(opened: Any, data_dir: Path, tool: MakeTool) -> None:
    """A block may be in it: without its shared memory nothing of the file is trusted."""
    await decide(opened, tool)
    async with killed(opened, data_dir) as catalog:
        await catalog.block(A, "user")
    (data_dir / f"{DATABASE_NAME}-shm").unlink()
    with read_only(data_dir):
        async with opened() as catalog:
            assert (shown(catalog), catalog.is_closed) == ({}, True)
            await catalog.sync("s", [tool("a"), tool("b"), tool("c")], lambda _: True)
            assert shown(catalog) == {}
    async with opened() as catalog:
        assert shown(catalog).keys() == {"s:c"}


@pytest.mark.parametrize("lose", LOSSES, ids=[lose.__name__ for lose in LOSSES])
async def test_a_loss_is_not_trusted_for_being_read_only(
    opened: Any, data_dir: Path, tool: MakeTool, lose: Any
) -> None:
    """Decisions are missing; neither what is left nor what is listed is trusted."""
    await decide(opened, tool)
    lose(data_dir)
    with read_only(data_dir):
        async with opened() as catalog:
            assert (catalog.is_closed, bool(catalog.problem)) == (True, True)
            await catalog.sync("s", [tool("a"), tool("b"), tool("c")], lambda _: True)
            assert shown(catalog) == {}
    assert not await is_whole(opened, tool)


async def test_a_directory_that_was_chosen_is_refused_as_ever(data_dir: Path, tool: MakeTool, opened: Any) -> None:
    """Whoever set it is there to read the message."""
    await decide(opened, tool)
    assert (data_dir / CHECKPOINT_NAME).exists()
    with read_only(data_dir), pytest.raises(ConfigError, match="cannot be used"):
        async with Catalog.open(data_dir, name_limit=60):
            pass
