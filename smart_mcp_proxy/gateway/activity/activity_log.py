"""The activity log of a running gateway: written ahead, stored in batches, cleared of what is too old."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity.recorder import Listener, Recorder
from smart_mcp_proxy.gateway.activity.write_ahead_log import Journal, find_abandoned_journals, read_journal
from smart_mcp_proxy.io.clocks import since_boot
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity, get_logger, spawn

LOOK_S: Final = 60.0
"""Between two looks for what other processes left behind."""
LOOKS_PER_TRIM: Final = 60
BATCH: Final = 5_000
"""Records stored at a time from a file that was left behind: a transaction of some 100 ms."""
DAY_S: Final = 86_400.0

Export = Callable[[Sequence[Activity]], None]
"""Takes records in the middle of other work, and never waits."""

log = get_logger("activity")


@asynccontextmanager
async def open_activity_log(
    catalog: Catalog, settings: Settings, listener: Listener[Activity] | None = None, *, export: Export | None = None
) -> AsyncIterator[Recorder[Activity]]:
    """Open the recorder of activity; a record survives kill -9 as soon as it is recorded.

    Args:
        catalog: Stores the records.
        settings: How many are kept, and for how long.
        listener: Follows what is recorded; None where nobody does.
        export: Sends out what was stored; None where nobody asks for it.
    """
    journal = await asyncio.to_thread(_open_journal, settings.data_dir)
    store = partial(_store, catalog, settings, export)
    async with Recorder(store, journal=journal, listener=listener) as recorder:
        keeping = spawn(_keep(catalog, settings, export), "activity log")
        try:
            yield recorder
        finally:
            keeping.cancel()


async def _store(catalog: Catalog, settings: Settings, export: Export | None, batch: Sequence[Activity]) -> None:
    await catalog.append_activity(batch, settings.activity_rows, is_new=True)
    if export is not None:
        export(batch)


async def recover(catalog: Catalog, data_dir: Path, limit_rows: int = 0, export: Export | None = None) -> int:
    """Store what killed processes recorded but did not store; returns the number of records.

    Args:
        catalog: Takes them.
        data_dir: Whose journals.
        limit_rows: As of `Catalog.append_activity`.
        export: Sends them out as well; None where nobody asks for it.

    Raises:
        CatalogError: They cannot be stored now; they stay where they are.
    """
    count = 0
    for path in await asyncio.to_thread(find_abandoned_journals, data_dir):
        try:
            records = await asyncio.to_thread(read_journal, path)
        except OSError as exc:
            log.warning("the activity records in %s cannot be read and stay there: %s", path, exc.strerror)
            continue
        # Another gateway may do the same at this moment: a record that is there already is not stored again.
        for start in range(0, len(records), BATCH):
            await catalog.append_activity(records[start : start + BATCH], limit_rows)
        if export is not None:
            export(records)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        count += len(records)
    return count


def _open_journal(data_dir: Path) -> Journal | None:
    try:
        return Journal(data_dir)
    except OSError as exc:
        log.warning("records since the last second would be lost with a kill: %s", exc.strerror)
        return None


def steady(clock: Callable[[], float], wall: Callable[[], float]) -> Callable[[], float]:
    """Return a clock of seconds since the epoch that never runs ahead.

    A clock set forward makes no record old, and removes none.

    Args:
        clock: Monotonic seconds.
        wall: Seconds since the epoch.
    """
    ahead_s = wall() - clock()
    return lambda: min(wall(), clock() + ahead_s)


async def _keep(catalog: Catalog, settings: Settings, export: Export | None) -> None:
    """Looks after the log for as long as it runs."""
    looks, now = 0, steady(since_boot, catalog.now_s)
    while True:
        try:
            if looks % LOOKS_PER_TRIM == 0:
                await catalog.prepare_activity()
            if count := await recover(catalog, settings.data_dir, settings.activity_rows, export):
                log.info("%d activity records of a process that was killed are stored", count)
            if looks % LOOKS_PER_TRIM == 0:
                await catalog.trim_activity(now() - settings.activity_days * DAY_S)
        except CatalogError as exc:
            log.debug("the activity log waits: %s", exc)
        looks += 1
        await asyncio.sleep(LOOK_S)
