"""Vectors of the encoder that comes with the package: soon there, never made twice, and news the first time."""

import logging
from functools import partial
from pathlib import Path

import pytest
from keeper_fakes import WordEmbedder, opened_setup

from smart_mcp_proxy.gateway.engines import vector_setup
from smart_mcp_proxy.search.embedders.static import StaticEmbedder
from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

TOOLS = ("read_file", "write_file", "send_mail")
NEWS = "tools are found by meaning now"


async def run_once(data_dir: Path, embedder: WordEmbedder, *names: str) -> list[str]:
    """What is embedded from one start to its end."""
    before = len(embedder.texts)
    async with opened_setup(data_dir, lambda: embedder, *names, is_light=True, news=NEWS) as setup:
        assert setup.embedding.degradations == ()
        await setup.ranking()
        assert len(setup.linked()) == len(TOOLS)
    return embedder.texts[before:]


async def test_a_warm_start_embeds_nothing_and_needs_no_side_car(tmp_path: Path) -> None:
    """The catalog has the vectors."""
    embedder = WordEmbedder()
    assert len(await run_once(tmp_path, embedder, *TOOLS)) == len(TOOLS)
    assert await run_once(tmp_path, embedder) == []
    assert not (tmp_path / SIDECAR_NAME).exists()


async def test_news_is_said_once_to_who_had_tools_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the first start that makes vectors of a stored catalog; never where a catalog begins with them."""
    caplog.set_level(logging.WARNING)

    def said() -> int:
        return sum(record.getMessage() == NEWS for record in caplog.records)

    async with opened_setup(tmp_path / "old", partial(StaticEmbedder, tmp_path / "gone"), *TOOLS):
        pass
    embedder = WordEmbedder()
    await run_once(tmp_path / "old", embedder)
    assert said() == 1
    await run_once(tmp_path / "old", embedder)
    assert said() == 1


async def test_without_its_file_words_rank_and_one_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is tried again: only an installation brings the file."""
    async with opened_setup(tmp_path, partial(StaticEmbedder, tmp_path / "gone.bin"), *TOOLS, is_light=True) as setup:
        await setup.until(lambda: setup.embedding.is_stopped)
        assert setup.embedding.degradations[0].endswith("until then words alone rank")
        assert setup.index.engine.name == "bm25f"
        assert setup.slept_s == []
    assert sum("static encoder" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(("embedder", "is_light"), [("AUTO", True), ("HYBRID", False), ("HF", False)])
def test_only_the_default_is_light_and_has_news(embedder: str, is_light: bool) -> None:
    """Who chose an embedder before is told nothing, and keeps the side-car."""
    settings = Settings(embedder=embedder)
    setup = vector_setup(settings, settings, {})
    assert (setup.is_light, bool(setup.news)) == (is_light, is_light)


def test_meaning_is_the_default() -> None:
    """Of whoever sets nothing."""
    assert Settings.model_fields["embedder"].default == "AUTO"
