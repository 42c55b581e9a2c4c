"""Fixtures of the catalog's tests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trusting import TrustingCatalog

from smart_mcp_proxy.catalog import Catalog

NAME_LIMIT = 60
MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]


class HandClock:
    """A clock turned by hand, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def open_catalog(data_dir: Path, clock: HandClock) -> OpenCatalog:
    """Opens the catalog of this test's data directory; it agrees to whatever servers list."""
    return partial(TrustingCatalog.open, data_dir, **{"name_limit": NAME_LIMIT, "clock": clock})


@pytest.fixture
def tool() -> MakeTool:
    """Makes a tool definition with a name, and whatever fields are given on top."""

    def make(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} | fields

    return make
