"""Whatever is asked, there is an answer, soon."""

from collections.abc import Callable

import pytest
from growth import calls_of

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.answer import SearchResult
from smart_mcp_proxy.search.engine import Engine
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.engines.rank_bm25 import RankBm25Engine
from smart_mcp_proxy.search.index import SearchIndex

ENGINES = (Bm25fEngine, RankBm25Engine)

TOOLS = [
    Document(1, "github", "create_issue", "", "Open a new issue in a repository.", listed_name="github__create_issue"),
    Document(2, "地图", "路线", "", "查找两地之间的路线。", listed_name="map__route"),
    Document(3, "погода", "прогноз", "", "Прогноз погоды в городе.", listed_name="weather__forecast"),
    Document(4, "odd", "\x00\x1b[31m", "\ud800", "\udfff 🎉", (("\x07", "\ud83d"),), "odd__x"),
]

WORDLESS = {
    "empty": "",
    "blank": " \t\r\n",
    "stop words": "what is it",
    "a polite frame": "could you please do this for me",
    "emoji": "🎉🎉 👩‍👩‍👧",
    "punctuation": "?! -- ... ((()))",
    "control characters": "\x00\x1b[\x07\x7f",
    "a lone surrogate": "\ud800",
}

FOUND = {
    "mixed scripts": ("create_issue 路线 прогноз", {1, 2, 3}),
    "Chinese": ("两地之间的路线", {2}),
    "Cyrillic in capitals": ("ПРОГНОЗ ПОГОДЫ", {3}),
    "control characters between words": ("create\x00an\x1bissue\x07repository", {1}),
    "surrogates around words": ("\ud800open new issue repository\udfff", {1}),
    "full-width letters": ("\uff43\uff52\uff45\uff41\uff54\uff45 issue repository", {1}),
    "two languages in one request": ("open an issue 查找路线", {1, 2}),
    "words with every separator": ("create/issue create.issue create-issue", {1}),
    "only quoted text": ('"new issue"', {1}),
    "an emoji in a sentence": ("open a new issue 🎉 in a repository", {1}),
}

HUGE = {
    "one word again and again": "create_issue " * 8_000,
    "one run of letters": "a" * 100_000,
    "brackets": "((((" * 25_000,
    "emoji": "🎉" * 100_000,
    "names that are none": " ".join(f"w_{n}" for n in range(14_000)),
    "combining marks": "e" + "\u0301" * 100_000,
    "spaces": " " * 100_000,
    "identifiers": "4f3c2b1a-99e0 " * 8_000,
    "words": "list the open issues of a repository and close old ones " * 2_000,
    "characters that unfold": "\ufdfa" * 100_000,
}


def index_of(make: Callable[[], Engine], *documents: Document) -> SearchIndex:
    index = SearchIndex(make())
    index.update(documents)
    return index


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("query", WORDLESS.values(), ids=WORDLESS)
def test_a_query_without_a_word_has_an_empty_answer(engine: Callable[[], Engine], query: str) -> None:
    """With the count of what could have been found, and no near misses, for nothing was asked."""
    assert index_of(engine, *TOOLS).search(query, limit=5, explain=True) == SearchResult(total=4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("query", [*WORDLESS.values(), *(query for query, _ in FOUND.values())])
def test_an_empty_index_answers_every_query(engine: Callable[[], Engine], query: str) -> None:
    """Before the first server is connected."""
    index = index_of(engine)
    assert index.search(query, limit=5, more_queries=[query], servers=["none"], explain=True) == SearchResult()
    assert index.nearest_names(query) == []


@pytest.mark.parametrize(("query", "ids"), FOUND.values(), ids=FOUND)
def test_odd_characters_do_not_keep_words_from_being_found(query: str, ids: set[int]) -> None:
    """Any script, and whatever stands between the words."""
    index = index_of(Bm25fEngine, *TOOLS)
    assert ids <= {hit.id for hit in index.search(query, limit=5, more_queries=query.split()).hits}


@pytest.mark.parametrize("query", HUGE.values(), ids=HUGE)
def test_of_a_query_of_100_kb_as_much_is_read_as_of_half_of_it(query: str) -> None:
    """As many function calls, whatever the rest holds."""
    index = index_of(Bm25fEngine, *TOOLS)
    for job in (lambda text: index.search(text, limit=5), index.nearest_names):
        half, whole = (calls_of(lambda: job(text)) for text in (query[: len(query) // 2], query))  # noqa: B023
        assert whole <= 1.1 * half + 100


def test_a_tool_of_nothing_but_odd_characters_is_found_by_its_name() -> None:
    """Exact names need no words."""
    answer = index_of(Bm25fEngine, *TOOLS).search("\x00\x1b[31m", limit=5)
    assert [hit.id for hit in answer.hits] == [4]
