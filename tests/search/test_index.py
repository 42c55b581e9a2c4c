"""What the search room answers."""

import itertools
import threading
from dataclasses import replace

import pytest
from growth import assert_growth

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.answer import SearchResult
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.index import SearchIndex


def tool(id: int, server: str, name: str, description: str) -> Document:
    return Document(id, server, name, "", description, listed_name=f"{server}__{name}")


TOOLS = [
    tool(1, "github", "create_issue", "Open a new issue in a repository."),
    tool(2, "github", "list_issues", "List the issues of a repository."),
    tool(3, "gitlab", "create_issue", "Report a bug to a project."),
    tool(4, "files", "read_file", "Read the whole content of a file."),
    tool(5, "files", "ReadFile", "Older way of loading a document."),
    tool(6, "web", "search", "Find pages on the internet."),
    tool(7, "meteo", "get_forecast", "Weather forecast for a city."),
    tool(8, "google-maps", "directions", "Route between two places."),
]


@pytest.fixture
def index() -> SearchIndex:
    index = SearchIndex(Bm25fEngine())
    index.update(TOOLS)
    return index


def ids(answer: SearchResult) -> list[int]:
    return [hit.id for hit in answer.hits]


@pytest.mark.parametrize("query", ["github:create_issue", "github__create_issue", "GitHub:Create_Issue"])
def test_an_exact_name_comes_first_in_every_form(index: SearchIndex, query: str) -> None:
    """Canonical, listed, and either in another case."""
    answer = index.search(query, limit=5)
    assert ids(answer)[0] == 1
    assert answer.hits[0].score == 1.0
    assert answer.hits[0].why["exact"] == query


@pytest.mark.parametrize(
    "query", ["createIssue", "CreateIssue", "createissue", "create-issue", "create issue", "CREATE.ISSUE"]
)
def test_a_name_is_found_in_any_spelling(index: SearchIndex, query: str) -> None:
    """Marked as such, above what only resembles it; with the server's name in front it means that server's tool."""
    answer = index.search(query, limit=5, explain=True)
    assert set(ids(answer)[:2]) == {1, 3}
    assert {hit.why.get("named", "exactly") for hit in answer.hits[:2]} <= {"in another spelling", "exactly"}
    assert ids(index.search(f"GitHub {query}", limit=1)) == [1]
    assert 1 not in ids(index.search(query, limit=5, allowed={3}))


@pytest.mark.parametrize(
    ("query", "how"), [("create_iss", "nearly"), ("createIssu", "nearly"), ("craete_issue", "nearly")]
)
def test_the_beginning_of_a_name_or_one_slip_in_it_finds_it(index: SearchIndex, query: str, how: str) -> None:
    """After exact names, and only where no name that was found has all words of the query."""
    answer = index.search(query, limit=5, explain=True)
    assert set(ids(answer)[:2]) == {1, 3}
    assert all(hit.why["named"] == how and hit.score < 1 for hit in answer.hits[:2])


def test_many_spellings_of_one_name_are_no_way_to_fill_an_answer(index: SearchIndex) -> None:
    """Each server has one tool of a name, however often it spells it; what a caller may not see takes no place."""
    names = ("create__issue", "CREATE_ISSUE", "createIssue", "create.issue", "CreateIssue")
    index.update([Document(200 + at, "evil", name, "", "Anything.") for at, name in enumerate(names)])
    first = index.search("create-issue", limit=5).hits
    assert [hit.id for hit in first if hit.score == 1.0] == [201, 1, 3]  # equal scores by name
    index.update([Document(300 + at, "evil", f"zeppelin{at}", "", "Anything.") for at in range(60)])
    index.update([Document(400, "honest", "zeppelin_flight_plan", "", "Anything.")])
    assert [hit.id for hit in index.search("zeppeli", limit=5, allowed={400}).hits] == [400]


def test_a_word_that_names_of_found_tools_hold_is_no_beginning(index: SearchIndex) -> None:
    """`issue` means what has to do with issues, not what begins with it."""
    index.update([Document(90, "odd", "issuer_register", "", "Keep a register.")])
    assert ids(index.search("issue", limit=5))[0] != 90
    assert ids(index.search("cre", limit=5)) == []


def test_a_bare_name_means_every_tool_of_that_name(index: SearchIndex) -> None:
    """Two servers have a `create_issue`; both come before anything that only resembles it."""
    assert ids(index.search("create_issue", limit=5))[:2] == [1, 3]
    assert ids(index.search("search", limit=1)) == [6]


def test_letter_case_decides_where_names_differ_in_it_only(index: SearchIndex) -> None:
    """`read_file` and `ReadFile` are two tools; `readfile` in no tool's own case means the latter."""
    assert ids(index.search("ReadFile", limit=1)) == [5]
    assert ids(index.search("read_file", limit=1)) == [4]
    assert ids(index.search("readfile", limit=1)) == [5]


def test_a_name_inside_a_sentence_counts_if_it_looks_like_one(index: SearchIndex) -> None:
    """`get_forecast` is meant; `search` is just a word."""
    assert ids(index.search("please call `get_forecast`, then stop.", limit=3))[0] == 7
    assert "exact" not in index.search("search repository issues", limit=5).hits[0].why


def test_nothing_that_is_not_allowed_appears_anywhere(index: SearchIndex) -> None:
    """Not as an exact name, a hit, a near miss, a nearest name, nor in the count."""
    answer = index.search("github:create_issue", limit=5, allowed={2, 7, 999})
    assert 1 not in ids(answer)
    assert answer.total == 2
    assert not {1, 3} & {hit.id for hit in (*answer.near_misses, *answer.left_out)}
    assert index.nearest_names("github:create_isue", allowed={2, 7}) == [2]


def test_the_servers_filter_narrows_the_search(index: SearchIndex) -> None:
    """Only tools of these servers are found and counted."""
    answer = index.search("create issue", limit=5, servers=["gitlab"])
    assert (ids(answer), answer.total) == ([3], 1)
    assert index.search("create issue", limit=5, servers=["gitlab"], allowed={1}).total == 0


@pytest.mark.parametrize("query", ["", "  \n", "what is the", "🎉🎉", "\x00\x1b", "\ud800", "?!."])
def test_a_query_without_a_word_finds_nothing(index: SearchIndex, query: str) -> None:
    """An empty answer with the count of what could be found, never an exception."""
    assert index.search(query, limit=5) == SearchResult(total=8)


def test_an_empty_index_answers_too() -> None:
    """Before the first server is connected."""
    index = SearchIndex(Bm25fEngine())
    assert index.search("create issue", limit=5) == SearchResult()
    assert index.nearest_names("create_issue") == []


def test_where_nothing_fits_the_answer_is_empty_and_names_near_misses(index: SearchIndex) -> None:
    """A long request that shares one common word with the catalog gets no tools, but up to three names."""
    index.update(tool(n, f"s{n}", f"item_{n}", "Get one of the places in the list.") for n in range(100, 160))
    answer = index.search("reserve places at a sushi restaurant for eleven vegetarian guests on Friday", limit=5)
    assert answer.hits == ()
    assert 0 < len(answer.near_misses) <= 3
    assert answer.near_misses[0].why["left_out"] == "does not fit well enough"


def test_more_queries_share_one_answer(index: SearchIndex) -> None:
    """Each part of the need gets its best tool before any gets a second; the limit holds for all together."""
    answer = index.search("create issue", limit=3, more_queries=["weather forecast", "route between places"])
    assert {7, 8} < set(ids(answer))
    assert len(answer.hits) == 3
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)


def test_a_flood_of_clones_does_not_hide_the_honest_tools(index: SearchIndex) -> None:
    """A server publishes 1,000 copies that rank above all others; each answer still has room for the rest."""
    index.update(tool(n, "evil", f"create_issue_{n}", "Create issue in repository.") for n in range(1000, 2000))
    answer = index.search("create an issue in a repository", limit=5)
    assert 1 in ids(answer)
    assert sum(hit.id >= 1000 for hit in answer.hits) == 1


def flood(count: int) -> list[Document]:
    """Tools of one server that all say "create issue" and something else."""
    words = [f"{a}{b}{c}" for a in "bcdfghklmnprstv" for b in "aeiou" for c in "bdfgklmnprstvxz" + "chjqwyaeiou"]
    return [
        tool(2000 + n, "evil", f"create_issue_{word}", f"Create issue {word}.") for n, word in enumerate(words[:count])
    ]


def test_a_flood_of_different_tools_does_not_hide_the_honest_ones(index: SearchIndex) -> None:
    """A server publishes 1,950 tools that all say the query and something else; it gets five places."""
    index.update(flood(1_950))
    answer = index.search("create an issue", limit=10)
    assert {1, 3} < set(ids(answer))
    assert sum(hit.id >= 2000 for hit in answer.hits) == 5


@pytest.mark.long
def test_the_cost_of_a_search_in_a_flood_grows_no_faster_than_the_flood() -> None:
    """Four times the tools, all of them hits, cost about four times as much at most."""
    indexes = {}
    for count in (480, 1_920):
        indexes[count] = SearchIndex(Bm25fEngine())
        indexes[count].update([*TOOLS, *flood(count)])
    assert_growth(lambda count: indexes[count].search("create an issue", limit=10), 480, 1_920, at_most=9)


def test_a_server_named_in_the_query_may_fill_the_answer(index: SearchIndex) -> None:
    """Separators and case of the server's name do not matter."""
    words = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")
    index.update(tool(50 + n, "acme-crm", f"export_{word}", f"Export {word}.") for n, word in enumerate(words))
    assert len(index.search("export", limit=7).hits) == 5
    assert len(index.search("export from ACME CRM", limit=7).hits) == 7


def test_a_lone_server_has_nobody_to_crowd_out() -> None:
    """The cap protects other servers; where there is none, the answer may be full."""
    index = SearchIndex(Bm25fEngine())
    index.update(tool(n, "only", f"export_{n}", "Export " + "abcdefgh"[n] * 3) for n in range(8))
    assert len(index.search("export", limit=8).hits) == 8


def test_changes_are_searchable_at_once(index: SearchIndex) -> None:
    """A replaced tool answers to its new name and text only, a removed one to nothing."""
    index.update([replace(TOOLS[6], name="get_tides", description="Sea level.", listed_name="meteo__get_tides")], [8])
    assert "exact" not in index.search("meteo:get_forecast", limit=5).hits[0].why
    assert ids(index.search("sea level", limit=5)) == [7]
    assert ids(index.search("google-maps:directions", limit=5)) == []
    assert len(index) == 7


def test_another_engine_takes_over_with_everything_that_is_searchable(index: SearchIndex) -> None:
    """Unfilled, or filled with an earlier state: what changed since is brought to it, what is gone leaves it."""
    before = index.documents
    filled = Bm25fEngine()
    filled.update(before.values(), ())
    index.update([replace(TOOLS[6], description="Sea level.")], [8])
    for engine, documents in ((filled, before), (Bm25fEngine(), None)):
        index.use(engine, documents)
        assert index.engine is engine
        assert len(engine) == len(index) == 7
        assert [hit.id for hit in engine.rank("sea level", 5, None)] == [7]
        assert engine.rank("route between places", 5, None) == []
    assert set(index.documents) == {1, 2, 3, 4, 5, 6, 7}
    index.update([tool(9, "x", "brew_tea", "Brew tea.")])
    assert ids(index.search("brew tea", limit=1)) == [9]


def test_what_changes_while_engines_are_switched_is_not_lost() -> None:
    """Two threads: one changes tools, one switches engines; a third always finds the tool that stays."""
    index = SearchIndex(Bm25fEngine())
    index.update(TOOLS)
    is_over = threading.Event()
    missed: list[int] = []

    def search() -> None:
        while not is_over.is_set():
            if ids(index.search("weather forecast", limit=1)) != [7]:
                missed.append(1)

    def change() -> None:
        for n in range(100, 140):
            index.update([tool(n, "x", f"brew_{n}", "Brew tea.")], [n - 1] if n % 2 else [])

    threads = [threading.Thread(target=search), threading.Thread(target=change)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        documents, engine = index.documents, Bm25fEngine()
        engine.update(documents.values(), ())
        index.use(engine, documents)
    threads[1].join()
    is_over.set()
    threads[0].join()
    assert not missed
    assert len(index.engine) == len(index) == len(TOOLS) + 20


class TiredEngine(Bm25fEngine):
    """Ranks, but says that it could do better."""

    problem = "its model sleeps"


def test_an_engine_that_ranks_worse_than_it_should_says_so_in_every_answer() -> None:
    """Also where nothing is found."""
    index = SearchIndex(TiredEngine())
    index.update(TOOLS)
    assert index.search("create issue", limit=5).degraded == ("its model sleeps",)
    assert index.search("", limit=5).degraded == ("its model sleeps",)


def test_what_matched_is_worked_out_only_if_asked_for(index: SearchIndex) -> None:
    """It costs more than the search itself."""
    answer = index.search("create an issue", limit=1)
    assert (dict(answer.hits[0].why), answer.left_out) == ({}, ())


@pytest.mark.long
def test_twenty_changed_tools_cost_as_much_among_ten_thousand_as_among_five_hundred() -> None:
    """Nothing is rebuilt that did not change: twenty times the tools, five times the cost at most."""
    indexes = {}
    for count in (500, 10_000):
        indexes[count] = SearchIndex(Bm25fEngine())
        indexes[count].update(
            tool(n, f"s{n // 50}", f"item_{n}", f"Get item {n} of list {n % 97}.") for n in range(1, count + 1)
        )
    rounds = itertools.count()

    def change(count: int) -> None:
        text = f"Brew tea {next(rounds)}."
        indexes[count].update([tool(n, f"s{n // 50}", f"item_{n}", text) for n in range(1, 21)])
        assert len(indexes[count].search("brew tea", limit=1).hits) == 1

    assert_growth(change, 500, 10_000, at_most=5)


def test_a_hit_says_what_matched_and_what_was_left_out(index: SearchIndex) -> None:
    """For the person who asks why."""
    answer = index.search("create issue", limit=1, explain=True)
    assert answer.hits[0].why["matched"]["name"] == ["creat", "issu"]
    assert all(hit.why["left_out"] for hit in answer.left_out)
    assert answer.left_out


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("github:create_isue", 1), ("github__list_issue", 2), ("get_forcast", 7), ("Files:READ_FILE", 4)],
)
def test_a_misspelt_name_finds_the_one_that_was_meant(index: SearchIndex, wrong: str, meant: int) -> None:
    """In each form of a name."""
    assert index.nearest_names(wrong)[0] == meant


def test_a_name_like_no_other_has_no_nearest(index: SearchIndex) -> None:
    """Better no proposal than a wild one."""
    assert index.nearest_names("qqqq:zzzz_wwww") == []
    assert index.nearest_names("") == []
    assert len(index.nearest_names("issue", 1)) <= 1


@pytest.mark.long
@pytest.mark.parametrize("piece", ["create_issue ", "a", "((((", "w_1 w_2 w_3 w_44 w_555 "])
def test_a_hostile_query_costs_no_more_than_the_part_that_is_read(index: SearchIndex, piece: str) -> None:
    """Ten times the text costs as much as a text that is read whole, and the cut."""

    def search(chars: int) -> None:
        text = piece * (chars // len(piece))
        index.search(text, limit=5)
        index.nearest_names(text)

    assert_growth(search, 10_000, 100_000, at_most=3)


class SlowEngine(Bm25fEngine):
    """One that takes its time."""

    is_instant = False


def test_only_a_short_query_of_words_is_answered_at_once(index: SearchIndex) -> None:
    """All else must not keep other clients waiting."""
    assert index.is_instant("create issue")
    assert not index.is_instant("create issue " * 20)
    assert not index.is_instant("create issue", ("list files",))
    index.use(SlowEngine())
    assert not index.is_instant("create issue")


def test_the_total_follows_the_allowed_tools_and_the_index() -> None:
    """What was counted for one set is not said of another one, nor after a change."""
    documents = [Document(id, "files", f"read_{id}", "", "Read a file.") for id in range(6)]
    index = SearchIndex(Bm25fEngine())
    index.update(documents)
    few, more = frozenset({1, 2, 99}), frozenset({1, 2, 3})
    assert [index.search("read a file", limit=5, allowed=part).total for part in (few, few, more, None)] == [2, 2, 3, 6]
    index.update((), [2])
    assert index.search("read a file", limit=5, allowed=more).total == 2


def test_an_explained_answer_has_the_tools_of_a_plain_one() -> None:
    """Whoever asks why sees what an agent gets: siblings of the best tool that are kept below the cut included."""
    index = SearchIndex(Bm25fEngine())
    clock = [Document(n, "clock", name, "", text) for n, (name, text) in enumerate(CLOCK.items(), 1)]
    index.update([*clock, Document(90, "todo", "task", "", "Dates.")])
    for query in ("how many days between two dates", "date", "two days"):
        plain, explained = (index.search(query, limit=5, explain=why) for why in (False, True))
        assert [hit.id for hit in plain.hits] == [hit.id for hit in explained.hits]


CLOCK = {
    "date_difference": "Count the days between two dates of the calendar.",
    "describe_date": "Describe a date: weekday, number of the day, number of the week.",
    "add_duration": "Add a number of days to a date.",
    "now": "The date and the time.",
    "convert_timezone": "Convert a time into another zone.",
}
