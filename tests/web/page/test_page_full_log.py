"""The page of a gateway whose activity log is full."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from page_gateway import Opened, browser, opened, tool
from sqlalchemy import Pool, event

from smart_mcp_proxy.catalog import FiguresQuery
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

# Marked long: it fills a log.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

DAY_S = 86_400
LOOKS = 10
"""A page asks of the database at most the work of so many looks through the whole log."""
ROWS = 5_000
"""Most rows that a page reads: the log itself never leaves the database."""
STEP = 1_000
"""Instructions of SQLite's machine that are counted together."""
PLACES = ("", "?span=month&by=tool", "servers", "activity", "activity?server=s7", "waiting")


def records(count: int) -> list[Activity]:
    """Records of the last day, of 45 servers."""
    now_s, found = time.time(), []
    for number in range(count):
        at_s, session = now_s - DAY_S * (1 - number / count), f"{number % 9:08}"
        if number % 5 == 0:
            detail = {"tools": ["a:b"] * 5, "tokens": {"sent": 300, "spared": 9_000 * (number % 50 == 0)}}
            found.append(Activity("search", "local", "a question", "ok", 3.0, at_s, detail, session=session))
            continue
        server, outcome = f"s{number % 45}", "ok" if number % 17 else "tool_error"
        facts = {"server": server, "tool": "x", "session": session}
        found.append(
            Activity("call", "local", f"{server}:x", outcome, number * 7.0 % 900, at_s, {"variant": "read"}, **facts)
        )
    return found


@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.soak)])
async def test_a_full_log_makes_no_page_slow_and_holds_up_no_call(tmp_path: Path, share: int) -> None:
    """The database does the counting, in threads, with little work; the event loop gets few rows.

    The work is told in looks through the log, whatever it holds: in CI a fifth of what fits.
    """
    full = Settings(data_dir=tmp_path).activity_rows
    assert full == 100_000
    count = full // share
    with counted() as work:
        async with opened(tmp_path, [tool("a")]) as there, browser(there) as page:
            await there.gateway.catalog.append_activity(records(count))
            work.begin()
            await look(there)
            a_look = work.steps
            assert a_look * STEP > count
            for place in PLACES:
                work.begin()
                assert (await page.get(place)).status_code == 200
                looks = work.steps / a_look
                print(
                    f"{place or 'overview':24} {looks:5.1f} looks, {work.rows:6} rows, {work.on_loop} steps on the loop"
                )
                assert looks <= LOOKS, place
                assert work.rows <= ROWS, place
                assert work.on_loop <= a_look / 100, place


async def look(there: Opened) -> None:
    """Look through the log once."""
    await there.gateway.catalog.activity_figures(FiguresQuery(0.0, time.time() + DAY_S))


class Work:
    """Work that databases have done since the last beginning.

    Attributes:
        steps: Each of STEP instructions.
        on_loop: Those of them in the thread that runs the event loop.
        rows: That were read.
    """

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self.begin()

    def begin(self) -> None:
        self.steps = self.on_loop = self.rows = 0

    def watch(self, connection: sqlite3.Connection, _: object) -> None:
        """Count the work of a new connection."""
        connection.set_progress_handler(self._count_step, STEP)
        connection.row_factory = self._count_row

    def _count_step(self) -> int:
        self.steps += 1
        self.on_loop += threading.get_ident() == self._loop_thread
        return 0  # go on

    def _count_row(self, _: sqlite3.Cursor, row: tuple[object, ...]) -> tuple[object, ...]:
        self.rows += 1
        return row


@contextmanager
def counted() -> Iterator[Work]:
    """Counts the work of every database that is opened meanwhile."""
    work = Work()
    event.listen(Pool, "connect", work.watch)
    try:
        yield work
    finally:
        event.remove(Pool, "connect", work.watch)
