"""Fixtures of the tests of the gateway that clients share."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from desks import Desk, opened_desk


@pytest.fixture
async def desk(anyio_backend: str) -> AsyncIterator[Desk]:
    """A desk at which nothing runs any more at the end; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="desk-") as folder:
        async with opened_desk(Path(folder).resolve() / "desk") as found:
            yield found
