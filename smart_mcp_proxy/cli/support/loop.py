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


def run(work: Coroutine[Any, Any, int]) -> int:
    """The result of `work` on a new event loop, the quickest one that is installed."""
    import anyio  # here and not above: clients on stdio are answered before

    async def result() -> int:
        return await work

    share_heap()  # before there are threads
    # On a loop that anyio began, no lock of its looks for the library that runs: 3 % of a session (measured).
    return anyio.run(result, backend_options={"loop_factory": _new_loop})
