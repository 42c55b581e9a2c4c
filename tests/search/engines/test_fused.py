"""How meaning and words rank together, and what happens where one of them is missing."""

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.embedding import ViewEmbedder, build_embedding_text
from smart_mcp_proxy.search.engine import Fit, classify_fitness
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.engines.fused import FusedEngine
from smart_mcp_proxy.search.index import SearchIndex
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

MEANINGS = {"thunder": "weather", "omen": "forecast", "gripe": "issu", "grievanc": "issu"}
"""Terms that no thesaurus has, by the term whose direction they share."""

WEATHER = Document(1, "meteo", "get_forecast", "", "Weather forecast for a city.")
ISSUE = Document(2, "github", "create_issue", "", "Open a new issue in a repository.")
FILE = Document(3, "files", "read_file", "", "Read the whole content of a file.")
DELETE = Document(4, "files", "delete_file", "", "Delete a file for good.")
ALL = [WEATHER, ISSUE, FILE, DELETE]


class WordEmbedder:
    """Adds up a random direction for each word; a few words share theirs, which is all the meaning there is."""

    id = "words"
    dimension = 512

    def __init__(self) -> None:
        self.is_broken = False
        self.retry_after_s: float | None = None
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.asked.append(text)
        if self.is_broken:
            raise EmbeddingError("The service does not answer.", retry_after_s=self.retry_after_s)
        return self._vector(text)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.full(self.dimension, 1e-6)
        for term in terms(text):
            seed = zlib.crc32(MEANINGS.get(term, term).encode())
            total += np.random.default_rng(seed).standard_normal(self.dimension)
        vector: NDArray[np.float32] = (total / np.linalg.norm(total)).astype(np.float32)
        return vector


class HandClock:
    """Turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class World:
    """An engine over some documents, all or some of which have vectors."""

    def __init__(
        self,
        documents: Sequence[Document] = ALL,
        *,
        without_vector: Iterable[Document] = (),
        is_lexical_used: bool = True,
    ) -> None:
        self.embedder = WordEmbedder()
        self.clock = HandClock()
        self.vectors = VectorIndex(WordEmbedder.dimension)
        self.engine = FusedEngine(
            Bm25fEngine(), self.vectors, self.embedder, self.clock, is_lexical_used=is_lexical_used
        )
        self.engine.update(documents, [])
        self.embed([document for document in documents if document not in without_vector])

    def embed(self, documents: Sequence[Document]) -> None:
        if documents:
            rows = ViewEmbedder(self.embedder).embed([build_embedding_text(document) for document in documents])
            self.vectors.update([document.id for document in documents], rows)

    def ids(self, query: str, depth: int = 10, allowed: set[int] | None = None) -> list[int]:
        return [hit.id for hit in self.engine.rank(query, depth, allowed)]


def test_what_is_meant_is_found_without_its_words() -> None:
    """No word of the query is in the definition, and words alone find nothing."""
    assert World().ids("thunder omen")[0] == WEATHER.id
    lexical = Bm25fEngine()
    lexical.update([replace(WEATHER, description="")], [])
    assert lexical.rank("thunder omen", 10, None) == []


def test_of_a_long_query_the_beginning_is_embedded() -> None:
    """What words search for, too; an encoder reads all that it is given, whatever that costs."""
    world = World()
    index = SearchIndex(world.engine)
    index.update(ALL)
    index.search("thunder omen " + "x" * 1_000_000, limit=5, more_queries=["y" * 1_000_000], explain=True)
    assert {len(text) for text in world.embedder.asked} == {4_000}


def test_words_decide_between_tools_of_the_same_meaning() -> None:
    """A name that only the words know tells twins apart, under HYBRID and not with vectors alone."""
    gripe, issue = replace(ISSUE, id=10, name="create_gripe"), replace(ISSUE, id=9, name="create_grievance")
    assert World([gripe, issue]).ids("create gripe")[0] == gripe.id
    assert World([gripe, issue], is_lexical_used=False).ids("create gripe") == [issue.id, gripe.id]


def test_words_count_by_what_they_tell_however_long_the_request_is() -> None:
    """A tool that says the rare words of a request stands above the one that means its frame."""
    vectors, embedder = VectorIndex(WordEmbedder.dimension), WordEmbedder()
    engine = FusedEngine(Bm25fEngine(), vectors, embedder, is_lexical_used=True)
    engine.update([WEATHER, ISSUE], [])
    vectors.update([WEATHER.id, ISSUE.id], embedder.embed(["tea tea tea new", "tea"]))
    assert engine.rank("thunder", 10, None)[0].id == WEATHER.id
    for request in ("create a new issue", "when all of that is done, at last, create a new issue for us"):
        assert engine.rank(request, 10, None)[0].id == ISSUE.id


@pytest.mark.parametrize("is_lexical_used", [True, False])
def test_a_ban_on_deleting_holds_where_vectors_rank(is_lexical_used: bool) -> None:
    """A tool that is marked stands below all others that fit."""
    tools = [WEATHER, ISSUE, FILE, replace(DELETE, is_destructive=True)]
    world = World(tools, is_lexical_used=is_lexical_used)
    index = SearchIndex(world.engine)
    index.update(tools)
    world.embed(tools)
    request = "put the content of a file away for good"
    assert index.search(request, limit=5).hits[0].id == DELETE.id
    hits = [hit.id for hit in index.search(f"{request}, without deleting anything", limit=5).hits]
    assert hits == [FILE.id, DELETE.id]


@pytest.mark.parametrize("is_lexical_used", [True, False])
def test_scores_are_shares_and_equal_scores_are_ordered_by_id(is_lexical_used: bool) -> None:
    """Scores lie in (0, 1] and fall, whatever the order in which twins came."""
    twins = [replace(ISSUE, id=number) for number in (9, 7, 8)]
    hits = World([*twins, *ALL], is_lexical_used=is_lexical_used).engine.rank("create an issue", 10, None)
    assert [hit.id for hit in hits][:4] == [2, 7, 8, 9]
    assert all(0 < later.score <= earlier.score <= 1 for earlier, later in pairwise(hits))


@pytest.mark.parametrize("is_lexical_used", [True, False])
def test_tools_without_a_vector_rank_as_words_rank_them(is_lexical_used: bool) -> None:
    """The same order, and scores on one scale with the tools that have a vector."""
    lexical = Bm25fEngine()
    lexical.update(ALL, [])
    by_words = lexical.rank("read or delete a file", 10, None)
    hits = World(without_vector=ALL, is_lexical_used=is_lexical_used).engine.rank("read or delete a file", 10, None)
    assert [hit.id for hit in hits] == [hit.id for hit in by_words]
    assert all(0 < hit.score < 1 for hit in hits)


@pytest.mark.parametrize("is_lexical_used", [True, False])
def test_a_tool_without_a_vector_is_found_by_its_words(is_lexical_used: bool) -> None:
    """And stands where its words put it, above tools that mean something else."""
    world = World(without_vector=[ISSUE], is_lexical_used=is_lexical_used)
    assert world.ids("create issue")[0] == ISSUE.id
    assert world.engine.fit("create issue", ISSUE.id)
    assert "lexical" in world.engine.explain("create issue", [ISSUE.id])[ISSUE.id]


@pytest.mark.long  # a third of a second of processor time
def test_only_allowed_tools_appear_up_to_the_depth() -> None:
    """Meaning and words are both asked for these only."""
    world = World([*ALL, *(replace(ISSUE, id=number) for number in range(100, 600))])
    assert world.ids("create issue in a file", 2, {FILE.id, DELETE.id, WEATHER.id}) == [FILE.id, DELETE.id]
    assert world.ids("create issue", 3) == [2, 100, 101]
    assert world.ids("create issue", 3, set()) == []


def test_a_removed_tool_is_gone_even_if_its_vector_comes_back() -> None:
    """The owner of the vectors may not have heard yet."""
    world = World()
    world.engine.update([], [ISSUE.id])
    assert ISSUE.id not in world.vectors
    world.embed([ISSUE])
    assert ISSUE.id not in world.ids("create issue")
    assert not world.engine.fit("create issue", ISSUE.id)
    assert len(world.engine) == 3


def test_a_changed_tool_loses_the_vector_of_what_it_was() -> None:
    """One that reads the same keeps it, although its parameters changed."""
    world = World()
    world.engine.update([replace(ISSUE, description="Send a mail."), replace(FILE, parameters=(("path", ""),))], [])
    assert ISSUE.id not in world.vectors
    assert FILE.id in world.vectors
    assert world.ids("send mail")[0] == ISSUE.id


def test_words_alone_rank_while_the_embedder_fails() -> None:
    """It is left alone for 30 seconds, so that not every search waits for it; then it is asked again."""
    world = World()
    world.embedder.is_broken = True
    lexical = Bm25fEngine()
    lexical.update(ALL, [])
    assert world.engine.rank("read file", 10, None) == lexical.rank("read file", 10, None)
    assert world.engine.problem == "words alone rank, the query was not embedded: The service does not answer."
    assert world.engine.fit("read file", FILE.id)
    assert "vector" not in world.engine.explain("read file", [FILE.id])[FILE.id]
    assert "lexical" not in World(is_lexical_used=False).engine.explain("read file", [FILE.id])[FILE.id]
    world.clock.now_s += 29.9
    world.embedder.is_broken = False
    assert world.ids("thunder omen") == []
    assert world.embedder.asked == ["read file"]
    world.clock.now_s += 0.1
    assert world.ids("thunder omen")[0] == WEATHER.id
    assert world.engine.problem is None


def test_an_embedder_that_names_a_later_time_is_asked_then() -> None:
    """A rate limit of a minute is not tested after 30 seconds."""
    world = World()
    world.embedder.is_broken, world.embedder.retry_after_s = True, 60.0
    world.ids("read file")
    world.clock.now_s += 59.0
    world.ids("read file")
    assert len(world.embedder.asked) == 1
    world.clock.now_s += 1.0
    world.ids("read file")
    assert len(world.embedder.asked) == 2


@pytest.mark.long  # a third of a second of processor time
def test_a_best_hit_fits_by_its_meaning_or_by_its_words_together() -> None:
    """A request that nothing is near to is not answered by whatever is nearest."""
    filler = [Document(n, f"s{n}", f"tool_{n}", "", f"Get a list of items number {n}.") for n in range(100, 300)]
    world = World([*filler, *ALL])
    for query in ("weather forecast", "thunder forecast for a city", "read file"):
        assert world.engine.fit(query, world.ids(query)[0]) is Fit.YES, query
    for query in ("sourdough bread recipe with walnuts and honey", "translate get poem", "zxqv"):
        assert not any(world.engine.fit(query, id) for id in world.ids(query)[:1]), query


def test_the_fit_is_that_of_the_fitness_against_the_two_floors() -> None:
    """With and without a vector, and for an unknown id."""
    unseen = Document(5, "far", "unseen", "", "Open a window.")
    engine = World([*ALL, unseen], without_vector=[unseen]).engine
    seen = set()
    for query in ("gripe in a repository", "open", "bake bread", "a file of thunder and bread and quantum harmony"):
        for id in (1, 2, 5, 99):
            assert engine.fit(query, id) is classify_fitness(engine.fitness(query, id))
            seen.add(engine.fit(query, id))
    assert len(seen) > 1


def test_a_hit_that_was_ranked_before_the_first_vectors_came_is_judged_by_its_words() -> None:
    """They are made in the background, and may come between a search's two questions."""
    for query, is_answer in (("create issue", True), ("open the window of my car", False)):
        world = World(without_vector=ALL)
        best = world.ids(query)[0]
        world.embed(ALL)
        assert bool(world.engine.fit(query, best)) is is_answer


def test_what_many_servers_are_as_near_to_is_no_answer() -> None:
    """It is the frame of the request. One server that says it often makes no crowd, nor do tools that are not asked."""
    near = Document(50, "meteo", "thunder", "", "Tomorrow.")
    query = "thunder weather omen of tomorrow and after"
    alone = World([near, *ALL]).engine
    assert alone.fit(query, near.id) is Fit.YES
    crowd = [replace(near, id=number, server=f"s{number}") for number in range(100, 140)]
    among_crowd = World([near, *crowd, *ALL]).engine
    assert among_crowd.fit(query, near.id) is not Fit.YES
    assert among_crowd.fit(query, near.id, {near.id, *(document.id for document in ALL)}) is Fit.YES
    others = [Document(n, f"s{n}", f"tool_{n}", "", f"Number {n}.") for n in range(200, 240)]
    flood = [replace(document, server="flood") for document in crowd]
    assert World([near, *flood, *others, *ALL]).engine.fit(query, near.id) is Fit.YES


def test_an_explanation_tells_what_words_and_meaning_score() -> None:
    """For the person who asks why a tool came up."""
    world = World()
    why = world.engine.explain("thunder forecast", [WEATHER.id])[WEATHER.id]
    [hit] = [hit for hit in world.engine.rank("thunder forecast", 10, None) if hit.id == WEATHER.id]
    assert why["matched"]["name"] == ["forecast"]
    assert 0 < why["lexical"] < 1
    assert 0 < why["vector"] < 1
    assert why["evidence"] > 0
    value = why["vector"] + 0.05 * why["evidence"]
    assert hit.score == pytest.approx(1 - math.exp(-1.5 * value), abs=0.01)


def test_an_explanation_goes_by_what_the_tool_was_ranked_among() -> None:
    """What else there is, out of the caller's reach, does not show in it."""
    filler = [Document(n, f"s{n}", f"tool_{n}", "", f"Get a list of items number {n}.") for n in range(100, 130)]
    query, allowed = "delete file for good", {document.id for document in (WEATHER, ISSUE, FILE, *filler)}
    world = World([*ALL, *filler])
    why = world.engine.explain(query, [FILE.id], allowed)[FILE.id]
    [hit] = [hit for hit in world.engine.rank(query, 10, allowed) if hit.id == FILE.id]
    value = why["vector"] + 0.05 * why["evidence"]
    assert hit.score == pytest.approx(1 - math.exp(-1.5 * value), abs=0.01)


@pytest.mark.parametrize(("more", "most"), [([], 1), (["weather forecast for a city", "open issue"], 6)])
def test_all_explanations_of_an_answer_together_search_once_more_for_each_query_at_most(
    more: list[str], most: int
) -> None:
    """However many hits it has; for a single query what was just found is looked up."""
    world = World([])
    index = SearchIndex(world.engine)
    twins = [replace(document, id=10 + document.id, server=f"{document.server}2") for document in ALL]
    index.update([*ALL, *twins])
    world.embed([*ALL, *twins])
    answer = index.search("read or delete a file", limit=6, more_queries=more, explain=True)
    assert len(answer.hits) > 1 and all("evidence" in hit.why for hit in answer.hits)
    assert len(world.embedder.asked) <= most


def test_exact_names_stay_first_with_vectors_alone() -> None:
    """Whatever their meaning says."""
    world = World(is_lexical_used=False)
    index = SearchIndex(World([], is_lexical_used=False).engine)
    index.use(world.engine, {document.id: document for document in ALL})
    index.update(ALL)
    answer = index.search("delete_file thunder omen weather forecast", limit=3)
    assert answer.hits[0].id == DELETE.id


def test_nothing_is_found_where_there_is_nothing() -> None:
    """Neither tools nor words nor vectors."""
    assert World([]).ids("anything") == []
    assert not World([]).engine.fit("anything", 1)
    assert World().engine.explain("anything", [99]) == {}
    assert World(without_vector=ALL).ids("thunder") == []
