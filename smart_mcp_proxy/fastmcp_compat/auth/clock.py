"""The clock by which FastMCP and the SDK judge tokens.

Relied on: the modules that are given here name Python's module `time` `time`, and call what they need of it there.
"""

import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

__all__ = ["set_clock"]


class _Clock:
    """Python's `time` with another present."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.time = now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def set_clock(modules: Iterable[ModuleType], now_s: Callable[[], float]) -> None:
    """Have these modules go by another clock than this machine's, in the whole process.

    Gateways that share a store accept each other's tokens, and a machine's clock may be wrong: they go by the store's.

    Args:
        modules: Of FastMCP or the SDK.
        now_s: Seconds since the epoch.
    """
    for module in modules:
        module.time = _Clock(now_s)  # type: ignore[attr-defined]
