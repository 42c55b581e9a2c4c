"""Fixtures of the gateway's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_fakes import HandClock, Parts, config, opened_parts


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """Two configured servers, alpha and beta, without tools."""
    async with opened_parts(tmp_path, {name: config(name) for name in ("alpha", "beta")}) as opened:
        yield opened
