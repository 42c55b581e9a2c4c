"""rank-bm25 as an engine."""

import sys
from dataclasses import replace

import pytest

from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engines.rank_bm25 import RankBm25Engine
from smart_mcp_proxy.search.index import SearchIndex

FILLER = [Document(n, f"s{n}", f"tool_{n}", "", f"Get a list of items number {n}.") for n in range(100, 300)]
WEATHER = Document(1, "meteo", "getForecast", "", "Weather forecast for a city.", (("city", "Name of the city"),))
ISSUE = Document(2, "github", "create_issue", "New issue", "Open an issue in a repository.", (), "", ("file a bug",))


def engine_of(*documents: Document) -> RankBm25Engine:
    engine = RankBm25Engine()
    engine.update(documents, ())
    return engine


@pytest.mark.parametrize(
    ("query", "meant"),
    [("forecast", 1), ("weather in the city", 1), ("creating issues", 2), ("file a bug", 2), ("github", 2)],
)
def test_words_of_every_part_of_a_definition_are_found(query: str, meant: int) -> None:
    """Name, server, title, description, parameters, example questions; split and stemmed."""
    hits = engine_of(*FILLER, WEATHER, ISSUE).rank(query, 5, None)
    assert hits[0].id == meant
    assert all(0 < hit.score < 1 for hit in hits)


def test_a_change_shows_at_the_next_search() -> None:
    """Replaced tools answer to their new text only, removed ones to nothing."""
    engine = engine_of(*FILLER, WEATHER, ISSUE)
    engine.update([Document(1, "meteo", "tides", "", "Sea level.")], [2, 999])
    assert [hit.id for hit in engine.rank("forecast issue", 5, None)] == []
    assert [hit.id for hit in engine.rank("sea level", 5, None)] == [1]
    assert len(engine) == len(FILLER) + 1


def test_only_allowed_tools_come_in_order_and_no_more_than_asked_for() -> None:
    """Of equal scores the same ones come, in whichever order the tools were listed."""
    engine, other = engine_of(*FILLER), engine_of(*(replace(tool, id=1_000 - tool.id) for tool in FILLER))
    found = [hit.id for hit in engine.rank("list of items", 3, None)]
    assert found == [1_000 - hit.id for hit in other.rank("list of items", 3, None)]
    assert len(found) == 3
    assert {hit.id for hit in engine.rank("list of items", 3, {250, 120})} == {120, 250}


def test_a_catalog_of_one_tool_can_be_searched() -> None:
    """There rank-bm25 itself weighs every word below zero."""
    assert [hit.id for hit in engine_of(WEATHER).rank("forecast", 5, None)] == [1]


def test_a_best_hit_fits_if_it_has_the_querys_words() -> None:
    """A common word out of a long request for something else is no answer."""
    engine = engine_of(*FILLER, WEATHER, ISSUE)
    assert engine.fit("weather forecast", 1)
    assert not engine.fit("reserve a list of places at a sushi restaurant for eleven vegetarian guests on Friday", 100)
    assert not engine.fit("weather forecast", 999)
    assert not engine.fit("", 1)


def test_it_serves_behind_the_index() -> None:
    """With names, floor and limits as with any engine; a hit says which words matched."""
    index = SearchIndex(RankBm25Engine())
    index.update([*FILLER, WEATHER, ISSUE])
    assert index.search("create_issue", limit=5).hits[0].id == 2
    hit = index.search("weather forecast", limit=5, explain=True).hits[0]
    assert (hit.id, hit.why["matched"]) == (1, {"definition": ["weather", "forecast"]})
    assert index.engine.explain("weather", [999]) == {}


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command to type, and the engine that needs nothing."""
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    with pytest.raises(MissingExtraError, match=r"needs rank-bm25\. Install it: pip install rank-bm25") as caught:
        RankBm25Engine()
    assert "builtin" in caught.value.hint
