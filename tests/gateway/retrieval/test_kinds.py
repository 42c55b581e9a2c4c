"""Searches over more than tools: one ranking of all kinds, each with how it is used, and tools that rank as before."""

from types import SimpleNamespace
from typing import Any

import pytest
from gateway_fakes import NAME_LIMIT, FakeUpstream, Parts, config, definition
from test_retrieval import TOOLS, IndexFacts, RetrievalSetup

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.retrieval.kinds import BY_WORDS, CAP_BYTES, ITEM_KINDS, KindIndex, KindSearch
from smart_mcp_proxy.gateway.retrieval.retrieval import Question, Retrieval
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, ServerState
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex

pytestmark = pytest.mark.anyio

PROMPT = {
    "name": "plan_mural",
    "title": "Mural planner",
    "description": "Plan a mural on a wall. It asks twice.",
    "arguments": [{"name": "wall", "description": "Which wall. Any.", "required": True}, {"name": "style"}],
}
RESOURCE = {"uri": "paint://charts/mural", "name": "mural_chart", "description": "Colours for a mural."}
TEMPLATE = {
    "uriTemplate": "paint://murals/{artist}{?year,page*}",
    "name": "murals",
    "description": "A mural by artist.",
}
CONTENTS: dict[ContentKind, list[dict[str, Any]]] = {
    "prompts": [PROMPT],
    "resources": [RESOURCE],
    "templates": [TEMPLATE],
}


class ContentFacts(IndexFacts):
    """The same of prompts and resources."""

    def __init__(self, index: SearchIndex) -> None:
        super().__init__(index)
        self.awaited: list[str] = []

    async def wait_known(self, servers: list[str], *kinds: ContentKind) -> bool:
        self.awaited = servers
        return False


class KindsSetup(RetrievalSetup):
    """A retrieval over tools and contents of alpha, by one view of them."""

    def __init__(self, parts: Parts, visible: CatalogView | None = None, proxy_tool: str | None = None) -> None:
        super().__init__(parts)
        self.content_lists = ContentFacts(parts.index)
        whole = Contents(parts.catalog, parts.visible, NAME_LIMIT, None)
        self.index = SearchIndex(Bm25fEngine())
        ranking = KindIndex(parts.catalog, self.index, parts.visible, whole, uses_examples=False)
        view = visible or parts.visible
        contents = Contents(parts.catalog, view, NAME_LIMIT, None)
        fakes: Any = SimpleNamespace(index=self.facts, notebook=parts.notebook, lists=self.content_lists)
        kinds = KindSearch(contents, ranking, fakes.lists, proxy_tool, is_degraded=proxy_tool is not None)
        self.retrieval = Retrieval(
            view, parts.catalog, fakes.index, fakes.index, self.statuses, fakes.notebook, kinds=kinds
        )


async def stock(parts: Parts, server: str = "alpha", **changes: list[dict[str, Any]]) -> None:
    """The server lists its contents, some of them other ones."""
    for kind, items in CONTENTS.items():
        await parts.catalog.sync(shelf(server, kind), changes.get(kind, items))


@pytest.fixture
async def setup(parts: Parts) -> KindsSetup:
    await parts.sync("alpha", TOOLS)
    await stock(parts)
    return KindsSetup(parts)


def kinds_of(answer: dict[str, Any]) -> list[str]:
    return [entry["kind"] for entry in answer["found"]]


async def test_each_kind_is_found_with_all_that_it_takes_to_use_it(setup: KindsSetup) -> None:
    """Names and URIs are the gateway's; descriptions are first sentences."""
    answer = await setup.ask("mural", types=("prompt", "resource", "resource_template"))
    found = {entry.pop("kind"): entry for entry in answer["found"]}
    assert all(0 < entry.pop("score") <= 1 for entry in found.values())
    assert found == {
        "prompt": {
            "name": "alpha__plan_mural",
            "server": "alpha",
            "title": "Mural planner",
            "description": "Plan a mural on a wall.",
            "arguments": [
                {"name": "wall", "description": "Which wall.", "required": True},
                {"name": "style", "description": "", "required": False},
            ],
            "use": {"request": "prompts/get"},
            "stale": False,
        },
        "resource": {
            "uri": "mcpproxy://alpha/paint%3A%2F%2Fcharts%2Fmural",
            "server": "alpha",
            "title": "mural_chart",
            "description": "Colours for a mural.",
            "use": {"request": "resources/read"},
            "stale": False,
        },
        "resource_template": {
            "uri_template": "mcpproxy://alpha/paint%3A%2F%2Fmurals%2F{artist}{?year,page*}",
            "server": "alpha",
            "title": "murals",
            "description": "A mural by artist.",
            "variables": ["artist", "year", "page"],
            "use": {"request": "resources/read"},
            "stale": False,
        },
    }
    assert "a template with its variables filled in" in answer["hint"]


async def test_tools_and_prompts_share_one_ranking_best_first(setup: KindsSetup) -> None:
    """The tool that is asked for stands above the prompt that fits less, and the other way round."""
    answer = await setup.ask("paint a wall in a colour", types=("tool", "prompt"))
    assert (answer["found"][0]["kind"], answer["found"][0]["name"]) == ("tool", "alpha:paint_wall")
    assert answer["found"][0]["use"] == {"tool": "call_tool_write"}
    answer = await setup.ask("plan a mural on a wall", types=("tool", "prompt"), limit=2)
    assert answer["found"][0]["name"] == "alpha__plan_mural"
    scores = [entry["score"] for entry in answer["found"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) <= 2


async def test_tools_rank_as_if_there_were_no_contents(parts: Parts) -> None:
    """However many prompts hold a word, it stays as rare among tools; and the rest of the answer stays, too."""
    await parts.sync("alpha", TOOLS)
    plain = RetrievalSetup(parts)
    before = await plain.ask("paint a wall")
    await stock(parts, prompts=[{"name": f"wall_{i}", "description": f"Paint a wall {i} times."} for i in range(200)])
    setup = KindsSetup(parts)
    asked = await setup.ask("paint a wall", types=("prompt",))
    assert asked["tools"] == before["tools"]
    for types in ((), ("tool",)):
        answer = await setup.ask("paint a wall", types=types)
        assert list(answer) == list(before)
        same = ("tools", "total", "near_misses", "not_covered", "degraded", "hint", "tokens")
        assert [answer[name] for name in same] == [before[name] for name in same]
    assert len(parts.index) == len(TOOLS)


async def test_a_tool_and_a_prompt_of_one_name_are_both_found(parts: Parts) -> None:
    """One is no copy of the other, by its exact name and by words."""
    text = "Summarise a long document for people in a hurry."
    await parts.sync("alpha", [definition("summarise", text)])
    await stock(parts, prompts=[{"name": "summarise", "description": text}])
    setup = KindsSetup(parts)
    for query in ("summarise", "summarise a long document"):
        answer = await setup.ask(query, types=("tool", "prompt"))
        assert sorted(kinds_of(answer)) == ["prompt", "tool"]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("alpha__plan_mural", "prompt"),
        ("alpha:plan_mural", "prompt"),
        ("mcpproxy://alpha/paint%3A%2F%2Fcharts%2Fmural", "resource"),
        ("paint://charts/mural", "resource"),
        ("Mural planner", "prompt"),
        ("which artist", "resource_template"),
    ],
)
async def test_a_name_a_uri_and_the_words_in_them_find_what_they_name(setup: KindsSetup, query: str, kind: str) -> None:
    """In the gateway's form and in the server's own."""
    assert kinds_of(await setup.ask(query, types=ITEM_KINDS[1:]))[0] == kind


async def test_the_index_follows_the_catalog(setup: KindsSetup, parts: Parts) -> None:
    """New, changed and gone as of the very next search; what is not asked for costs nothing."""
    await setup.ask("mural")
    assert len(setup.index) == 0
    assert "prompt" in kinds_of(await setup.ask("mural", types=("prompt",)))
    await stock(parts, prompts=[{"name": "quilt", "description": "Sew a quilt."}])
    assert (await setup.ask("mural", types=("prompt",)))["found"] == []
    assert kinds_of(await setup.ask("sew a quilt", types=("prompt",))) == ["prompt"]
    assert len(setup.index) == len(TOOLS) + 3


async def test_what_a_view_does_not_show_is_never_found(parts: Parts) -> None:
    """Neither a server that waits for the user, nor one beyond the view; not by its exact name either."""
    await stock(parts, "beta")
    setup = KindsSetup(parts)
    assert len((await setup.ask("mural", types=ITEM_KINDS))["found"]) == 3
    narrow = CatalogView(parts.catalog, {"alpha": config("alpha")}, parts.index.nearest_names)
    for view in (narrow, None):
        setup = KindsSetup(parts, view)
        if view is None:
            parts.visible.reconfigure({"beta": config("beta", quarantined=True)})
        for query in ("mural", "beta__plan_mural", "paint://charts/mural"):
            answer = await setup.ask(query, types=ITEM_KINDS)
            assert answer["found"] == []
            assert "plan_mural" not in answer["hint"].replace(query, "")
            assert answer["near_misses"] == []


@pytest.mark.long  # a third of a second of processor time
async def test_a_page_of_the_web_that_two_servers_list_is_found_by_who_sees_the_second_alone(parts: Parts) -> None:
    """The one that was listed first stands for both elsewhere."""
    page = {"uri": "https://example.com/mural", "name": "mural"}
    for server in ("alpha", "beta"):
        await stock(parts, server, prompts=[], templates=[], resources=[page])
    for view, server in (
        (parts.visible, "alpha"),
        (CatalogView(parts.catalog, {"beta": config("beta")}, parts.index.nearest_names), "beta"),
    ):
        (entry,) = (await KindsSetup(parts, view).ask("mural", types=("resource",)))["found"]
        assert (entry["uri"], entry["server"]) == (page["uri"], server)


async def test_filters_hold_for_all_kinds(setup: KindsSetup, parts: Parts) -> None:
    """Servers, the limit, further queries, and tools marked read-only."""
    await stock(parts, "beta")
    answer = await setup.ask("mural", types=("prompt", "resource"), servers=("beta",))
    assert {entry["server"] for entry in answer["found"]} == {"beta"}
    assert len((await setup.ask("mural", types=ITEM_KINDS, limit=1))["found"]) == 1
    answer = await setup.ask("measure", types=("tool", "prompt"), more_queries=("plan a mural",), read_only=True)
    assert {"alpha:measure_wall", "alpha__plan_mural"} <= {entry["name"] for entry in answer["found"]}
    answer = await setup.ask("paint a wall", types=("tool", "prompt"), read_only=True)
    assert "alpha:paint_wall" not in [entry["name"] for entry in answer["found"]]


async def test_what_does_not_fit_is_said(setup: KindsSetup) -> None:
    """Nothing at all; or no tool, where another kind does."""
    answer = await setup.ask("xyzzy", types=("prompt",))
    assert (answer["found"], answer["tools"]) == ([], [])
    assert "Nothing of the other types fits: found is empty." in answer["hint"]
    answer = await setup.ask("planner artist", types=("prompt", "resource_template"))
    assert answer["tools"] == []
    assert answer["found"]
    assert answer["hint"].startswith("No tool fits. found has all asked types in one ranking")


async def test_a_type_that_is_none_is_refused_with_those_that_are(setup: KindsSetup) -> None:
    """The message names it, the hint all others."""
    with pytest.raises(RequestError, match=r"types has 'promt'\.") as caught:
        await setup.ask("mural", types=("prompt", "promt"))
    assert caught.value.hint == "Known: tool, prompt, resource, resource_template, skill."


async def test_the_proxy_tool_is_named_where_there_is_one_and_words_alone_are_owned_up_to(parts: Parts) -> None:
    """Its arguments are whole, as it takes them."""
    await stock(parts)
    setup = KindsSetup(parts, proxy_tool="everything")
    answer = await setup.ask("mural", types=ITEM_KINDS)
    shown = {
        entry["kind"]: next(entry[m] for m in ("name", "uri", "uri_template") if m in entry)
        for entry in answer["found"]
    }
    for entry in answer["found"]:
        type_ = "prompt" if entry["kind"] == "prompt" else "resource"
        args = {"action": "call", "type": type_, "path": shown[entry["kind"]]}
        assert (entry["use"]["tool"], entry["use"]["args"]) == ("everything", args)
    assert answer["degraded"] == [BY_WORDS]
    assert (await setup.ask("mural"))["degraded"] == []


async def test_reasons_are_told_to_people_and_not_counted(setup: KindsSetup) -> None:
    """As for tools."""
    told = await setup.ask("plan a mural", types=("prompt",), explain=True)
    assert told["found"][0]["why"]["matched"]
    assert told["tokens"] == (await setup.ask("plan a mural", types=("prompt",)))["tokens"]


async def test_many_long_entries_are_cut_to_the_cap(setup: KindsSetup, parts: Parts) -> None:
    """The best ones stay, and the hint says that there are more."""
    long = [{"name": f"of_{i}", "description": f"{word} mural."} for i, word in enumerate(("Big", "Old", "Red"))]
    for prompt in long:
        prompt["arguments"] = [{"name": "x" * 200 + str(place)} for place in range(20)]
    await stock(parts, prompts=long)
    answer = await setup.ask("mural", types=("prompt",))
    assert 1 <= len(answer["found"]) < len(long)
    assert len(str(answer["found"])) < CAP_BYTES * 1.5
    assert "More fits than could be sent in found" in answer["hint"]


async def test_a_list_that_did_not_come_yet_is_owned_up_to(setup: KindsSetup) -> None:
    """Of the present connection: its server is not covered, and what is known of it is stale."""
    setup.servers = [FakeUpstream("alpha")]
    setup.content_lists.fresh.clear()
    answer = await setup.ask("mural", types=("prompt",))
    assert answer["found"][0]["stale"] is True
    assert answer["not_covered"] == [{"server": "alpha", "state": "unlisted"}]
    assert (await setup.ask("mural"))["not_covered"] == []
    assert setup.content_lists.awaited == ["alpha"]


async def test_the_first_list_of_a_connected_server_alone_is_waited_for(setup: KindsSetup) -> None:
    """One that connects may take long, or never come: the answer names it instead."""
    await setup.ask("mural")
    assert setup.content_lists.awaited == []
    setup.servers[0].move(ServerState.CONNECTING)
    answer = await setup.ask("mural", types=("prompt",))
    assert setup.content_lists.awaited == ["alpha"]
    assert answer["not_covered"] == [{"server": "beta", "state": "connecting"}]


async def test_the_activity_of_a_search_that_finds_other_kinds_alone_is_no_empty_one(setup: KindsSetup) -> None:
    """Nothing of it was in vain."""
    await setup.retrieval.retrieve(Question("planner artist", 5, types=("prompt",)))
    await setup.retrieval.retrieve(Question("planner artist", 5))
    assert [line.outcome for line in setup.parts.notebook.lines] == ["ok", "empty"]
