"""Fixtures of the sandbox's tests."""

from collections.abc import AsyncIterator

import pytest
from sandbox_fakes import Bench, opened_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A sandbox with tools."""
    async with opened_bench() as opened:
        yield opened
