"""How a deep ranking becomes an answer."""

from collections import Counter

from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.ranking import interleave, near_top, select

NUMERALS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


def tools(server: str, first_id: int, count: int) -> dict[int, Document]:
    return {
        first_id + n: Document(first_id + n, server, f"{server}_{NUMERALS[n]}", "", f"Does {NUMERALS[n]} for {server}.")
        for n in range(count)
    }


def falling(ids: list[int]) -> list[Hit]:
    return [Hit(id, 0.9 - place / 1000) for place, id in enumerate(ids)]


def test_one_server_takes_at_most_five_of_the_first_fifteen_places() -> None:
    """Ten tools of one server rank on top; five stay there, the others come after place 15."""
    documents = tools("flood", 1, 10) | tools("a", 100, 5) | tools("b", 200, 5) | tools("c", 300, 5)
    chosen = select(falling(list(documents)), documents, frozenset(), 20)
    servers = [documents[hit.id].server for hit in chosen.kept]
    assert max(Counter(servers[:15]).values()) == 5
    assert servers[:5] == ["flood"] * 5
    assert servers.count("flood") == 10


def test_what_the_cap_leaves_out_is_named_with_the_reason() -> None:
    """An answer shorter than 15 holds no sixth tool of a server."""
    documents = tools("flood", 1, 8) | tools("a", 100, 2)
    chosen = select(falling(list(documents)), documents, frozenset(), 10)
    assert [hit.id for hit in chosen.kept] == [1, 2, 3, 4, 5, 100, 101]
    assert {hit.why["left_out"] for hit in chosen.left_out} == {"5 tools of its server are above it"}


def test_a_server_that_was_asked_for_may_fill_the_answer() -> None:
    """Exempt servers have no cap; nor have exact names."""
    documents = tools("flood", 1, 10) | tools("a", 100, 2)
    chosen = select(falling(list(documents)), documents, {"flood"}, 10)
    assert [hit.id for hit in chosen.kept] == list(range(1, 11))
    exact = [Hit(id, 1.0, {"exact": "x"}) for id in range(1, 9)]
    assert len(select(exact, documents, frozenset(), 10).kept) == 8


def test_near_clones_are_collapsed_and_named_behind_the_best() -> None:
    """Fifty copies under numbered names, and copies on other servers, take one place."""
    text = "Create a new issue in a repository with title and body."
    honest = Document(99, "github", "create_ticket", "", "Opens a ticket for the repository.")
    copies = {n: Document(n, f"s{n % 3}", f"create_issue_{n}", "", text) for n in range(1, 51)}
    chosen = select(falling([*copies, 99]), {**copies, 99: honest}, frozenset(), 5)
    assert [hit.id for hit in chosen.kept] == [1, 99]
    assert len(chosen.kept[0].why["clones"]) == 49
    assert chosen.left_out[0].why["left_out"] == "says the same as s1:create_issue_1"


def test_opposite_tools_with_the_same_boilerplate_are_no_clones() -> None:
    """`create_x` and `delete_x` stay apart however alike their descriptions are."""
    text = "Works on one x of the workspace; needs the id of the x, the name of the workspace and a token."
    documents = {
        1: Document(1, "s", "create_x", "", f"Create. {text}"),
        2: Document(2, "s", "delete_x", "", f"Delete. {text}"),
        3: Document(3, "s", "update_x", "", text),
    }
    assert len(select(falling([1, 2, 3]), documents, frozenset(), 5).kept) == 3


def test_equal_scores_are_ordered_by_id() -> None:
    """The same tools give the same answer, whatever the order they came in."""
    documents = tools("a", 1, 4)
    hits = [Hit(id, 0.5) for id in (3, 1, 4, 2)]
    assert [hit.id for hit in select(hits, documents, frozenset(), 4).kept] == [1, 2, 3, 4]


def test_hits_far_below_the_best_are_cut() -> None:
    """0.7 of the best score is the line, itself included."""
    fitting, rest = near_top([Hit(1, 1.0), Hit(2, 0.7), Hit(3, 0.699)])
    assert ([hit.id for hit in fitting], [hit.id for hit in rest]) == ([1, 2], [3])
    assert near_top([]) == ([], [])


def test_several_rankings_share_the_places() -> None:
    """Each ranking's best comes before any second; a tool found twice stands once, with its best score."""
    merged = interleave([[Hit(1, 0.9), Hit(2, 0.8)], [Hit(3, 0.4), Hit(1, 0.95)], []])
    assert merged == [Hit(1, 0.95), Hit(3, 0.4), Hit(2, 0.8)]
