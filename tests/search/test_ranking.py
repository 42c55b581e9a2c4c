"""How a deep ranking becomes an answer."""

from collections import Counter
from collections.abc import Mapping, Set

import pytest

from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.index import SearchIndex
from smart_mcp_proxy.search.likeness import compute_likeness
from smart_mcp_proxy.search.ranking import Tools, interleave, near_top, select

NUMERALS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


def of_server(server: str, first_id: int, count: int) -> dict[int, Document]:
    return {
        first_id + n: Document(first_id + n, server, f"{server}_{NUMERALS[n]}", "", f"{NUMERALS[n].title()}.")
        for n in range(count)
    }


def tools(documents: Mapping[int, Document], exempt: Set[str] = frozenset()) -> Tools:
    return Tools(documents, {id: compute_likeness(document) for id, document in documents.items()}, exempt)


def falling(ids: list[int]) -> list[Hit]:
    return [Hit(id, 0.9 - place / 1000) for place, id in enumerate(ids)]


def kept(documents: Mapping[int, Document], limit: int = 5) -> list[int]:
    """The ids of the answer where the documents rank in the order given."""
    return [hit.id for hit in select(falling(list(documents)), tools(documents), limit).kept]


def test_one_server_takes_at_most_five_of_the_first_fifteen_places() -> None:
    """Ten tools of one server rank on top; five stay there, the others come after place 15."""
    documents = of_server("flood", 1, 10) | of_server("a", 100, 5) | of_server("b", 200, 5) | of_server("c", 300, 5)
    servers = [documents[id].server for id in kept(documents, 20)]
    assert max(Counter(servers[:15]).values()) == 5
    assert servers[:5] == ["flood"] * 5
    assert servers.count("flood") == 10


def test_tools_that_look_alike_leave_another_server_one_of_the_first_five_places() -> None:
    """Those of one server, alike by text or by name; the same where the answer has fewer places. Alone they fill it."""
    texts = [f"Create an issue in a repository, {word}." for word in NUMERALS]
    crowd = {n: Document(n, "flood", f"{word}_task", "", texts[n]) for n, word in enumerate(NUMERALS)}
    others = of_server("a", 100, 1) | of_server("b", 200, 2)
    assert kept(crowd | others, 5) == [0, 1, 2, 3, 100]
    assert kept(crowd | others, 4) == [0, 1, 2, 100]
    assert kept(crowd | others, 3) == [0, 1, 100]
    assert kept(crowd | others, 2) == [0, 1]
    assert kept(crowd, 5) == [0, 1, 2, 3, 4]
    named = {n: Document(n, "flood", f"create_issue_{word}", "", word) for n, word in enumerate(NUMERALS)}
    assert kept(named | others, 5) == [0, 1, 2, 3, 100]


def test_ten_that_come_behind_the_answer_follow_it() -> None:
    """Best first, none twice, and with the answer no more of one server than a longer answer has."""
    documents = of_server("flood", 1, 10) | of_server("a", 100, 5) | of_server("b", 200, 5) | of_server("c", 300, 5)
    chosen = select(falling(list(documents)), tools(documents), 3)
    both = [hit.id for hit in (*chosen.kept, *chosen.following)]
    assert len(chosen.following) == 10 and len(set(both)) == 13
    assert both == sorted(both)
    assert max(Counter(documents[id].server for id in both).values()) == 5
    assert select(falling([1, 2, 3]), tools(documents), 3).following == []
    assert len(select(falling(list(documents)[:10]), tools(documents, {"flood"}), 3).following) == 7


def test_what_the_cap_leaves_out_is_named_with_the_reason() -> None:
    """An answer shorter than 15 holds no sixth tool of a server."""
    documents = of_server("flood", 1, 8) | of_server("a", 100, 2)
    chosen = select(falling(list(documents)), tools(documents), 10)
    assert [hit.id for hit in chosen.kept] == [1, 2, 3, 4, 5, 100, 101]
    assert [hit.id for hit in chosen.left_out] == [6, 7, 8]
    assert {hit.why["left_out"] for hit in chosen.left_out} == {"5 tools of its server are above it"}


def test_what_the_limit_cuts_off_is_named_with_the_reason() -> None:
    """For the person who asks where a tool is."""
    documents = of_server("a", 1, 2) | of_server("b", 100, 2)
    chosen = select(falling(list(documents)), tools(documents), 3)
    assert [(hit.id, hit.why["left_out"]) for hit in chosen.left_out] == [(101, "beyond the limit")]


def test_a_server_that_was_asked_for_may_fill_the_answer() -> None:
    """Exempt servers have no cap; nor have exact names."""
    documents = of_server("flood", 1, 10) | of_server("a", 100, 2)
    chosen = select(falling(list(documents)), tools(documents, {"flood"}), 10)
    assert [hit.id for hit in chosen.kept] == list(range(1, 11))
    exact = [Hit(id, 1.0, {"exact": "x"}) for id in range(1, 9)]
    assert len(select(exact, tools(documents), 10).kept) == 8


def test_clones_of_one_server_take_one_place_and_are_named_behind_the_best() -> None:
    """Fifty copies under numbered names."""
    text = "Create a new issue in a repository with title and body."
    honest = Document(99, "github", "create_ticket", "", "Opens a ticket for the repository.")
    documents = {n: Document(n, "s", f"create_issue_{n}", "", text) for n in range(1, 51)} | {99: honest}
    chosen = select(falling(list(documents)), tools(documents), 5)
    assert [hit.id for hit in chosen.kept] == [1, 99]
    assert len(chosen.kept[0].why["clones"]) == 49
    assert chosen.left_out[0].why["left_out"] == "says the same as s:create_issue_1"


SIBLINGS = [
    pytest.param(
        "tickets", {"a.b": "Count tickets that are open", "a_b": "Count tickets that are closed"}, id="punctuation"
    ),
    pytest.param(
        "get a user account", {"getUser": "Get a user account", "get_user": "Get a user account by mail"}, id="case"
    ),
    pytest.param("lamps", {f"lamp_{n}_on": f"Turn on lamp {n}" for n in (1, 2, 3)}, id="number"),
    pytest.param(
        "temperature", {f"zone{n}": f"Read the temperature of zone {n}." for n in (1, 2)}, id="number at the end"
    ),
    pytest.param("search", {"v1/search": "Search, API 1.", "v2/search": "Search, API 2."}, id="version"),
    pytest.param("balance", {"pay": "Get the balance in EUR (€).", "PAY": "Get the balance in EUR (¢)."}, id="sign"),
]


@pytest.mark.parametrize("limit", [5, 50])
@pytest.mark.parametrize(("query", "described"), SIBLINGS)
def test_tools_of_one_server_that_it_describes_differently_all_come(
    query: str, described: Mapping[str, str], limit: int
) -> None:
    """However alike their names are: case, punctuation and numbers are the server's business."""
    documents = [Document(n, "s", name, "", text) for n, (name, text) in enumerate(described.items(), 1)]
    index = SearchIndex(Bm25fEngine())
    index.update([*documents, Document(99, "t", "forecast", "", "Forecast the weather.")])
    assert {hit.id for hit in index.search(query, limit=limit).hits} == {document.id for document in documents}


def test_copies_of_siblings_are_counted_by_server() -> None:
    """Many siblings of one server are one server: the same tools of a second one still stand, of a third do not."""
    documents = {
        10 * server + n: Document(10 * server + n, f"home-{server}", f"lamp_{n}_on", "", f"Turn on lamp {n}")
        for server in (1, 2, 3)
        for n in (1, 2, 3)
    }
    assert sorted(kept(documents, 15)) == [11, 12, 13, 21, 22, 23]


def test_a_copy_on_a_second_server_does_not_hide_the_original() -> None:
    """Two servers' tools that say the same both stand; the same on further servers is named behind the first."""
    documents = {n: Document(n, f"db-{n}", "run_query", "", "Run an SQL query and return its rows.") for n in range(4)}
    chosen = select(falling(list(documents)), tools(documents), 5)
    assert [hit.id for hit in chosen.kept] == [0, 1]
    assert chosen.kept[0].why["clones"] == ["db-2:run_query", "db-3:run_query"]


def test_an_exact_name_is_kept_however_many_clones_it_has() -> None:
    """Who asks for tools by name gets them all."""
    documents = {n: Document(n, f"db-{n}", "run_query", "", "Run an SQL query and return its rows.") for n in range(4)}
    hits = [Hit(id, 1.0, {"exact": "run_query"}) for id in documents]
    assert len(select(hits, tools(documents), 5).kept) == 4


def test_equal_scores_are_ordered_by_name() -> None:
    """The same tools give the same answer, whatever the order they came in; a rounding error does not count."""
    documents = of_server("a", 1, 4)
    hits = [Hit(3, 0.5000001), Hit(1, 0.5), Hit(4, 0.5), Hit(2, 0.5)]
    kept = [documents[hit.id].name for hit in select(hits, tools(documents), 4).kept]
    assert kept == sorted(kept)


def test_hits_far_below_the_best_are_cut() -> None:
    """0.7 of the best score is the line, itself included; 0.6 for tools of the best one's server."""
    known = tools(of_server("a", 1, 3) | of_server("b", 4, 3))
    ranked = [Hit(1, 1.0), Hit(4, 0.7), Hit(5, 0.699), Hit(2, 0.6), Hit(6, 0.5), Hit(3, 0.5)]
    fitting, rest = near_top(ranked, known)
    assert [hit.id for hit in fitting] == [1, 4, 2]
    assert [hit.id for hit in rest] == [5, 6, 3]
    assert near_top([], known) == ([], [])


def test_several_rankings_share_the_places() -> None:
    """Each ranking's best comes before any second; a tool found twice stands once, with its best score."""
    merged = interleave([[Hit(1, 0.9), Hit(2, 0.8)], [Hit(3, 0.4), Hit(1, 0.95)], []])
    assert merged == [Hit(1, 0.95), Hit(3, 0.4), Hit(2, 0.8)]
    assert interleave([[Hit(1, 0.9), Hit(2, 0.8)]]) == [Hit(1, 0.9), Hit(2, 0.8)]
