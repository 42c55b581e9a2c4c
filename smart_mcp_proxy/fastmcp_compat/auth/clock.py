"""The clock by which FastMCP and the SDK judge tokens.

Relied on: the modules that are given here name Python's module `time` `time`, and call what they need of it there.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Clock:
    """Python's `time` with another present."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.time = now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def override_clock(now_s: Callable[[], float], modules: Iterable[ModuleType]) -> Iterator[None]:
    """Have these modules go by another clock than this machine's while it is open, in the whole process.

    Gateways that share a store accept each other's tokens, and a machine's clock may be wrong: they go by the store's.

    Args:
        now_s: Seconds since the epoch.
        modules: Of FastMCP or the SDK.
    """
    before = {module: vars(module)["time"] for module in modules}
    for module in before:
        vars(module)["time"] = _Clock(now_s)
    try:
        yield
    finally:
        for module, clock in before.items():
            vars(module)["time"] = clock
