"""Fixtures of the tests of the gateway that clients share."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from desks import Desk, opened_desk
from homes import Home


@pytest.fixture
async def desk(anyio_backend: str) -> AsyncIterator[Desk]:
    """A desk at which nothing runs any more at the end; clients are driven by an event loop.

    Its path is short enough for sockets.
    """
    with tempfile.TemporaryDirectory(prefix="desk-") as folder:
        async with opened_desk(Path(folder).resolve() / "desk") as found:
            yield found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home with one server, in which nothing runs any more at the end; clients are driven step by step."""
    opened = Home(tmp_path)
    try:
        yield opened
    finally:
        opened.close()
