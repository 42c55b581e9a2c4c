"""Words fused with the static encoder: what ranks, what fits, and what a query without meaning gets."""

import numpy as np
import pytest

from smart_mcp_proxy.gateway.engines import vector_engine
from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.search.embedding import build_embedding_text
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings

AUTO = Settings(embedder="AUTO")
TOOLS = [
    Document(1, "images", "delete_image", description="Deletes an image for good."),
    Document(2, "books", "list_invoices", description="Lists the invoices of a customer."),
    Document(3, "mail", "send_message", description="Sends a message to somebody."),
    Document(4, "travel", "find_flights", description="Finds flights between two airports."),
    Document(5, "disk", "read_file", description="Reads a file from disk."),
]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    embedder = open_embedder(AUTO, {})
    vectors = VectorIndex(embedder.dimension, is_rounded=True)
    found = SearchIndex(vector_engine(AUTO, embedder, vectors))
    found.update(TOOLS)
    vectors.update([tool.id for tool in TOOLS], embedder.embed(list(map(build_embedding_text, TOOLS))))
    return found


def first(index: SearchIndex, query: str) -> int | None:
    """The tool that leads the answer."""
    hits = index.search(query, limit=5).hits
    return hits[0].id if hits else None


def test_what_is_said_in_other_words_ranks_first(index: SearchIndex) -> None:
    """Words alone find none of them, and no answer is empty for that."""
    assert index.engine.rank("remove a picture", 5, None)[0].id == 1
    assert index.engine.rank("customer bills", 5, None)[0].id == 2
    assert first(index, "list the invoices of a customer") == 2


def test_a_query_that_means_nothing_to_the_encoder_is_left_to_words(index: SearchIndex) -> None:
    """Signs without a piece have no vector, and nothing is said to be wrong."""
    assert index.engine.rank("\ud800\udfff", 5, None) == []
    assert index.engine.problem is None


@pytest.mark.parametrize(
    "query", ["read a file " * 5_000, '"report.pdf" 17 /tmp/x', "Lösche das Bild", "画像を削除する", "\ud800 read file"]
)
def test_odd_queries_are_answered(index: SearchIndex, query: str) -> None:
    """With finite scores between 0 and 1, or with nothing."""
    scores = [hit.score for hit in index.search(query, limit=5).hits]
    assert np.isfinite(scores).all() and all(0 <= score <= 1 for score in scores)


def test_what_no_tool_does_is_no_answer(index: SearchIndex) -> None:
    """Something is always nearest; that alone does not make it fit."""
    answer = index.search("translate this poem into latin", limit=5)
    assert not answer.hits or not answer.is_sure


def rank(tools: list[Document], query: str) -> list[Hit]:
    """Rank the tools by words and meaning."""
    embedder = open_embedder(AUTO, {})
    vectors = VectorIndex(embedder.dimension, is_rounded=True)
    engine = vector_engine(AUTO, embedder, vectors)
    engine.update(tools, ())
    vectors.update([tool.id for tool in tools], embedder.embed(list(map(build_embedding_text, tools))))
    return engine.rank(query, 32, None)


def test_of_tools_that_fit_alike_the_plainer_leads() -> None:
    """The longer name has more of the query's words, and is about less; the scores stay in their places."""
    text = "Lists the tickets of a project."
    tools = [Document(1, "desk", "list_project_tickets_by_label", description=text)]
    tools.append(Document(2, "desk", "list_tickets", description=text))
    ranked = rank(tools, "list the tickets of a project")
    assert [hit.id for hit in ranked] == [2, 1]
    assert ranked[0].score > ranked[1].score


def test_of_tools_that_fit_alike_the_one_whose_server_is_named_leads() -> None:
    """Another server's tool says the name more often, and ranks first by words and meaning."""
    tools = [
        Document(1, "orchard", "open_ticket", description="Opens a ticket in harbor, as harbor has it."),
        Document(2, "harbor", "open_ticket", description="Opens a new ticket or task."),
    ]
    assert [hit.id for hit in rank(tools, "open a ticket in harbor")] == [2, 1]


def test_tools_of_equal_values_stand_by_name_whatever_their_ids() -> None:
    """Six that are the same but for the server, of which five are ordered anew."""
    servers = ["ash", "birch", "cedar", "elm", "fir", "oak"]
    orders = []
    for named in (servers, servers[::-1]):
        tools = [Document(id, server, "open_ticket", description="Opens a ticket.") for id, server in enumerate(named)]
        orders.append([named[hit.id] for hit in rank(tools, "open a new ticket")][:5])
    assert orders[0] == orders[1]
