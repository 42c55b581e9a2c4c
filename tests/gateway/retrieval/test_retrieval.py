"""What a search answers: the tools, how to call them, and what the answer does not know."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gateway_fakes import FakeUpstream, Parts, config, definition

from smart_mcp_proxy.errors import RequestError, ServerNotFoundError
from smart_mcp_proxy.gateway.retrieval.retrieval import (
    COMPACT_CAP_TOKENS,
    FULL_CAP_TOKENS,
    Question,
    Retrieval,
    estimate_tokens,
)
from smart_mcp_proxy.gateway.shared.agent_tools import Registration
from smart_mcp_proxy.models import ServerState, ServerStatus, ToolRecord
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.servers import ToolFilter

pytestmark = pytest.mark.anyio

READ = {"readOnlyHint": True}
TOOLS = [
    definition(
        "paint_wall",
        "Paint a wall in a colour. It takes a day to dry.",
        inputSchema={
            "type": "object",
            "properties": {"wall": {"type": "string"}, "colour": {"enum": ["red", "blue"]}},
            "required": ["wall"],
        },
    ),
    definition("measure_wall", "Measure the length of a wall.", hints=READ),
    definition("demolish_wall", "Tear down a wall for good.", hints={"destructiveHint": True}),
]


class IndexFacts:
    """What is known of the index and the servers' lists, set by hand."""

    def __init__(self, index: SearchIndex) -> None:
        self.index = index
        self.fresh = {"alpha", "beta"}
        self.age: float | None = 2.345
        self.waiting: dict[int, ToolRecord] = {}
        self.loaded = asyncio.Event()
        self.loaded.set()

    def is_fresh(self, server: str) -> bool:
        return server in self.fresh

    def is_settled(self, status: ServerStatus) -> bool:
        """Nothing is on its way; `test_first_tools.py` has what is."""
        return True

    def age_s(self, servers: Iterable[str]) -> float | None:
        return self.age


class RetrievalSetup:
    """A retrieval over the wall tools of alpha."""

    def __init__(self, parts: Parts, degraded: tuple[str, ...] = ()) -> None:
        self.parts = parts
        self.facts = IndexFacts(parts.index)
        self.servers = [FakeUpstream("beta"), FakeUpstream("alpha")]
        facts: Any = self.facts
        notebook: Any = parts.notebook
        self.retrieval = Retrieval(
            parts.visible, parts.catalog, facts, facts, self.statuses, notebook, degraded=lambda: degraded
        )

    def statuses(self) -> list[Any]:
        return [server.status for server in self.servers]

    async def ask(self, query: str = "wall", limit: int = 5, **fields: Any) -> dict[str, Any]:
        return await self.retrieval.retrieve(Question(query, limit, **fields))


@pytest.fixture
async def setup(parts: Parts) -> RetrievalSetup:
    await parts.sync("alpha", TOOLS)
    return RetrievalSetup(parts)


def names(answer: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in answer["tools"]]


async def test_an_answer_has_every_member_of_the_contract(setup: RetrievalSetup) -> None:
    """Lists are lists when they are empty, too."""
    answer = await setup.ask("paint a wall", limit=1)
    assert set(answer) == {
        "query", "total", "tools", "more", "near_misses", "newly_registered", "evicted", "pool", "toolset",
        "generation", "index_age_s", "not_covered", "degraded", "hint", "tokens",
    }  # fmt: skip
    assert (answer["query"], answer["total"]) == ("paint a wall", 3)
    for name in ("near_misses", "not_covered", "degraded", "newly_registered", "evicted"):
        assert answer[name] == []
    assert answer["pool"] is answer["toolset"] is None
    assert answer["generation"] == setup.parts.catalog.snapshot.generation
    assert answer["index_age_s"] == 2.3
    (tool,) = answer["tools"]
    record = setup.parts.visible.find("alpha:paint_wall")
    assert record is not None
    assert tool.pop("score") == pytest.approx(1, abs=1)
    assert tool == {
        "name": "alpha:paint_wall",
        "listed_name": "alpha__paint_wall",
        "server": "alpha",
        "description": "Paint a wall in a colour.",
        "signature": '(wall:str, colour?:"red"|"blue")',
        "annotations": {},
        "call_with": "call_tool_write",
        "digest": record.digest,
        "stale": False,
    }


async def test_full_detail_is_the_whole_definition(setup: RetrievalSetup, parts: Parts) -> None:
    """Title and output schema where there are some."""
    output = {"type": "array"}
    await parts.sync("beta", [definition("mix", "Mix colours.", title="Mixer", outputSchema=output, hints=READ)])
    (tool,) = (await setup.ask("beta:mix", limit=1, detail="full"))["tools"]
    assert (tool["title"], tool["output_schema"], tool["description"]) == ("Mixer", output, "Mix colours.")
    assert (tool["call_with"], tool["annotations"]) == ("call_tool_read", READ)
    (tool,) = (await setup.ask("alpha:paint_wall", limit=1, detail="full"))["tools"]
    assert tool["input_schema"] == TOOLS[0]["inputSchema"]
    assert "title" not in tool
    assert "output_schema" not in tool


@pytest.mark.parametrize("query", ["", "  ", "\n\t"])
async def test_a_question_without_words_is_an_error(setup: RetrievalSetup, query: str) -> None:
    """It says what to write instead."""
    with pytest.raises(RequestError, match="query is empty"):
        await setup.ask(query)


@pytest.mark.parametrize("limit", [0, -1, 51, 1000])
async def test_a_limit_out_of_range_is_an_error(setup: RetrievalSetup, limit: int) -> None:
    """Never a clamp."""
    with pytest.raises(RequestError, match=f"limit is {limit}"):
        await setup.ask(limit=limit)


async def test_the_limit_holds_for_all_queries_together(setup: RetrievalSetup) -> None:
    """Not for each of them; more than four further ones are an error."""
    answer = await setup.ask("paint", limit=2, more_queries=("measure", "demolish"))
    assert len(answer["tools"]) == 2
    answer = await setup.ask("paint", limit=3, more_queries=("measure", "demolish"))
    assert set(names(answer)) == {"alpha:paint_wall", "alpha:measure_wall", "alpha:demolish_wall"}
    with pytest.raises(RequestError, match="more_queries has 5 entries"):
        await setup.ask(more_queries=("a", "b", "c", "d", "e"))


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_further_query_without_words_is_an_error(setup: RetrievalSetup, blank: str) -> None:
    """As the query itself is."""
    with pytest.raises(RequestError, match="more_queries has an empty entry") as caught:
        await setup.ask("paint", more_queries=("measure", blank))
    assert "Leave it out" in caught.value.hint


async def test_a_query_that_nothing_fits_is_named_beside_those_that_something_fits(setup: RetrievalSetup) -> None:
    """Whichever of them it is; where nothing fits any, one sentence says so."""
    for query, further in (("xyzzy", "paint wall"), ("paint wall", "xyzzy")):
        answer = await setup.ask(query, more_queries=(further,))
        assert names(answer)[0] == "alpha:paint_wall"
        assert "Nothing fits 'xyzzy'." in answer["hint"]
    assert "Nothing fits" not in (await setup.ask("paint", more_queries=("measure wall",)))["hint"]
    hint = (await setup.ask("xyzzy", more_queries=("plugh",)))["hint"]
    assert hint.startswith("Nothing fits. ")
    assert "xyzzy" not in hint


async def test_of_a_long_query_the_answer_repeats_the_beginning_and_says_what_was_read(setup: RetrievalSetup) -> None:
    """A query of 100,000 characters costs the answer as little as a short one."""
    long = "paint wall " + "x" * 100_000
    answer = await setup.ask(long)
    assert answer["query"] == long[:500] + "..."
    assert names(answer)[0] == "alpha:paint_wall"
    assert "Only the first 4,000 of 100,011 characters of the query were read." in answer["hint"]
    assert len(msgspec.json.encode(answer)) < 4 * COMPACT_CAP_TOKENS
    answer = await setup.ask("paint", more_queries=("measure wall " + "y" * 5_000,))
    assert "Only the first 4,000 of 5,013 characters" in answer["hint"]
    long = "paint wall".ljust(4_000, "x")
    assert "were read" not in (await setup.ask(long))["hint"]


async def test_filters_narrow_what_is_found_and_counted(setup: RetrievalSetup, parts: Parts) -> None:
    """By server, by read-only mark, and both."""
    await parts.sync("beta", [definition("draw_wall", "Draw a wall.", hints=READ)])
    answer = await setup.ask("wall", servers=("beta",))
    assert (names(answer), answer["total"]) == (["beta:draw_wall"], 1)
    answer = await setup.ask("wall", read_only=True)
    assert (set(names(answer)), answer["total"]) == ({"alpha:measure_wall", "beta:draw_wall"}, 2)
    answer = await setup.ask("wall", read_only=True, servers=("alpha",))
    assert (names(answer), answer["total"]) == (["alpha:measure_wall"], 1)


async def test_an_unknown_server_is_an_error_with_close_names(setup: RetrievalSetup) -> None:
    """Not an empty answer, which would say that nothing fits."""
    with pytest.raises(ServerNotFoundError) as caught:
        await setup.ask(servers=("alpah",))
    assert "alpha" in caught.value.hint


async def test_a_tool_that_is_hidden_meanwhile_is_not_shown(setup: RetrievalSetup, parts: Parts) -> None:
    """Even while the index still has it."""
    parts.visible.reconfigure({"alpha": config("alpha", tools=ToolFilter(exclude=("paint_*",)))})
    answer = await setup.ask("paint wall colour", limit=5)
    assert "alpha:paint_wall" not in names(answer)
    assert "alpha:paint_wall" not in json.dumps(answer)


async def test_a_server_that_is_listed_during_the_search_is_not_covered(
    setup: RetrievalSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tools were not searched; at the next search they are."""
    setup.facts.fresh = {"alpha"}
    search = setup.parts.index.search

    def listed_meanwhile(*args: Any, **kwargs: Any) -> Any:
        found = search(*args, **kwargs)
        setup.facts.fresh.add("beta")
        return found

    monkeypatch.setattr(setup.parts.index, "search", listed_meanwhile)
    assert (await setup.ask())["not_covered"] == [{"server": "beta", "state": "unlisted"}]
    assert (await setup.ask())["not_covered"] == []


async def test_servers_not_covered_are_named_in_order(setup: RetrievalSetup) -> None:
    """With their state; ready but not listed yet is `unlisted`, a disabled one is not missed, of others nothing."""
    setup.servers = [FakeUpstream(name) for name in ("zeta", "beta", "eta", "alpha", "delta", "gamma")]
    for server, state in zip(setup.servers, list(ServerState), strict=False):
        server.move(state)
    assert [status.state.value for status in setup.statuses()] == [
        "disconnected", "connecting", "authenticating", "ready", "error", "needs_env",
    ]  # fmt: skip
    setup.servers += [FakeUpstream("theta"), FakeUpstream("off")]
    setup.servers[-1].move(ServerState.DISABLED)
    setup.parts.visible.reconfigure({server.status.name: config(server.status.name) for server in setup.servers})
    assert (await setup.ask("xylophone tuning"))["not_covered"] == [
        {"server": "beta", "state": "connecting"},
        {"server": "delta", "state": "error"},
        {"server": "eta", "state": "authenticating"},
        {"server": "gamma", "state": "needs_env"},
        {"server": "theta", "state": "unlisted"},
        {"server": "zeta", "state": "disconnected"},
    ]


async def test_a_failed_server_that_is_tried_again_is_no_news_to_others(setup: RetrievalSetup) -> None:
    """One on its first way is: its tools may be missing; who asks for the failed one is told of it."""
    setup.servers[0].move(ServerState.CONNECTING)
    assert [row["server"] for row in (await setup.ask())["not_covered"]] == ["beta"]
    setup.servers[0].status = msgspec.structs.replace(setup.servers[0].status, last_error="It ended.")
    assert (await setup.ask())["not_covered"] == []
    assert [row["server"] for row in (await setup.ask("wall of beta"))["not_covered"]] == ["beta"]


async def test_a_try_that_fails_during_a_search_is_no_news_either(
    setup: RetrievalSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are read at one moment: whether a server is on its way, and whether it has failed before."""
    trying = msgspec.structs.replace(setup.servers[0].status, state=ServerState.CONNECTING, last_error="It ended.")
    failed = msgspec.structs.replace(trying, state=ServerState.ERROR, error="It ended.", last_error="")
    setup.servers[0].status = trying
    search = setup.parts.index.search

    def fail_meanwhile(*args: Any, **fields: Any) -> Any:
        setup.servers[0].status = failed
        return search(*args, **fields)

    monkeypatch.setattr(setup.parts.index, "search", fail_meanwhile)
    assert (await setup.ask())["not_covered"] == []
    assert setup.servers[0].status is failed


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ServerState.DISABLED, "Server 'beta' is disabled"),
        (ServerState.ERROR, "Server 'beta' has failed"),
        (ServerState.NEEDS_ENV, "Server 'beta' lacks a variable"),
        (ServerState.NEEDS_AUTH, "Server 'beta' wants a sign-in"),
        (ServerState.QUARANTINED, "Server 'beta' waits for the user's approval"),
    ],
)
async def test_a_server_that_is_asked_for_by_name_is_said_to_be_out_of_use(
    setup: RetrievalSetup, state: ServerState, words: str
) -> None:
    """In not_covered with its state, and in a sentence; who asks for others is not bothered with it."""
    setup.servers[0].move(state)
    answer = await setup.ask(servers=("beta",))
    assert answer["not_covered"] == [{"server": "beta", "state": state.value}]
    assert words in answer["hint"]
    assert words not in (await setup.ask(servers=("alpha",)))["hint"]
    assert words not in (await setup.ask())["hint"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "the user has to sign in: mcpproxy server login beta"),
        (
            {"Authorization": "Bearer x"},
            "beta: refuses the configured credentials; the user sees why with: mcpproxy doctor",
        ),
    ],
)
async def test_only_where_a_sign_in_is_possible_the_hint_names_its_command(
    setup: RetrievalSetup, headers: dict[str, str], words: str
) -> None:
    """A server that is sent a fixed token has nothing to sign in to."""
    beta = setup.servers[0]
    beta.config = msgspec.structs.replace(beta.config, transport="http", url="http://127.0.0.1:1", headers=headers)
    setup.parts.visible.reconfigure({**setup.parts.visible.servers, "beta": beta.config})
    beta.move(ServerState.NEEDS_AUTH)
    assert (await setup.ask("a wall of Beta"))["hint"].endswith(words)
    other = await setup.ask()
    assert (other["not_covered"], "beta" in other["hint"]) == ([], False)


async def test_what_is_degraded_is_said_with_every_answer(parts: Parts) -> None:
    """The settings' reasons, and the index while it is loading."""
    await parts.sync("alpha", TOOLS)
    setup = RetrievalSetup(parts, degraded=("no embedder",))
    setup.retrieval.loading_s = 0
    assert (await setup.ask())["degraded"] == ["no embedder"]
    setup.facts.loaded.clear()
    assert (await setup.ask())["degraded"] == ["no embedder", "the stored index is still loading"]


async def test_a_search_waits_for_the_index_that_is_being_loaded(setup: RetrievalSetup) -> None:
    """An answer from an empty index would tell the agent that nothing fits."""
    setup.facts.loaded.clear()
    with anyio.fail_after(20):
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(setup.ask())
            await anyio.wait_all_tasks_blocked()
            assert not asking.done()
            setup.facts.loaded.set()
    answer = asking.result()
    assert (answer["total"], answer["degraded"]) == (3, [])


async def test_before_the_first_listing_there_is_no_age(setup: RetrievalSetup) -> None:
    """Null, not zero."""
    setup.facts.age = None
    assert (await setup.ask())["index_age_s"] is None


async def test_tokens_are_estimated_from_bytes(setup: RetrievalSetup, parts: Parts) -> None:
    """UTF-8 bytes of compact JSON, four to a token: the catalog's and this answer's, and it says that it guesses."""
    answer = await setup.ask()
    size_bytes = sum(len(record.raw) for record in parts.visible.records())
    tokens = answer.pop("tokens")
    assert tokens["catalog"] == estimate_tokens(size_bytes) == size_bytes // 4 > 0
    assert tokens["sent"] == len(msgspec.json.encode(answer)) // 4
    assert tokens["is_estimate"] is True


async def test_catalog_tokens_follow_catalog_and_configuration(setup: RetrievalSetup, parts: Parts) -> None:
    """Hidden tools cost nothing, so nothing is spared by hiding them."""
    before = setup.retrieval.catalog_tokens()
    await parts.sync("beta", [definition("more", "x" * 4000)])
    assert setup.retrieval.catalog_tokens() > before + 900
    parts.visible.reconfigure({"alpha": config("alpha")})
    assert setup.retrieval.catalog_tokens() == before
    parts.visible.reconfigure({})
    assert setup.retrieval.catalog_tokens() == 0


async def test_a_full_answer_stops_at_its_cap_but_shows_the_first(parts: Parts) -> None:
    """However large the definitions are; the hint says that there was more."""
    for size, shown in ((FULL_CAP_TOKENS * 5, 1), (FULL_CAP_TOKENS * 3, 1), (FULL_CAP_TOKENS, 3), (1, 3)):
        schema = {"type": "object", "properties": {f"p{'x' * size}": {"type": "string"}}}
        lifts = [definition(f"lift_{what}", f"Lift {what}.", inputSchema=schema) for what in ("box", "car", "pen")]
        await parts.sync("alpha", lifts)
        answer = await RetrievalSetup(parts).ask("lift", limit=3, detail="full")
        assert len(answer["tools"]) == shown
        assert ("More tools fit than could be sent" in answer["hint"]) == (shown == 1)


async def test_a_compact_answer_stops_at_its_cap(parts: Parts) -> None:
    """One long signature is cut; many together end the list."""
    name = f"p{'x' * 5000}"
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    words = ("box", "car", "pen", "cup", "sofa", "lamp", "desk", "bike", "book", "door")
    await parts.sync("alpha", [definition(f"lift_{word}", f"Lift the {word}.", inputSchema=schema) for word in words])
    answer = await RetrievalSetup(parts).ask("lift", limit=10, servers=("alpha",))
    assert 1 < len(answer["tools"]) < len(words)
    assert answer["tokens"]["sent"] < COMPACT_CAP_TOKENS + 500
    assert "More tools fit than could be sent" in answer["hint"]


async def test_stale_tools_are_marked_and_explained(setup: RetrievalSetup) -> None:
    """They come from the last session."""
    setup.facts.fresh.remove("alpha")
    answer = await setup.ask()
    assert answer["tools"]
    assert all(tool["stale"] for tool in answer["tools"])
    assert "Stale tools" in answer["hint"]
    setup.facts.fresh.add("alpha")
    answer = await setup.ask()
    assert not any(tool["stale"] for tool in answer["tools"])
    assert "Stale" not in answer["hint"]


async def test_a_tool_whose_definition_changed_is_described_anew(setup: RetrievalSetup, parts: Parts) -> None:
    """What an answer says of a tool is remembered for as long as the tool stays as it is, whoever changed an answer."""
    before = (await setup.ask("paint wall", limit=1))["tools"][0]
    before["description"] = "Scribbled over."
    again = (await setup.ask("paint wall", limit=1))["tools"][0]
    assert again["description"] == "Paint a wall in a colour."
    painted = definition("paint_wall", "Paint a wall with a brush. Slowly.", hints=READ)
    await parts.sync("alpha", [painted, *TOOLS[1:]])
    after = (await setup.ask("paint wall", limit=1))["tools"][0]
    assert (after["description"], after["call_with"]) == ("Paint a wall with a brush.", "call_tool_read")
    assert after["digest"] != again["digest"]


async def test_the_hint_says_what_to_do_next(setup: RetrievalSetup, parts: Parts) -> None:
    """One for each way an answer can be."""
    assert "describe_tool has the full schema" in (await setup.ask())["hint"]
    assert "describe_tool" not in (await setup.ask(detail="full"))["hint"]
    answer = await setup.ask("xylophone tuning")
    assert answer["tools"] == []
    assert answer["hint"].startswith("Nothing fits.")
    answer = await setup.ask(servers=("beta",))
    assert (answer["total"], answer["hint"]) == (0, "No tools match these filters.")
    setup.servers[0].move(ServerState.ERROR)
    answer = await setup.ask(servers=("beta",))
    assert answer["hint"].startswith(
        "No tools match these filters. not_covered names servers whose tools may be missing. Server 'beta' has failed"
    )
    setup.servers[0].move(ServerState.READY)
    await parts.sync("alpha", [])
    setup.servers[0].move(ServerState.CONNECTING)
    answer = await setup.ask()
    assert answer["total"] == 0
    assert answer["hint"].startswith("No tools are known yet. Some servers are still connecting")
    setup.servers[0].move(ServerState.READY)
    assert (await setup.ask())["hint"] == "No server offers any tools."


async def test_at_most_three_near_misses_are_named_where_nothing_fits(parts: Parts) -> None:
    """With name and score, so that the agent can judge."""
    await parts.sync("alpha", [definition(f"task_{number}", f"Do task number {number}.") for number in range(400)])
    answer = await RetrievalSetup(parts).ask("a number of telescopes whose mirrors are entangled")
    assert answer["tools"] == []
    assert [set(miss) for miss in answer["near_misses"]] == [{"name", "score"}] * 3
    assert all(miss["name"].startswith("alpha:task_") and 0 < miss["score"] < 1 for miss in answer["near_misses"])


async def test_tools_that_may_fit_are_shown_with_a_word_of_caution(parts: Parts) -> None:
    """Between the two floors the agent judges; a sure answer says nothing of it."""
    fillers = [definition(f"task_{number}", f"Do task number {number}.") for number in range(400)]
    await parts.sync("alpha", [*fillers, definition("boil_kettle", "Heat water.")])
    setup = RetrievalSetup(parts)
    unsure = await setup.ask("water entanglement telescope grant quantum review")
    assert [tool["name"] for tool in unsure["tools"]] == ["alpha:boil_kettle"]
    assert unsure["confidence"] == "low" and unsure["hint"].startswith("It is not certain that one of these fits")
    sure = await setup.ask("heat water")
    assert "confidence" not in sure and sure["hint"].startswith("Call a tool")
    assert "confidence" not in await setup.ask("water entanglement", more_queries=("heat water",))


async def test_a_query_in_another_language_is_told_that_of_the_definitions(setup: RetrievalSetup) -> None:
    """The agent translates better than any index."""
    hint = (await setup.ask("删除旧的记录然后通知管理员"))["hint"]
    assert hint.endswith("The definitions are in English: search in that language.")
    assert "English" not in (await setup.ask("paint a wall"))["hint"]


async def test_what_a_server_marks_destructive_comes_last_where_that_is_forbidden(setup: RetrievalSetup) -> None:
    """The mark is that of the definition."""
    request = "measure a wall, or tear it down for good"
    assert names(await setup.ask(request))[0] == "alpha:demolish_wall"
    found = names(await setup.ask(f"{request}; do not delete anything"))
    assert found[0] == "alpha:measure_wall"
    assert "alpha:demolish_wall" not in found[:-1]


async def test_reasons_are_given_when_they_are_asked_for(setup: RetrievalSetup) -> None:
    """For people; an agent would only pay for them."""
    assert all("why" not in tool for tool in (await setup.ask())["tools"])
    assert all(tool["why"] for tool in (await setup.ask(explain=True))["tools"])


async def test_tools_that_say_the_same_are_named_behind_the_one_that_is_sent(parts: Parts) -> None:
    """The agent learns of them without paying for their definitions; ten at most."""
    await parts.sync("alpha", [definition(f"boil_water_{number}", "Boil water.") for number in range(20)])
    [tool] = (await RetrievalSetup(parts).ask("boil water"))["tools"]
    assert (tool["name"], tool["clones"][0], len(tool["clones"])) == ("alpha:boil_water_0", "alpha:boil_water_1", 10)


async def test_what_was_left_out_is_named_with_the_reason_when_it_is_asked_for(parts: Parts) -> None:
    """For people; an agent would only pay for it."""
    words = ("box", "car", "pen", "cup", "sofa", "lamp", "desk", "bike")
    await parts.sync("alpha", [definition(f"lift_{word}", f"Lift the {word}.") for word in words])
    setup = RetrievalSetup(parts)
    assert "left_out" not in await setup.ask("lift", limit=2)
    left_out = (await setup.ask("lift", limit=2, explain=True))["left_out"]
    assert {row["reason"] for row in left_out} == {"beyond the limit"}
    assert {row["name"] for row in left_out} < {f"alpha:lift_{word}" for word in words}


async def test_reasons_do_not_count_as_sent(setup: RetrievalSetup) -> None:
    """The tokens are those of the answer that an agent gets."""
    assert (await setup.ask(explain=True))["tokens"] == (await setup.ask())["tokens"]


async def test_a_search_is_written_down(setup: RetrievalSetup, parts: Parts) -> None:
    """Query, what was found, and whether anything was."""
    await setup.ask("alpha:paint_wall", limit=1, principal="ann")
    await setup.ask("xylophone " * 200)
    found, empty = parts.notebook.lines
    assert (found.kind, found.principal, found.subject, found.outcome) == ("search", "ann", "alpha:paint_wall", "ok")
    assert found.detail["tools"] == ["alpha:paint_wall"]
    assert (empty.outcome, len(empty.subject)) == ("empty", 500)


async def test_a_conversation_is_spared_the_catalog_once(setup: RetrievalSetup, parts: Parts) -> None:
    """Each search costs its answer; a person's own searches are no agent's."""
    catalog = setup.retrieval.catalog_tokens()
    for session in ("one", "one", "two"):
        await setup.ask("paint a wall", session=session)
    await setup.ask("paint a wall", is_agents=False)
    *agents, own = [line.detail.get("tokens") for line in parts.notebook.lines]
    assert [tokens["spared"] for tokens in agents] == [catalog, 0, catalog]
    assert all(tokens["sent"] > 0 for tokens in agents)
    assert own is None


class RecordingList:
    """A list of tools that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.new: tuple[str, ...] = ()

    async def register(self, found: Any, toolset: str | None, principal: str) -> Registration:
        self.given = [str(record.key) for _, record in found]
        return Registration(newly_registered=self.new)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ((), ""),
        (("alpha__a",), "to be called directly: alpha__a."),
        (tuple(f"alpha__{n}" for n in range(7)), "alpha__3, alpha__4 and more."),
    ],
)
async def test_tools_that_are_now_in_the_callers_list_are_named_in_the_hint(
    setup: RetrievalSetup, new: tuple[str, ...], words: str
) -> None:
    """An agent need not guess that they can be called like any other."""
    recording = RecordingList()
    recording.new = new
    hint = (await setup.ask(tool_list=recording))["hint"]
    assert words in hint and ("your own list" in hint) == bool(new)

    def note_called(self, record: ToolRecord) -> None:
        """Nothing is kept by use."""


async def test_what_the_answer_has_no_room_for_is_not_registered(parts: Parts) -> None:
    """A toolset serves exactly the tools of its answer, and nothing enters a list that was not told of."""
    schema = {"type": "object", "properties": {f"part_{number}" * 20: {"type": "string"} for number in range(40)}}
    await parts.sync("alpha", [definition(f"paint_{number}", "Paint it.", inputSchema=schema) for number in range(9)])
    setup, recording = RetrievalSetup(parts), RecordingList()
    answer = await setup.ask("paint", 9, detail="full", tool_list=recording)
    assert 0 < len(answer["tools"]) < 9
    assert recording.given == names(answer)


@pytest.mark.parametrize(
    ("file", "query"),
    [
        ("sure.json", "paint a wall in a colour"),
        ("low.json", "length of a film in minutes"),
        ("nothing.json", "book a flight to the moon"),
    ],
)
async def test_an_answer_is_the_golden_one(setup: RetrievalSetup, file: str, query: str) -> None:
    """What a model reads changes on purpose only, with its file in the same commit."""
    answer = json.dumps(await setup.ask(query), indent=1, ensure_ascii=False) + "\n"
    golden = Path(__file__).parent / "golden" / file
    assert answer == golden.read_text("utf-8")
