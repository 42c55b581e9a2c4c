"""The page of a gateway whose activity log is full."""

import asyncio
import time
from pathlib import Path

import pytest
from page_gateway import Opened, browser, opened, tool

from smart_mcp_proxy.catalog import FiguresQuery
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

# Marked long: it measures.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

DAY_S = 86_400
LOOKS = 10
"""A page takes at most as long as so many looks through the whole log, of 60 ms each where nothing else runs."""
HELD_UP_MS = 200
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


async def test_a_full_log_makes_no_page_slow_and_holds_up_no_call(tmp_path: Path) -> None:
    """The best of three; meanwhile the event loop goes on."""
    count = Settings(data_dir=tmp_path).activity_rows
    assert count == 100_000
    async with opened(tmp_path, [tool("a")]) as there, browser(there) as page:
        await there.gateway.catalog.append_activity(records(count))
        look_ms = min([(await measure(look(there)))[0] for _ in range(3)])
        for place in PLACES:
            took, gaps = zip(*[await measure(page.get(place)) for _ in range(3)], strict=True)
            print(f"{place or 'overview':24} {min(took):6.0f} ms, held up {min(gaps):4.0f}, a look {look_ms:4.0f}")
            assert min(took) <= LOOKS * look_ms, place
            assert min(gaps) <= HELD_UP_MS, place


async def look(there: Opened) -> None:
    """Look through the log once."""
    await there.gateway.catalog.activity_figures(FiguresQuery(0.0, time.time() + DAY_S))


async def measure(work: object) -> tuple[float, float]:
    """Milliseconds that a request took, and the longest for which nothing else was done meanwhile."""
    task, begun = asyncio.ensure_future(work), time.perf_counter()  # type: ignore[call-overload]
    longest, last = 0.0, begun
    while not task.done():
        await asyncio.wait([task], timeout=0.002)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    assert task.result() is None or task.result().status_code == 200
    return (time.perf_counter() - begun) * 1_000, longest * 1_000
