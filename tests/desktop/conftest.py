"""A desktop for each test, at the end of which nothing goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A home with one server."""
    opened = Desk(tmp_path)
    try:
        yield opened
    finally:
        opened.close()
