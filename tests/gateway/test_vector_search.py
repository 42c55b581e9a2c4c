"""The gateway with an embedder: which engine serves, and what every answer says where it is not the wanted one."""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from embedding_fakes import EmbeddingService, failing, good
from gateway_fakes import NAME_LIMIT, definition

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

SERVERS = load_servers(
    json.dumps({"mcpServers": {"up": {"command": sys.executable, "args": ["-S", "-c", "input()"]}}})
).servers
TOOLS = [
    definition("send_email", "Send an email to one or more people."),
    definition("get_forecast", "Weather forecast for a city."),
    definition("resize_image", "Make a picture larger or smaller."),
]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A data directory with three tools of the server `up`."""
    async with Catalog.open(tmp_path, name_limit=NAME_LIMIT) as catalog:
        await catalog.sync("up", TOOLS)
    return tmp_path


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed that an embedder or rank-bm25 needs."""
    monkeypatch.setattr("smart_mcp_proxy.search.embedders.choose.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "rank_bm25", None)


def opened(data_dir: Path, **settings: Any) -> AbstractAsyncContextManager[Gateway]:
    return open_gateway(Settings(data_dir=data_dir, **settings), SERVERS, environ={})


async def until(is_true: Callable[[], bool]) -> None:
    """Returns once a thread has done its part; loading a model may take a while."""
    with anyio.fail_after(60):
        while not is_true():
            await anyio.sleep(0.01)


async def ask(gateway: Gateway, query: str) -> dict[str, Any]:
    return await gateway.retrieval.retrieve(Question(query=query, limit=3))


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize(("embedder", "engine"), [("HYBRID", "hybrid"), ("HF", "vector")])
async def test_tools_are_found_by_meaning(data_dir: Path, embedder: str, engine: str) -> None:
    """Though no word of the query is in them; nothing is embedded again at the next start."""
    async with opened(data_dir, embedder=embedder) as gateway:
        assert (await ask(gateway, "email"))["degraded"][0].startswith("the embedding model is being opened")
        keeper = gateway.admin.embedding
        assert keeper is not None
        gateway.start_upstreams()
        await until(lambda: keeper.is_complete)
        assert gateway.base.index.engine.name == engine
        answer = await ask(gateway, "will it rain tomorrow")
        assert answer["tools"][0]["name"] == "up:get_forecast"
        assert answer["degraded"] == list(gateway.status().degraded) == []
        assert gateway.status().embedded == (len(gateway.base.index), len(gateway.base.index))
        of_all_kinds = await gateway.retrieval.retrieve(Question("get the forecast", 3, types=("tool", "prompt")))
        assert [entry["name"] for entry in of_all_kinds["found"]] == ["up:get_forecast"]
        assert of_all_kinds["degraded"] == ["found is ranked by words alone"]
    assert (data_dir / "tools.faiss").exists()


@pytest.mark.long  # half a second of work and more
async def test_the_former_model_ranks_until_the_chosen_service_has_embedded_all_tools(data_dir: Path) -> None:
    """Also while that refuses the key; every answer says which, and why."""
    async with opened(data_dir, embedder="HF") as gateway:
        gateway.start_upstreams()
        await until(lambda: gateway.admin.embedding is not None and gateway.admin.embedding.is_complete)
    with EmbeddingService() as service:
        service.usual = failing(401)
        environ = {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": service.url}
        async with open_gateway(Settings(data_dir=data_dir, embedder="OPENAI"), SERVERS, environ=environ) as gateway:
            gateway.start_upstreams()
            await until(lambda: len(gateway.degraded()) == 2)
            answer = await ask(gateway, "will it rain tomorrow")
            assert answer["tools"][0]["name"] == "up:get_forecast"
            opening, trouble = answer["degraded"]
            assert opening.startswith("the embedding model is being opened, vectors of 'hf:sentence-transformers/all-M")
            assert "refuses the key (HTTP 401)" in trouble
            service.usual = good
            await until(lambda: gateway.admin.embedding is not None and gateway.admin.embedding.is_complete)
            asked = len(service.requests)
            assert (await ask(gateway, "will it rain tomorrow"))["degraded"] == []
            assert len(service.requests) == asked + 1


async def test_without_its_packages_words_rank_and_every_answer_says_so(data_dir: Path, without_packages: None) -> None:
    """With the command that installs them."""
    async with opened(data_dir, embedder="HF", bm25_engine="rank_bm25") as gateway:
        gateway.start_upstreams()
        await until(lambda: any("sentence-transformers" in reason for reason in gateway.degraded()))
        answer = await ask(gateway, "email")
        assert answer["degraded"] == [
            "MCPPROXY_BM25_ENGINE=rank_bm25 needs rank-bm25. Install it: pip install rank-bm25; "
            "until then the builtin engine ranks",
            "MCPPROXY_EMBEDDER=HF needs sentence-transformers and faiss-cpu. "
            "Install them: pip install sentence-transformers faiss-cpu; until then words alone rank",
        ]
        assert answer["tools"][0]["name"] == "up:send_email"


@pytest.mark.parametrize(
    "settings", [{"embedder": "HF"}, {"embedder": "OPENAI"}, {"embedder": "HYBRID"}, {"bm25_engine": "rank_bm25"}]
)
async def test_a_strict_gateway_does_not_start_without_its_packages(
    tmp_path: Path, without_packages: None, settings: dict[str, str]
) -> None:
    """Before anything is opened."""
    with pytest.raises(MissingExtraError, match="pip install"):
        async with opened(tmp_path / "data", strict=True, **settings):
            pass
    assert not (tmp_path / "data").exists()


async def test_an_embedder_that_cannot_be_opened_is_named(data_dir: Path) -> None:
    """A missing key is no missing package: even a strict gateway starts, and says what to set."""
    async with opened(data_dir, embedder="OPENAI", strict=True) as gateway:
        gateway.start_upstreams()
        await until(lambda: len(gateway.degraded()) > 1)
        reason = (await ask(gateway, "email"))["degraded"][1]
        assert reason.startswith("embedding failed: OPENAI_API_KEY is not set.")


async def test_rank_bm25_ranks_where_it_is_asked_for(data_dir: Path) -> None:
    """Nothing is degraded then."""
    async with opened(data_dir, bm25_engine="rank_bm25") as gateway:
        await gateway.lists.index_sync.loaded.wait()
        assert gateway.base.index.engine.name == "rank_bm25"
        answer = await ask(gateway, "email")
        assert answer["tools"][0]["name"] == "up:send_email"
        assert answer["degraded"] == []


@pytest.mark.long  # a third of a second of processor time
async def test_by_default_meaning_ranks_without_anything_installed(
    data_dir: Path, without_packages: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Who had tools before is told once how to go back; no answer is called degraded for a moment of words alone."""
    for _ in range(2):
        async with opened(data_dir, embedder="AUTO") as gateway:
            assert (await ask(gateway, "send an email"))["degraded"] == []
            gateway.start_upstreams()
            await until(lambda: gateway.base.index.engine.name == "hybrid")
            answer = await ask(gateway, "make a photo larger")
            assert answer["tools"][0]["name"].endswith("resize_image")
            assert answer["degraded"] == []
    news = [record.getMessage() for record in caplog.records if "by meaning now" in record.getMessage()]
    assert len(news) == 1 and "MCPPROXY_EMBEDDER=BM25" in news[0]
