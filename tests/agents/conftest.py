"""Gateways in front of one server that reports progress, as an agent is pointed at it over each transport."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from front import Front, fronted


@pytest.fixture(params=["stdio", "http"])
def front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """A fresh installation of its own for each run."""
    with fronted(request.param, tmp_path) as opened:
        yield opened
