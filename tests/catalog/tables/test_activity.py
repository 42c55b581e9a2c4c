"""The activity log in the catalog."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from smart_mcp_proxy.catalog import ActivityFilter, Catalog
from smart_mcp_proxy.catalog.tables import activity
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]


def line(subject: str, **detail: int) -> Activity:
    return Activity("search", "local", subject, "ok", duration_ms=1.5, at_s=1_700_000_000.25, detail=detail)


async def test_activity_is_read_back_newest_first(open_catalog: OpenCatalog) -> None:
    """Lines come back whole, over a restart, at most as many as asked for."""
    one, two, three = line("one", results=5), line("two"), line("three")
    async with open_catalog() as catalog:
        await catalog.append_activity([one, two])
        await catalog.append_activity([])
    async with open_catalog() as catalog:
        await catalog.append_activity([three])
        assert [found.activity for found in await catalog.activity_page(ActivityFilter(), 2)] == [three, two]
        assert (await catalog.activity_page(ActivityFilter(), 10))[-1].activity == one


@pytest.mark.parametrize("more", [-1, 0, 1, 200, 1_000])
async def test_many_records_come_in_their_order_and_once_each(open_catalog: OpenCatalog, more: int) -> None:
    """However many are stored at once, and however often: a journal may hold some that were stored already."""
    records = [line(str(number), number=number) for number in range(activity._ROWS + more)]
    async with open_catalog() as catalog:
        await catalog.append_activity(records[3:5])
        await catalog.append_activity(records)
        stored = [found.activity for found in await catalog.activity_page(ActivityFilter(), 2_000)]
    assert stored[::-1] == [*records[3:5], *records[:3], *records[5:]]


async def test_a_query_that_utf8_cannot_hold_is_logged_with_a_mark(open_catalog: OpenCatalog) -> None:
    """Agents choose queries freely; none may break the log."""
    async with open_catalog() as catalog:
        await catalog.append_activity([line("lone \ud800 half")])
        assert (await catalog.activity_page(ActivityFilter(), 1))[0].activity.subject == "lone ? half"


async def test_the_log_keeps_its_newest_lines(open_catalog: OpenCatalog) -> None:
    """Old lines go, so the file does not grow for ever."""
    async with open_catalog() as catalog:
        await catalog.append_activity([line(str(number)) for number in range(5)], limit_rows=3)
        assert [found.activity.subject for found in await catalog.activity_page(ActivityFilter(), 10)] == [
            "4",
            "3",
            "2",
        ]


async def test_characters_that_a_store_cannot_hold_cost_no_record(open_catalog: OpenCatalog, store: Any) -> None:
    """Nor do quotes, backslashes, percent signs and what looks like an escape; the other records stay as they are."""
    words = ["a\0b", "\\u0000", "%s %(x)s", "'\"\\", "\U0001f600\u2028", ""]
    records = [msgspec.structs.replace(line(text), detail={"reason": text}, arguments={text: [text]}) for text in words]
    async with open_catalog() as catalog:
        await catalog.append_activity(records)
        found = [one.activity for one in await catalog.activity_page(ActivityFilter(), 10)][::-1]
    assert found[1:] == records[1:]
    assert found[0].subject == ("a\0b" if store.url is None else "a\ufffdb")
    assert found[0].detail == {"reason": "a\0b"}


async def test_without_a_limit_all_lines_stay(open_catalog: OpenCatalog) -> None:
    """Their age alone removes them then."""
    async with open_catalog() as catalog:
        await catalog.append_activity([line(str(number)) for number in range(5)], limit_rows=0)
        assert len(await catalog.activity_page(ActivityFilter(), 10)) == 5


async def test_a_record_is_found_by_its_id_and_by_the_end_of_it(open_catalog: OpenCatalog) -> None:
    """Of several with one end the newest; five characters are too few."""
    older, newer = (msgspec.structs.replace(line(name), id=f"{name}-abcdef") for name in ("older", "newer"))
    async with open_catalog() as catalog:
        await catalog.append_activity([older, newer])
        assert await catalog.find_activity(older.id) == older
        assert await catalog.find_activity("abcdef") == newer
        assert await catalog.find_activity("bcdef") is None
