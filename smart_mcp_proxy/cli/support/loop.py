"""The event loop that the gateway serves on, and what is loaded late before it runs."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from importlib import import_module
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


def load_sparingly(*, is_http: bool = False) -> None:
    """Has the rest of a start import less: what few sessions need is loaded when one does.

    Args:
        is_http: FastMCP is going to serve.
    """
    _defer_models()
    # Here and below, not above: clients on stdio are answered before.
    from smart_mcp_proxy.fastmcp_compat.packages import defer_packages, restore_packages

    defer_packages()
    # Threads for products of matrices are busy for 50 ms at first; a search multiplies one matrix with a vector, which
    # memory limits.
    _import_with("numpy", "OPENBLAS_NUM_THREADS", "1")
    if is_http:
        # Its handlers are taken away as soon as there is a server, see fastmcp_compat/fastmcp_server.py.
        _import_with("fastmcp", "FASTMCP_LOG_ENABLED", "false")
    restore_packages()


def _defer_models() -> None:
    """Has models of messages built when one is first used.

    The SDK has 500 of them, for two eras; to build all takes a tenth of a start, and a session needs few.
    """
    from pydantic import BaseModel, TypeAdapter

    BaseModel.model_config["defer_build"] = True
    # A union of models has no settings of its own, and builds them all.
    TypeAdapter._defer_build = property(lambda adapter: True)  # type: ignore[assignment,method-assign]
    rebuild = BaseModel.__dict__["model_rebuild"]
    BaseModel.model_rebuild = classmethod(lambda cls, **_: None)  # type: ignore[assignment,method-assign]
    # It would build those that it completes, and those that its generic ones come from.
    import mcp_types  # noqa: F401

    BaseModel.model_rebuild = rebuild  # type: ignore[method-assign]


def _import_with(module: str, name: str, value: str) -> None:
    """Import a module while a variable of the environment has this value, unless it has one."""
    environ = os.environ  # noqa: TID251  (read by the library itself, and no server's business)
    if name not in environ:
        environ[name] = value
        import_module(module)
        del environ[name]
