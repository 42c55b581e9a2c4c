"""Loss of the store: what is approved is served from memory, nothing else is taken for stored, nothing is lost."""

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from smart_mcp_proxy.catalog import Catalog, change_hash
from smart_mcp_proxy.catalog.store.store import StorageError
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
A, B = ToolKey("s", "a"), ToolKey("s", "b")


async def test_decisions_records_and_tokens_are_refused_with_the_reason_and_the_time(
    store: Any, tool: MakeTool, clock: Any
) -> None:
    """Since when is said for as long as it lasts; whoever keeps records offers them again."""
    async with store.opened(clock=clock) as catalog:
        await catalog.sync("s", [tool("a")])
        assert (catalog.problem, catalog.lost_since) == (None, None)
        store.lose()
        record = Activity("call", "local", "s:a", "ok", duration_ms=1.0, at_s=1.0)
        for refused in (
            lambda: catalog.block(A, "user"),
            lambda: catalog.approve({A: change_hash("s", tool("a"))}, "user"),
            lambda: catalog.append_activity([record]),
        ):
            with pytest.raises(CatalogError):
                await refused()
            clock.now_s += 60
        assert re.search(r"kept in memory since 2023-11-14 22:13:20 UTC", catalog.problem)
        assert set(catalog.snapshot.by_key) == {A}
        store.bring_back()
        await catalog.refresh()
        assert (catalog.problem, catalog.lost_since) == (None, None)
        await catalog.append_activity([record])
        await catalog.block(A, "user")
        await catalog.refresh()
        assert set(catalog.snapshot.withheld) == {A}


@pytest.mark.parametrize(("losses", "times", "is_told"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_the_reason_can_be_asked_for_while_the_store_comes_back(losses: int, times: int, is_told: bool) -> None:
    """The database's thread forgets the loss and its time at any moment, one after the other."""

    class Recovering:
        """A catalog that forgets each after so many looks."""

        _losses = [CatalogError("It is lost.")] * losses
        _times = [datetime(2023, 11, 14, tzinfo=UTC)] * times

        @property
        def _lost(self) -> CatalogError | None:
            return self._losses.pop() if self._losses else None

        @property
        def lost_since(self) -> datetime | None:
            return self._times.pop() if self._times else None

    told = "It is lost. Tools are kept in memory since 2023-11-14 00:00:00 UTC, until it can be written."
    look: Any = vars(Catalog)["problem"]
    assert look.fget(Recovering()) == (told if is_told else None)


async def test_what_was_not_touched_stays_the_same_object_once_a_server_is_back(
    store_place: Any, tool: MakeTool
) -> None:
    """The index need not take in ten thousand tools anew after a minute without a database."""
    place = store_place()
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        before = catalog.snapshot
        place.lose()
        await catalog.refresh()
        assert catalog.problem is not None
        place.bring_back()
        await catalog.refresh()
        assert catalog.problem is None
        assert (catalog.snapshot is before) == (place.url is not None)
        assert set(catalog.snapshot.by_key) == {A}


async def test_lists_that_were_heard_meanwhile_are_stored_and_other_gateways_see_them(
    store: Any, tool: MakeTool
) -> None:
    """What is new in them waits for the user here and there, then and afterwards."""
    async with store.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        store.lose()
        await catalog.sync("s", [tool("a"), tool("b")])
        assert (set(catalog.snapshot.by_key), set(catalog.snapshot.withheld)) == ({A}, {B})
        store.bring_back()
        await catalog.refresh()
        async with store.opened() as other:
            assert (set(other.snapshot.by_key), set(other.snapshot.withheld)) == ({A}, {B})


async def test_what_memory_holds_is_served_until_all_that_is_stored_is_read(
    store_place: Any, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step fails once the store is back; a list was heard meanwhile, so that everything is read anew."""
    place = store_place()
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        place.lose()
        await catalog.refresh()
        await catalog.sync("s", [tool("a"), tool("b")])
        place.bring_back()
        kind, steps, served = type(catalog._database), itertools.count(), []
        while catalog.problem is not None:
            failing, done = next(steps), itertools.count()

            def run(do: Any, *given: Any, failing: int = failing, done: Any = done, **how: Any) -> Any:
                served.append(set(catalog.snapshot.by_key))
                if next(done) == failing:
                    raise StorageError("It went away again.")
                return do(catalog._database, *given, **how)

            with monkeypatch.context() as patch:
                for name in ("read", "write"):
                    patch.setattr(catalog._database, name, partial(run, getattr(kind, name)))
                await catalog.refresh()
            served.append(set(catalog.snapshot.by_key))
        assert next(steps) > 2
        assert all(A in each for each in served)
        assert set(catalog.snapshot.by_key) | set(catalog.snapshot.withheld) == {A, B}
