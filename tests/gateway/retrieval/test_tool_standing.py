"""Where a tool stands for a question: the first thing that keeps it out, and the numbers."""

from dataclasses import replace
from typing import Any

import pytest
from gateway_fakes import FakeUpstream, Parts, config, definition
from test_retrieval import RetrievalSetup

from smart_mcp_proxy.errors import ServerNotFoundError, ToolNotFoundError
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ServerState, ToolKey
from smart_mcp_proxy.servers import Profile, ToolFilter

pytestmark = pytest.mark.anyio

READ = {"readOnlyHint": True}
COLOURS = ("red", "blue", "green", "brown", "black", "white", "pink", "grey")
TOOLS = [
    definition("paint_wall", "Paint a wall in a colour."),
    definition("measure_wall", "Measure the length of a wall.", hints=READ),
    definition("boil_water", "Heat water in a kettle until it boils."),
]


class Asked:
    """A retrieval over the tools of alpha, asked about one tool at a time."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.setup = RetrievalSetup(parts)

    async def about(self, name: str, query: str = "paint a wall", limit: int = 5, **fields: Any) -> dict[str, Any]:
        return await self.setup.retrieval.why_not(Question(query, limit, **fields), name)

    async def verdict(self, name: str, query: str = "paint a wall", limit: int = 5, **fields: Any) -> str:
        told = await self.about(name, query, limit, **fields)
        assert told["reason"].endswith((".", name)), told["reason"]
        verdict: str = told["verdict"]
        return verdict


@pytest.fixture
async def asked(parts: Parts) -> Asked:
    await parts.sync("alpha", TOOLS)
    return Asked(parts)


async def test_a_tool_in_the_answer_has_its_place_and_the_numbers(asked: Asked) -> None:
    """The same as the answer has them, by either form of its name; an agent's search is not told of it."""
    told = await asked.about("alpha__paint_wall")
    (tool, *_) = (await asked.setup.ask("paint a wall"))["tools"]
    assert (told["name"], told["verdict"], told["place"], told["rank"]) == ("alpha:paint_wall", "in_answer", 1, 1)
    assert told["score"] == tool["score"] == told["top"]["score"]
    assert told["top"]["name"] == "alpha:paint_wall"
    assert told["cut"] == pytest.approx(0.6 * told["score"], abs=0.001)
    assert told["fitness"] > told["floors"]["upper"] > told["floors"]["lower"] == 0.7
    assert told["server"] == {"name": "alpha", "state": "ready"}
    assert told["why"]["matched"]["name"] == ["paint", "wall"]
    assert [line.kind for line in asked.parts.notebook.lines] == ["search"]  # the usual one above


async def test_a_tool_that_the_query_names_is_first_whatever_its_rank(asked: Asked) -> None:
    """The score is that of the answer, and the next one says why it moved down."""
    named = await asked.about("alpha:boil_water", "paint a wall in a colour with alpha:boil_water")
    assert (named["verdict"], named["place"], named["score"]) == ("in_answer", 1, 1.0)
    assert named["why"]["exact"] == "alpha:boil_water"
    moved = await asked.about("alpha:paint_wall", "paint a wall in a colour with alpha:boil_water")
    assert moved["place"] > moved["rank"]
    assert "Tools that the query names come first" in moved["reason"]


async def test_a_tool_without_a_word_of_the_query_does_not_match(asked: Asked) -> None:
    """It has a score of 0 and no rank."""
    told = await asked.about("alpha:boil_water")
    assert (told["verdict"], told["rank"], told["score"]) == ("no_match", None, 0.0)


async def test_nothing_fits_where_the_best_tool_is_below_the_lower_floor(asked: Asked) -> None:
    """The fitness is that of the best tool, which is what decides."""
    await asked.parts.sync("beta", [definition("get_data", "Get data.")])
    told = await asked.about("beta:get_data", "get quantum whales to jupiter by catapult")
    assert told["verdict"] == "floor"
    assert told["fitness"] < told["floors"]["lower"]
    assert told["top"]["name"] in told["reason"]


async def test_a_tool_below_the_cut_is_told_by_how_much(asked: Asked) -> None:
    """Its score, the cut and the tool that sets it."""
    await asked.parts.sync("beta", [definition("get_data", "Get data.")])
    told = await asked.about("beta:get_data", "measure the length of the wall and get it")
    assert told["verdict"] == "cut"
    assert told["score"] < told["cut"] == pytest.approx(0.7 * told["top"]["score"], abs=0.001)
    assert f"{told['score']:.2f}" in told["reason"]
    assert "alpha:measure_wall" in told["reason"]


@pytest.mark.long  # a third of a second of processor time
async def test_a_tool_beyond_the_limit_has_its_rank_however_deep(asked: Asked, parts: Parts) -> None:
    """Deeper than the search itself looked, too: each of many that are worth the same has a rank of its own."""
    words = [f"{a}{b}" for a in ("bo", "ki", "lu", "me", "za", "ro", "ti") for b in ("dar", "fen", "gop", "hul")] * 5
    names = [f"lift_{word}{'abcde'[n // 28]}" for n, word in enumerate(words)]
    await parts.sync("beta", [definition(name, f"Lift {name[::-1]}{n} {n}.") for n, name in enumerate(names)])
    told = [await asked.about(f"beta:{name}", "lift", limit=1) for name in names]
    told.sort(key=lambda each: each["rank"])
    assert [each["rank"] for each in told] == list(range(1, 141))
    assert told[0]["verdict"] == "in_answer"
    for each in told[1:]:
        assert (each["verdict"], each["limit"]) == ("limit", 1)
        assert f"ranks {each['rank']}" in each["reason"]


async def test_a_sixth_tool_of_a_server_gives_way_to_other_servers(asked: Asked, parts: Parts) -> None:
    """The cap is named, not the limit, which leaves room."""
    await parts.sync("alpha", [definition(f"lift_{colour}", f"Lift the {colour} box.") for colour in COLOURS])
    await parts.sync("beta", [definition("lift_sofa", "Lift a sofa.")])
    verdicts = [await asked.verdict(f"alpha:lift_{colour}", "lift", limit=10) for colour in sorted(COLOURS)]
    assert verdicts == ["in_answer"] * 5 + ["server_cap"] * 3
    assert await asked.verdict("beta:lift_sofa", "lift", limit=10) == "in_answer"


async def test_a_clone_is_told_for_which_tool_it_stands(parts: Parts) -> None:
    """Beyond the 20 that an explained answer names as well."""
    await parts.sync("alpha", [definition(f"boil_water_{number}", "Boil water.") for number in range(30)])
    told = await Asked(parts).about("alpha:boil_water_29", "boil water")
    assert told["verdict"] == "clone"
    assert "says the same as alpha:boil_water_0" in told["reason"]


async def test_a_tool_that_the_answer_has_no_room_for_is_told_so(parts: Parts) -> None:
    """It fits, but its definition would not: the first ones of the answer are as long."""
    long = {"type": "object", "properties": {f"{'x' * 60}{n}": {"type": "string"} for n in range(60)}}
    names = [f"{server}:lift_{colour}" for server in ("alpha", "beta") for colour in COLOURS[:5]]
    for server in ("alpha", "beta"):
        tools = [definition(f"lift_{colour}", f"Lift the {colour} box.", inputSchema=long) for colour in COLOURS[:5]]
        await parts.sync(server, tools)
    setup = Asked(parts)
    sent = [tool["name"] for tool in (await setup.setup.ask("lift", limit=10, detail="full"))["tools"]]
    left = [name for name in names if await setup.verdict(name, "lift", 10, detail="full") == "size"]
    assert sent and left and not {*sent} & {*left}


async def test_a_filter_of_the_question_is_named_with_the_standing_without_it(asked: Asked) -> None:
    """Servers and read_only; the numbers are those of a search without the filter."""
    await asked.parts.sync("beta", [definition("mix", "Mix colours.")])
    told = await asked.about("alpha:paint_wall", servers=("beta",))
    assert (told["verdict"], told["place"], told["rank"]) == ("servers", None, 1)
    assert told["reason"].startswith("Only tools of beta were asked for. Without that: It is in the answer")
    assert await asked.verdict("alpha:paint_wall", servers=("alpha",)) == "in_answer"
    assert await asked.verdict("alpha:paint_wall", read_only=True) == "read_only"
    assert await asked.verdict("alpha:measure_wall", "measure a wall", read_only=True) == "in_answer"
    with pytest.raises(ServerNotFoundError):
        await asked.about("alpha:paint_wall", servers=("gamma",))


async def test_the_server_file_and_a_profile_keep_tools_out(parts: Parts) -> None:
    """Its `tools` filter, a disabled or quarantined server, one that is gone, a profile without the tool or server."""
    await parts.sync("alpha", TOOLS)
    asked, beta = Asked(parts), config("beta")
    for verdict, servers in {
        "excluded": {"alpha": config("alpha", tools=ToolFilter(exclude=("paint*",)))},
        "server_disabled": {"alpha": config("alpha", disabled=True)},
        "server_quarantined": {"alpha": config("alpha", quarantined=True)},
        "not_configured": {"beta": beta},
    }.items():
        parts.visible.reconfigure(servers)
        told = await asked.about("alpha:paint_wall")
        assert (told["verdict"], "alpha" in told["reason"]) == (verdict, True)
    servers = {"alpha": config("alpha"), "beta": beta}
    for profile in (Profile("p", servers=("beta",)), Profile("p", servers=("alpha",), tools=("boil*",))):
        view = CatalogView(parts.catalog, servers, parts.index.nearest_names, profile)
        assert await Asked(replace(parts, visible=view)).verdict("alpha:paint_wall") == "profile"


async def test_a_tool_that_waits_for_the_user_is_told_with_the_command(parts: Parts) -> None:
    """New, changed and blocked ones, by name; they have no numbers, for nothing of them is searched."""
    await parts.sync("alpha", TOOLS)
    before = parts.catalog.snapshot
    changed = definition("paint_wall", "Paint a wall and send a picture of it.")
    await parts.catalog.sync("alpha", [changed, *TOOLS[1:], definition("drill", "Drill a hole.")], None)
    await parts.catalog.block(ToolKey("alpha", "boil_water"), "me")
    await parts.catalog.refresh()
    parts.index.update([], parts.catalog.snapshot.since(before).removed)
    asked = Asked(parts)
    for name, verdict in {"drill": "new", "paint_wall": "changed", "boil_water": "blocked"}.items():
        told = await asked.about(f"alpha:{name}")
        assert (told["verdict"], told["rank"], told["score"]) == (verdict, None, None)
        assert told["reason"].endswith(f"mcpproxy approve alpha:{name}")
    assert (await asked.about("alpha__drill"))["verdict"] == "new"


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (ServerState.QUARANTINED, "server_quarantined"),
        (ServerState.DISABLED, "server_disabled"),
        (ServerState.ERROR, "server_not_ready"),
        (ServerState.CONNECTING, "server_not_ready"),
    ],
)
async def test_a_server_that_has_listed_nothing_is_the_reason(asked: Asked, state: ServerState, verdict: str) -> None:
    """Its tools are not known, so the name is taken at its word, in either form."""
    beta = FakeUpstream("beta")
    beta.move(state, error="It does not start." if state is ServerState.ERROR else "")
    asked.setup.servers = [beta]
    for name in ("beta:mix", "beta__mix"):
        told = await asked.about(name)
        assert (told["verdict"], told["server"]) == (verdict, {"name": "beta", "state": state.value})
        assert "'beta'" in told["reason"]
    assert ("It does not start." in told["reason"]) == (state is ServerState.ERROR)


async def test_a_name_that_no_server_lists_is_an_error_with_what_was_meant(asked: Asked, parts: Parts) -> None:
    """Tools that wait are among what is offered: an operator may know them."""
    with pytest.raises(ToolNotFoundError) as caught:
        await asked.about("alpha:pain_wall")
    assert (caught.value.data or {})["did_you_mean"][0] == "alpha:paint_wall"
    await parts.catalog.sync("alpha", [*TOOLS, definition("drill_hole", "Drill a hole.")], None)
    with pytest.raises(ToolNotFoundError, match="alpha:drill_hol'") as caught:
        await asked.about("alpha:drill_hol")
    assert caught.value.hint.startswith("Did you mean alpha:drill_hole")
    with pytest.raises(ToolNotFoundError, match="No server lists a tool"):
        await asked.about("zzzzzzzzzzz")


async def test_a_tool_that_is_not_indexed_yet_is_told_so(asked: Asked, parts: Parts) -> None:
    """The index follows the catalog within seconds."""
    await parts.catalog.sync("beta", [definition("mix", "Mix colours.")])
    assert await asked.verdict("beta:mix", "mix colours") == "not_indexed"
