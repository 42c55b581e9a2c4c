"""The same story for every client library: list the tools, search until the servers are there, call what was found.

Imported by the programs beside it, which run in an environment of their library's own: standard library only.
"""

import asyncio
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

SEARCH = {"query": "add a task to the todo list"}
CALL = {"name": "todo:add_task", "args": {"title": "Milk"}}
TRIES, PAUSE_S = 60, 0.25

Call = Callable[[str, dict[str, Any]], Awaitable[object] | object]


def target() -> dict[str, Any]:
    """The first argument of the program: {"url"} or {"command", "args", "env"}."""
    value: dict[str, Any] = json.loads(sys.argv[1])
    return value


async def live(names: Iterable[str], call: Call) -> None:
    """Print as JSON what a client saw; `call` uses a tool in the way of the library and may be asynchronous."""

    async def text(name: str, arguments: dict[str, Any]) -> str:
        result = call(name, arguments)
        return str(await result if inspect.isawaitable(result) else result)

    found = ""
    for _ in range(TRIES):
        found = await text("retrieve_tools", SEARCH)
        if CALL["name"] in found:
            break
        await asyncio.sleep(PAUSE_S)
    print(json.dumps({"tools": list(names), "found": found, "called": await text("call_tool_write", CALL)}))


def live_blocking(names: Iterable[str], call: Callable[[str, dict[str, Any]], object]) -> None:
    """The same for a library that blocks."""
    found = ""
    for _ in range(TRIES):
        found = str(call("retrieve_tools", SEARCH))
        if str(CALL["name"]) in found:
            break
        time.sleep(PAUSE_S)
    print(json.dumps({"tools": list(names), "found": found, "called": str(call("call_tool_write", CALL))}))
