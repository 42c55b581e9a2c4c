"""Fixtures of the tests of the gateway that clients share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from desks import Desk, opened_desk


@pytest.fixture
async def desk(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Desk]:
    """A desk at which nothing runs any more at the end."""
    async with opened_desk(tmp_path / "desk") as found:
        yield found
