"""Fixtures that every test may use."""

import gc
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import run_wire
from hypothesis import settings
from postgres_server import PostgresServer, running_server
from run_length import RunLength
from run_order import turn_of
from tier_files import may_have_tests

from smart_mcp_proxy.telemetry import LOGGER_NAME

try:
    import sniffio
except ImportError:  # anyio looks for the loop that runs
    sniffio = None

SHARED = frozenset({"inner", "agent", "cut_agent", "wire"})
"""Fixtures that many files of tests/interaction share: their tests follow each other."""

# The same examples on every run of the same code there: a check of a change must not fail by luck. Elsewhere new ones.
# None has a deadline: how long one takes says something of the machine, which others may be using.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("elsewhere", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "elsewhere")

notes = run_wire.Notes(Path())


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is collected: a seventh of that time went into looking through tests for garbage
    folder = tempfile.TemporaryDirectory(prefix="wire-")
    config.add_cleanup(folder.cleanup)
    notes.path = Path(folder.name) / "notes"
    os.environ[run_wire.NOTES] = str(notes.path)
    os.environ["MCPPROXY_SHARED"] = "false"  # no test leaves a gateway behind
    os.environ["MCPPROXY_EMBEDDER"] = "BM25"  # words alone, whose answers tests expect; those of AUTO ask for it
    os.environ["MCPPROXY_ISOLATION"] = "none"  # tests/upstream/confinement has the sandbox
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunLength(config))
    config.addinivalue_line("markers", "requirement(id): the line of interaction/requirements.toml that a test shows")
    config.addinivalue_line("markers", "seed(id): the line of tests/proxying/requirements.toml that a test shows")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files unread that have no test of the tier."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    return None if may_have_tests(collection_path.read_text("utf-8"), config.option.markexpr) else True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Takes the tests that need PostgreSQL out of `make test`: of 2 % of the tests a sixth of its time."""
    kind = getattr(item, "callspec", None)
    given = () if kind is None else [each for each in kind.params.values() if isinstance(each, str)]
    if "postgres" in getattr(item, "fixturenames", ()) or "postgresql" in given:
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Puts tests/interaction last, in whichever process.

    A process that has started servers for many tests goes on to no test that opens a loop. Several processes get tests
    in this order, so each of them comes to tests/interaction once, at its end.
    """
    yield
    here = Path(__file__).parent
    shared = {item.path for item in items if not SHARED.isdisjoint(getattr(item, "fixturenames", ()))}
    items.sort(key=lambda item: turn_of(item.path.relative_to(here), is_shared=item.path in shared))


def pytest_collection_finish() -> None:
    """Leaves what was collected out of collections: a test that asks for one waits for its own objects alone."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fails a test in which a server over HTTP was sent what is nothing to it."""
    yield
    notes.look()
    found, run_wire.strays[:] = run_wire.strays[:], []
    assert not found, found[:9]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the tests of this process; they are skipped where there is none."""
    with running_server() as server:
        yield server


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop the gateway runs on."""
    return "asyncio"


@pytest.fixture(autouse=True)
def log_as_found() -> Iterator[None]:
    """Leaves the log as it was: every command turns it on for its process, most of them for nothing below CRITICAL."""
    root, ours = logging.getLogger(), logging.getLogger(LOGGER_NAME)
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Lets a test that is no coroutine open a loop: a fixture that others share may keep one, as anyio remembers.

    Only a process that took over tests of another one comes to such a test then.
    """
    if sniffio is None or item.get_closest_marker("anyio") is not None:
        return (yield)
    token = sniffio.current_async_library_cvar.set(None)
    try:
        return (yield)
    finally:
        sniffio.current_async_library_cvar.reset(token)
