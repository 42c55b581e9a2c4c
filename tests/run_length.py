"""The line at the start of a run: how many tests it has, and about how long they take.

The time is that of the last run of the same selection on this machine, which the cache folder keeps.
"""

import time
from typing import Any

import pytest

__all__ = ["EVERYDAY", "RunLength", "length_line"]

EVERYDAY = "not soak and not clients and not image and not long"
"""The selection of `make test`, of which the order of length is known before it ran anywhere."""
_KEY = "smart-mcp-proxy/run-length"


def length_line(count: int, last_s: float | None, *, is_everyday: bool) -> str:
    """The words for `count` tests that took `last_s` seconds the last time, None where they never ran."""
    if last_s is not None:
        return f"{count} tests; the last run of these took {_words(last_s)}"
    if is_everyday:
        return f"{count} tests; they take some minutes"
    return f"{count} tests"


def _words(seconds: float) -> str:
    return f"{round(seconds / 60)} minutes" if seconds >= 120 else f"{max(1, round(seconds))} seconds"


class RunLength:
    """A plugin for the process that the user started; the processes that share its tests need none.

    Args:
        config: Of the run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began_s: float | None = None

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> str:
        """The line of a run in one process."""
        return self._begin(len(items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Prints the line once, when the first of several processes has collected."""
        if self._began_s is None:
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            line = self._begin(len(ids))
            if reporter is not None:
                reporter.write_line(line)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keeps how long it took, unless it was broken off."""
        is_whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if self._began_s is not None and is_whole and not self._config.option.collectonly:
            self._store(self._known() | {self._selection: round(time.monotonic() - self._began_s, 1)})

    def _begin(self, count: int) -> str:
        self._began_s = time.monotonic()
        is_whole = self._config.args == self._config.getini("testpaths") and not self._is_repeated
        is_everyday = is_whole and self._config.option.markexpr == EVERYDAY
        return length_line(count, self._known().get(self._selection), is_everyday=is_everyday)

    @property
    def _is_repeated(self) -> bool:
        """Whether only what failed the last time is run."""
        return bool(getattr(self._config.option, "lf", False))

    @property
    def _selection(self) -> str:
        option = self._config.option
        processes = getattr(option, "numprocesses", None) or 0
        failed = "--last-failed " if self._is_repeated else ""
        return f"{failed}{' '.join(self._config.args)} -m {option.markexpr!r} -k {option.keyword!r} -n {processes}"

    def _known(self) -> dict[str, float]:
        cache: Any = getattr(self._config, "cache", None)
        return dict(cache.get(_KEY, {})) if cache is not None else {}

    def _store(self, known: dict[str, float]) -> None:
        cache: Any = getattr(self._config, "cache", None)
        if cache is not None:
            cache.set(_KEY, known)
