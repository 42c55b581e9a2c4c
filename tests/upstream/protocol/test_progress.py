"""Progress of one call: short calls are told whole, long ones in steps, and always to the last word."""

import pytest

from smart_mcp_proxy.models import ProgressReport
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.protocol.pending import Reports

pytestmark = pytest.mark.anyio


async def heard(*steps: float) -> list[float]:
    """What a listener hears of a call that reports these at once."""
    got: list[float] = []

    async def listen(report: ProgressReport) -> None:
        got.append(report.progress)

    reports = Reports(listen)

    async def call() -> RawResult:
        for step in steps:
            reports.offer(ProgressReport(step))
        return RawResult(b"{}")

    await reports.around(call())
    return got


async def test_a_few_reports_are_all_passed_on() -> None:
    """In their order, however close together they come."""
    assert await heard(0, 50, 100) == [0, 50, 100]


async def test_a_storm_of_reports_is_thinned_out() -> None:
    """The first ones and the last one arrive."""
    got = await heard(*range(10_000))
    assert got[:9] == list(range(9))
    assert got[-1] == 9_999
    assert len(got) <= 11


async def test_progress_never_goes_back() -> None:
    """A report that does not go beyond the last is dropped."""
    assert await heard(1, 1, 0, 2) == [1, 2]
