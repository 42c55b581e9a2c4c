"""The event loop that the gateway serves on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

try:
    import uvloop
except ImportError:  # it has no build for some systems
    _new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    _new_loop = uvloop.new_event_loop

from smart_mcp_proxy.io.memory import share_heap

__all__ = ["run"]


def run(work: Coroutine[Any, Any, int]) -> int:
    """The result of `work` on a new event loop, the quickest one that is installed."""
    share_heap()  # before there are threads
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(work)
