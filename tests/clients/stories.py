"""What happens to a client whose list grows by its searches, as any client library can live through it."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

__all__ = ["OWN_TOOLS", "Reply", "Visitor", "check", "live"]

OWN_TOOLS = [
    "retrieve_tools",
    "describe_tool",
    "call_tool_read",
    "call_tool_write",
    "call_tool_destructive",
    "read_output",
]
FIRST, SECOND = "todo:add_task", "clock:now"
PAUSE_S = 0.05


class Reply(NamedTuple):
    """A tool's result: its structured part, if it has one, and all its text."""

    structured: Mapping[str, Any]
    text: str


class Visitor(Protocol):
    """A client of the gateway, whatever library it is made with."""

    def told(self) -> int:
        """How often it was told that its list has changed."""

    async def names(self) -> list[str]:
        """The tools that it is offered now, as the server has them."""

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """A tool's result. Raises where the server does not know the tool."""


async def live(visitor: Visitor, other: Visitor) -> dict[str, Any]:
    """What `visitor` meets where one found tool fits into its list at a time, and what `other` sees of it."""
    story: dict[str, Any] = {"before": await visitor.names()}
    story["first"] = (await _search(visitor, FIRST))["newly_registered"]
    while not visitor.told():
        await asyncio.sleep(PAUSE_S)
    story["after"] = await visitor.names()
    story["said"] = (await visitor.call(story["first"][0], {"title": "Milk"})).text
    second = await _search(visitor, SECOND)
    story["second"], story["evicted"] = second["newly_registered"], second["evicted"]
    while visitor.told() < 2:
        await asyncio.sleep(PAUSE_S)
    story["in_the_end"] = await visitor.names()
    story["others"] = await other.names()
    story["others_error"] = await _error(other, story["second"][0])
    story["others_told"] = other.told()
    return story


async def _search(visitor: Visitor, name: str) -> Mapping[str, Any]:
    """The answer that registered the tool; a gateway that was just started may still be listing its servers."""
    server, _, _ = name.partition(":")
    while True:
        answer = (await visitor.call("retrieve_tools", {"query": name, "limit": 1, "servers": [server]})).structured
        if answer["newly_registered"]:
            return answer
        assert answer["not_covered"], answer
        await asyncio.sleep(PAUSE_S)


async def _error(visitor: Visitor, name: str) -> str:
    try:
        return (await visitor.call(name, {})).text
    except Exception as exc:
        return str(exc)


def check(story: Mapping[str, Any]) -> None:
    """Holds if the client lived through what it should have."""
    assert story["before"] == OWN_TOOLS
    assert story["first"] == ["todo__add_task"]
    assert story["after"] == [*OWN_TOOLS, "todo__add_task"]
    assert "Milk" in story["said"]
    assert (story["second"], story["evicted"]) == (["clock__now"], ["todo__add_task"])
    assert story["in_the_end"] == [*OWN_TOOLS, "clock__now"]
    assert story["others"] == OWN_TOOLS
    assert "Unknown tool 'clock__now'" in story["others_error"]
    assert story["others_told"] == 0
