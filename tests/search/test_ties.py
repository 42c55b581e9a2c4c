"""Answers do not depend on the order in which servers and tools were listed."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from bench.ties import ENGINES, differing, listed_in_orders

_SYLLABLES = ("ba", "do", "fi", "gu", "ka", "le", "mo", "nu", "ri", "sa", "to", "vu")
_ORDERS = 5


def catalog() -> list[Document]:
    """A few hundred tools, many of which fit a query alike, and no two of which are the same."""
    words = [a + b + c for a in _SYLLABLES for b in _SYLLABLES[:4] for c in _SYLLABLES[:2]]
    tools = [
        # More equal scores than the search looks deep, of one server each and of one server for all.
        *((f"s{at}", f"measure_{word}", f"Measure the {word}.") for at, word in enumerate(words[:70])),
        *(("tides", f"chart_{word}", f"Chart the {word}.") for word in words[:70]),
        # One name in many servers, and names with one beginning.
        *((f"s{at}", "create_collection", f"Make a {words[at]} for {words[-at]}.") for at in range(1, 40)),
        *((f"s{at}", f"create_collect{'abcdefgh'[at % 8]}", words[at]) for at in range(40, 60)),
        # More tools that hold a word than are looked at for a name, one of which is named so.
        *((f"s{at}", f"show_{word}", f"Shows the atlas of {word}.") for at, word in enumerate(words[:80])),
        ("maps", "atlas", "Pages of a book with maps."),
        ("s1", "plan_voyage", "Plan a voyage."),
    ]
    found = [Document(id, server, name, "", text) for id, (server, name, text) in enumerate(tools, 1)]
    return [*found, replace(found[-1], id=len(found) + 1, listed_name="s1__plan_voyage", kind="prompt")]


QUERIES = (
    "measure", "measure something", "chart", "chart the tides", "create_collection", "create_coll", "creat_collection",
    "createcollectx", "create collection", "s1 create_collection", 'show "atlas" pages', 'book of "atlas.maps"',
    "shows the atlas of", "plan voyage", "plan_voyage", "measure_bababa chart_dodofi", "do not delete, measure",
    "sabado",
)  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.long  # much work for one test
def test_no_answer_depends_on_the_order_of_the_lists(engine: str) -> None:
    """The same tools at the same places with the same scores, by words and with vectors."""
    found = differing(catalog(), QUERIES, _ORDERS, ENGINES[engine])
    assert found.asked == len(QUERIES)
    assert (found.first, found.shown, found.deep) == ([], [], [])


def test_the_queries_of_these_tests_meet_equal_scores() -> None:
    """More of them than the search looks deep; else nothing above could fail."""
    index = next(listed_in_orders(catalog(), 1, ENGINES["words"]))
    for query in ("measure", "chart"):
        scores = [hit.score for hit in index.engine.rank(query, 100, None)]
        assert scores.count(scores[0]) == 70
    assert len({index.documents[hit.id].server for hit in index.search("measure", limit=10).hits}) == 10


def test_near_names_do_not_depend_on_the_order_of_the_lists() -> None:
    """Which names an unknown one is near to, of equally near ones."""
    found = {
        tuple(_names(index, index.nearest_names(name, 5)) for name in ("creat_colection", "s2:measure", "mesure_it"))
        for index in listed_in_orders(catalog(), _ORDERS, ENGINES["words"])
    }
    assert len(found) == 1


def test_the_stored_index_answers_as_the_one_that_was_stored() -> None:
    """What decides between equal scores is there again after a start."""
    index = next(listed_in_orders(catalog(), 1, ENGINES["words"]))
    again = SearchIndex(Bm25fEngine())
    arrays = index.dump_arrays()
    assert arrays is not None
    again.restore(arrays, index.documents)
    for query in QUERIES:
        answers = [each.search(query, limit=10) for each in (index, again)]
        assert [hit.id for hit in answers[0].hits] == [hit.id for hit in answers[1].hits]


def _names(index: SearchIndex, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{index.documents[id].server}:{index.documents[id].name}" for id in ids)
