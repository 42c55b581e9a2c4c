"""The short part of a compact answer: what a call needs of the tools behind the first ones, and who comes next."""

from typing import Any

import msgspec
import pytest
from gateway_fakes import Parts, config, definition
from test_retrieval import RecordingList, RetrievalSetup, names

from smart_mcp_proxy.gateway.retrieval.summaries import LEADING, MORE_BYTES, MORE_LIMIT
from smart_mcp_proxy.servers import ToolFilter

pytestmark = pytest.mark.anyio

WORDS = ("box", "car", "pen", "cup", "sofa", "lamp", "desk", "bike", "book", "door", "tree", "boat", "coin", "shoe")
SCHEMA = {
    "type": "object",
    "properties": {
        "height": {"type": "number"},
        "how": {"enum": ["slow", "fast"]},
        "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["height", "how"],
}


def lifts(server: str, count: int = len(WORDS), **fields: Any) -> list[dict[str, Any]]:
    """Tools that all fit the query "lift"."""
    return [
        definition(f"{server}_lift_{word}", f"Lift the {word}.", inputSchema=SCHEMA, **fields) for word in WORDS[:count]
    ]


@pytest.fixture
async def setup(parts: Parts) -> RetrievalSetup:
    for server in ("alpha", "beta", "gamma"):
        await parts.sync(server, lifts(server))
    return RetrievalSetup(parts)


async def test_the_next_ones_that_fit_are_named_with_what_a_call_needs(setup: RetrievalSetup) -> None:
    """Behind the limit, each once, with required parameters, their types and choices; a hint says how to go on."""
    for limit in (1, 3, 5):
        answer = await setup.ask("lift", limit)
        more = [line["name"] for line in answer["more"]]
        assert len(answer["tools"]) == limit and 0 < len(more) <= MORE_LIMIT
        assert not set(more) & set(names(answer)) and len(set(more)) == len(more)
        assert all(set(line) == {"name", "signature"} for line in answer["more"])
        assert {line["signature"] for line in answer["more"]} == {'(height:float, how:"slow"|"fast", ~)'}
        assert "describe_tool says how to call them" in answer["hint"]


async def test_only_the_first_ones_are_told_with_their_optional_parameters(setup: RetrievalSetup) -> None:
    """A call of any of them can be written from the answer: what is required is there for all."""
    answer = await setup.ask("lift", 5)
    signatures = [tool["signature"] for tool in answer["tools"]]
    whole = '(height:float, how:"slow"|"fast", note?:str, tags?:list[str])'
    assert signatures == [whole] * LEADING + ['(height:float, how:"slow"|"fast", ~)'] * (5 - LEADING)
    assert len({frozenset(tool) for tool in answer["tools"]}) == 1, "every entry has the same members"


async def test_a_long_sentence_is_cut_behind_the_first_ones(parts: Parts) -> None:
    """The first ones keep it whole."""
    long = "Lift it " + "very " * 25 + "high."
    await parts.sync("alpha", [definition(f"lift_{word}", f"{long[:-1]} {word}.") for word in WORDS[:4]])
    texts = [tool["description"] for tool in (await RetrievalSetup(parts).ask("lift", 4))["tools"]]
    assert all(len(text) > 130 for text in texts[:LEADING])
    assert all(len(text) <= 80 and text.endswith("…") for text in texts[LEADING:])


async def test_more_ends_where_its_room_does(parts: Parts) -> None:
    """However long the lines are: the first is always there, ten at most."""
    for size, shown in ((0, 8), (150, 2), (300, 1), (2_000, 1)):
        name = f"p{'x' * size}"
        schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name] if size else []}
        for server in ("alpha", "beta", "gamma"):
            await parts.sync(
                server, [definition(f"lift_{word}", f"Lift {word} of {server}.", inputSchema=schema) for word in WORDS]
            )
        more = (await RetrievalSetup(parts).ask("lift", 2))["more"]
        assert len(more) == shown
        assert shown == 1 or len(msgspec.json.encode(more)) <= MORE_BYTES + len(more) + 1


async def test_no_server_fills_more(parts: Parts) -> None:
    """Of one server no more tools are named than a longer answer would hold."""
    await parts.sync("alpha", lifts("alpha"))
    await parts.sync("beta", [definition("measure", "Measure a wall.")])
    answer = await RetrievalSetup(parts).ask("lift", 3)
    assert len(answer["tools"]) + len(answer["more"]) == 5


async def test_nothing_is_named_where_nothing_fits(setup: RetrievalSetup) -> None:
    """A list, and empty."""
    answer = await setup.ask("xylophone tuning")
    assert answer["tools"] == answer["more"] == []
    assert "in more" not in answer["hint"]


async def test_what_is_named_is_neither_registered_nor_written_down_as_found(
    setup: RetrievalSetup, parts: Parts
) -> None:
    """Only what stands in tools enters a list."""
    recording = RecordingList()
    answer = await setup.ask("lift", 2, tool_list=recording)
    assert answer["more"]
    assert recording.given == names(answer) == parts.notebook.lines[-1].detail["tools"]


async def test_what_had_no_room_in_tools_is_named_first(parts: Parts) -> None:
    """It fits best of what is left."""
    schema = {"type": "object", "properties": {f"part_{number}" * 20: {"type": "string"} for number in range(40)}}
    await parts.sync("alpha", [definition(f"paint_{number}", "Paint it.", inputSchema=schema) for number in range(9)])
    setup = RetrievalSetup(parts)
    shown = names(await setup.ask("paint", 9, servers=("alpha",)))
    answer = await setup.ask("paint", 9, servers=("alpha",), detail="full")
    assert 0 < len(answer["tools"]) < 9
    assert [*names(answer), *(line["name"] for line in answer["more"])] == shown


async def test_what_may_not_be_seen_or_was_not_asked_for_is_never_named(setup: RetrievalSetup, parts: Parts) -> None:
    """Servers that are hidden, tools that are left out, other servers, and others than read-only ones."""

    async def servers_named(**asked: Any) -> set[str]:
        answer = await setup.ask("lift", 1, **asked)
        return {line["name"].partition(":")[0] for line in (*answer["tools"], *answer["more"])}

    assert len(await servers_named()) > 1
    assert await servers_named(servers=("beta",)) == {"beta"}
    parts.visible.reconfigure({"alpha": config("alpha"), "beta": config("beta", tools=ToolFilter(exclude=("*",)))})
    assert await servers_named() == {"alpha"}
    await parts.sync("alpha", [*lifts("alpha", 3), *lifts("read", 4, hints={"readOnlyHint": True})])
    answer = await setup.ask("lift", 1, read_only=True)
    assert len(answer["more"]) == 3
    assert all(line["name"].startswith("alpha:read_") for line in answer["more"])
