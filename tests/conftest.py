"""Fixtures that every test may use."""

import os
from collections.abc import Iterator

import pytest
import run_wire
from hypothesis import settings

# The same examples on every run of the same code there: a check of a change must not fail by luck. Elsewhere new ones.
# None has a deadline: how long one takes says something of the machine, which others may be using.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("elsewhere", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "elsewhere")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seed(id): the line of tests/proxying/requirements.toml that a test shows")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fails a test in which a server over HTTP was sent what is nothing to it."""
    yield
    found, run_wire.strays[:] = run_wire.strays[:], []
    assert not found, found[:9]


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop the gateway runs on."""
    return "asyncio"
