"""The order of the tests, and the line at the start that says how long they take."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_length import EVERYDAY, RunLength, length_line
from run_order import INTERACTION, turn_of


def test_every_room_comes_before_interaction() -> None:
    """A process that has started their servers goes on to nothing else, so they come last; shared ones together."""
    room = turn_of(Path("gateway/calls/test_calls.py"), is_shared=False)
    shared = turn_of(Path(INTERACTION) / "test_agent_call.py", is_shared=True)
    own = turn_of(Path(INTERACTION) / "golden" / "test_tools_list.py", is_shared=False)
    assert turn_of(Path("test_house.py"), is_shared=False) == room < shared < own


def test_the_line_says_what_the_last_run_took_if_there_was_one() -> None:
    """Else no figure, for none was taken here."""
    assert length_line(8800, 200.0, is_everyday=True) == "8800 tests; the last run of these took 3 minutes"
    assert length_line(7, 4.2, is_everyday=False) == "7 tests; the last run of these took 4 seconds"
    assert length_line(8800, None, is_everyday=True) == "8800 tests; they take some minutes"
    assert length_line(7, None, is_everyday=False) == "7 tests"


class Cache(dict[str, Any]):
    """A cache that is gone after the test."""

    set = dict.__setitem__


def config(cache: Cache, markexpr: str = EVERYDAY) -> Any:
    """The parts of a run's configuration that the line depends on."""
    option = SimpleNamespace(markexpr=markexpr, keyword="", numprocesses=2, collectonly=False)
    plugins = SimpleNamespace(get_plugin=lambda name: None)
    found = SimpleNamespace(option=option, args=["tests"], cache=cache, pluginmanager=plugins)
    found.getini = lambda name: ["tests"]
    return found


def test_a_run_is_remembered_for_the_next_one_of_the_same_selection() -> None:
    """One that was broken off is not; each selection has its own."""
    cache = Cache()
    broken = RunLength(config(cache))
    broken.pytest_xdist_node_collection_finished(ids=["a", "b"])
    broken.pytest_sessionfinish(pytest.ExitCode.INTERRUPTED)
    assert not cache
    whole = RunLength(config(cache))
    whole.pytest_xdist_node_collection_finished(ids=["a", "b"])
    whole.pytest_sessionfinish(pytest.ExitCode.OK)
    items: Any = [None, None]
    assert "the last run of these took" in RunLength(config(cache)).pytest_report_collectionfinish(items)
    assert RunLength(config(cache, "long")).pytest_report_collectionfinish(items) == "2 tests"
