"""Fixtures of the catalog's tests, which run on each kind of store."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from store_places import KINDS, NAME_LIMIT, HandClock, MakeTool, OpenCatalog, StorePlace
from trusting import TrustingCatalog


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for each kind of store; one that asks for the data directory is about the file in it."""
    if "store_place" in metafunc.fixturenames:
        kinds = KINDS[:1] if "data_dir" in metafunc.fixturenames else KINDS
        metafunc.parametrize("store_place", kinds, indirect=True)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StorePlace]:
    """Makes empty places for a catalog, all of one kind."""
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    names = map(str, itertools.count())
    return lambda: StorePlace(tmp_path / next(names) / "data", server)


@pytest.fixture
def store(store_place: Callable[[], StorePlace]) -> StorePlace:
    """An empty place for this test's catalog."""
    return store_place()


@pytest.fixture
def places(tmp_path: Path, postgres: PostgresServer) -> Callable[[str], StorePlace]:
    """Makes an empty place of either kind."""
    return lambda kind: StorePlace(
        tmp_path / str(len(list(tmp_path.iterdir()))) / "data", postgres if kind == "postgresql" else None
    )


@pytest.fixture
def data_dir(store: StorePlace) -> Path:
    return store.data_dir


@pytest.fixture
def open_catalog(store: StorePlace, clock: HandClock) -> OpenCatalog:
    """Opens this test's catalog; it agrees to whatever servers list."""
    return partial(TrustingCatalog.open, store.data_dir, **{"url": store.url, "name_limit": NAME_LIMIT, "clock": clock})


@pytest.fixture
def tool() -> MakeTool:
    """Makes a tool definition with a name, and whatever fields are given on top."""

    def make(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} | fields

    return make
